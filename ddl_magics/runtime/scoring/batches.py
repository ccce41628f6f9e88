"""What Spark's executors do to score batches of Arrow: as scorer.py, without an object of Python for each value.

Executors cannot import this package: the functions here travel to them by value (`by_value.py`). Hence no class, no
relative import but for the type checker, and nothing but numpy, pyarrow and the standard library.
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
    """The pyarrow.RecordBatches of a partition, each with the outputs of `model()` behind its columns.

    ValueError, one line, for a row that cannot be read.
    """
    import pyarrow

    for batch in batches:
        if not batch.num_rows:
            continue
        parts = []
        for first in range(0, batch.num_rows, plan["batch_rows"]):
            arrays = make_arrays(batch.slice(first, plan["batch_rows"]), plan)
            parts.append([array for _, array in call(model(), arrays, plan["inputs"])])
        outputs = [as_arrow(np.concatenate(output)) for output in zip(*parts)]
        columns = [*batch.columns, *outputs]
        yield pyarrow.RecordBatch.from_arrays(columns, ["c%d" % index for index in range(len(columns))])


def as_arrow(array: np.ndarray) -> Any:
    """The pyarrow.Array of an output (rows, ...): of each row a number, where it has one, or nested lists.

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
