"""Scoring of Arrow batches on Spark's executors: as scorer.py, but without a Python object for each value.

Travels to executors by value (`by_value.py`), and needs numpy and pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, List

import numpy as np

if TYPE_CHECKING:
    from .records import Plan

Arrays = List[np.ndarray]


def score_batches(
    batches: Iterable[Any],
    model: Callable[[], Any],
    plan: Plan,
    make_arrays: Callable[[Any, Plan], Arrays],
    call: Callable[..., Any],
) -> Iterator[Any]:
    """Yield the pyarrow.RecordBatches of a partition with the outputs of `model()` as further columns.

    Raises:
        ValueError: a row cannot be read; one line.
    """
    import pyarrow

    for batch in batches:
        if not batch.num_rows:
            continue
        chunks = []
        for start in range(0, batch.num_rows, plan["batch_rows"]):
            arrays = make_arrays(batch.slice(start, plan["batch_rows"]), plan)
            chunks.append([array for _, array in call(model(), arrays, plan["inputs"])])
        outputs = [as_arrow(np.concatenate(output)) for output in zip(*chunks)]
        columns = [*batch.columns, *outputs]
        yield pyarrow.RecordBatch.from_arrays(columns, ["c%d" % index for index in range(len(columns))])


def as_arrow(array: np.ndarray) -> Any:
    """An output (rows, ...) as a pyarrow.Array: a number per row, or nested lists.

    Spark has no unsigned integers: they become the next larger signed ones.
    """
    import pyarrow

    shape = (len(array),) if array.shape[1:] in ((), (1,)) else array.shape
    if array.dtype.kind == "O":
        values = pyarrow.array([text.decode("utf-8", "replace") for text in array.ravel()], pyarrow.string())
    else:
        wider = {"uint8": "int16", "uint16": "int32", "uint32": "int64"}.get(array.dtype.name)
        values = pyarrow.array(array.ravel() if wider is None else array.ravel().astype(wider))
    for axis in range(len(shape) - 1, 0, -1):
        lists = int(np.prod(shape[:axis]))
        values = pyarrow.ListArray.from_arrays(pyarrow.array(np.arange(lists + 1, dtype="int32") * shape[axis]), values)
    return values
