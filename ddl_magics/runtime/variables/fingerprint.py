"""Whether an object has changed: a fingerprint of its content, within one process."""

from __future__ import annotations

import marshal
from typing import Any

#: Of a larger array some elements are compared, unless the cell's text says that it writes to the array.
WHOLE_BYTES = 1 << 20
#: So many elements, with equal distances.
SAMPLED = 4096


def of(value: Any, every_element: bool = False) -> Any:
    """A value that equals that of another time, where the content is the same; None for what is not compared.

    every_element: also of large arrays.
    """
    try:
        return _of(value, every_element)
    except (RecursionError, RuntimeError):  # of a list that contains itself; of a dict that a thread changes
        return None


def _of(value: Any, every_element: bool) -> Any:
    kind = type(value)
    if kind.__module__ == "numpy" and hasattr(value, "dtype"):
        return _of_array(value, every_element)
    if kind.__name__ == "DataFrame" and kind.__module__.startswith("pandas."):
        columns = [
            (str(name), _of(value[name].to_numpy(), every_element)) for name in value.columns if _is_single(value, name)
        ]
        return (value.shape, _of(value.index.to_numpy(), every_element), columns)
    if kind.__name__ == "Series" and kind.__module__.startswith("pandas."):
        return (value.shape, _of(value.index.to_numpy(), every_element), _of(value.to_numpy(), every_element))
    try:
        return hash(marshal.dumps(value, 2))  # of version 2, in which equal values have equal bytes
    except ValueError:
        pass
    if isinstance(value, dict):
        return [(_of(key, every_element), _of(content, every_element)) for key, content in value.items()]
    if isinstance(value, (list, tuple)):
        return [_of(content, every_element) for content in value]
    if isinstance(value, (set, frozenset)):
        return sorted(map(id, value))
    return id(value)


def _is_single(frame: Any, column: Any) -> bool:
    return getattr(frame[column], "ndim", 2) == 1


def _of_array(array: Any, every_element: bool) -> Any:
    if array.dtype.hasobject:
        return (
            array.shape,
            [_of(item, every_element) for item in array.ravel().tolist()[: SAMPLED if not every_element else None]],
        )
    if every_element or array.nbytes <= WHOLE_BYTES:
        sample = array
    else:
        sample = array.ravel()[:: max(1, array.size // SAMPLED)] if array.flags.c_contiguous else array.flat[:SAMPLED]
    return (array.shape, array.dtype, _hash(sample))


def _hash(array: Any) -> int:
    """Of its bytes, without a copy where they lie one after another."""
    try:
        return hash(memoryview(array).cast("B").toreadonly())
    except (TypeError, ValueError):  # of other strides, of times, of no elements
        return hash(array.tobytes())
