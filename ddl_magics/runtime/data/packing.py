"""What Spark's executors do with rows before the runtime is there: pack them into blobs, and deal these to the ranks.

A blob holds some thousand rows of one set. Its layout: a line of JSON, the header, in UTF-8; then one array a tensor,
each as `np.save` writes it without pickle. Axis 0 of each array is the rows, in the order of the set. Text is an array
of bytes objects, of which a blob has the lengths and then all bytes.

Travels to executors by value (`by_value.py`), and needs numpy alone.
"""

from __future__ import annotations

import io
import itertools
import json
import operator
import struct
import zlib
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, List, Mapping, Sequence, Tuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from .records import Column, DealOrder, FloatLosses, PackReport, SeriesColumns, SetName

#: The bounds of a blob.
BLOB_ROWS = 4096
BLOB_BYTES = 8 << 20
#: Rows for validation are drawn within blocks of so many consecutive rows.
BLOCK_ROWS = 1000
#: Rows for training are mixed within blocks of so many consecutive rows, before they are dealt round robin: a period in
#: the data, such as the hours of a day, must not decide which rank has a row, or which rows share a batch.
SHUFFLE_ROWS = 960
_SHUFFLE_DRAW = 1

#: Larger numbers are infinite as float32.
MOST_FLOAT32 = float(np.finfo(np.float32).max)

#: NumPy's names of types -> those of `struct`.
_STRUCT_LETTERS = {"f4": "f", "f8": "d", "i8": "q", "u8": "Q"}

#: The report of no rows.
EMPTY_REPORT: PackReport = {
    "error": None,
    "rows": 0,
    "checksum": 0,
    "shapes": [],
    "dtypes": [],
    "text_bytes": [],
    "nan": [],
    "inf": [],
    "rounded": {},
    "too_large": [],
    "series": None,
}

#: (partition, chunk number, report, blob)
Record = Tuple[int, int, "PackReport", bytes]
Arrays = List[np.ndarray]


def encode(header: Mapping[str, Any], arrays: Iterable[np.ndarray]) -> bytes:
    """The blob of a JSON-able `header` and `arrays`, of any shapes; an array of objects has bytes objects."""
    arrays = list(arrays)
    buffer = io.BytesIO()
    texts = [index for index, array in enumerate(arrays) if array.dtype == object]
    buffer.write(json.dumps(dict(header, texts=texts)).encode("utf-8") + b"\n")
    for array in arrays:
        if array.dtype == object:
            np.save(buffer, text_lengths(array), allow_pickle=False)
            array = np.frombuffer(b"".join(array.ravel()), np.uint8)
        np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def decode(blob: bytes) -> tuple[Any, Arrays]:
    """(header, arrays) of a blob. ValueError where it is none."""
    buffer = io.BytesIO(blob)
    header = json.loads(buffer.readline().decode("utf-8"))
    texts = header.pop("texts")
    arrays: Arrays = []
    while buffer.tell() < len(blob):
        array = np.load(buffer, allow_pickle=False)
        if len(arrays) in texts:
            content = np.load(buffer, allow_pickle=False).tobytes()
            stops = np.cumsum(array, dtype=np.int64).tolist()
            values = [content[stop - length : stop] for stop, length in zip(stops, array.ravel().tolist())]
            array = text_array(values, array.shape)
        arrays.append(array)
    return header, arrays


def text_array(values: Sequence[bytes], shape: Sequence[int]) -> np.ndarray:
    """An array of bytes objects. NumPy's own array of text has one width, and cuts off NULs at the end of a text."""
    array = np.empty(len(values), object)
    array[:] = values
    return array.reshape(shape)


def text_lengths(array: np.ndarray) -> np.ndarray:
    """The lengths of bytes objects, int64 of the same shape."""
    return np.fromiter(map(len, array.ravel()), np.int64, array.size).reshape(array.shape)


def at_once(values: Any, dtype: str, dimensions: int) -> np.ndarray | None:
    """The array of so many dimensions that NumPy makes of nested sequences, or None where each value must be looked at.

    That is so for values that NumPy refuses or does not nest as expected; for text, also among the numbers of pandas'
    objects, as NumPy makes a number of "5"; for booleans and for floats with NaN or infinity, as NumPy makes False and
    NaN of a missing value, and infinity of a number that is too large.
    """
    if dtype == "S" or np.dtype(dtype).kind == "b":
        return None
    if isinstance(values, np.ndarray) and values.dtype == object and _first_text(values) is not None:
        return None
    try:
        with np.errstate(over="ignore"):
            array = fitting(np.array(values, _first_dtype(dtype)), dtype)
    except Exception:  # whatever it is: the value is looked for, and reported in words for the user
        return None
    if array.ndim != dimensions or 0 in array.shape[1:] or (array.dtype.kind == "f" and not np.isfinite(array).all()):
        return None
    return array


def matrix_at_once(rows: Sequence[Sequence[Any]], numbers: slice | int, dtype: str) -> np.ndarray | None:
    """The matrix of the numbers in these columns, or in the lists of one, or None where each value must be looked at.

    `struct` takes a third of NumPy's time, and refuses missing values, text, and numbers that are too large.
    """
    first_dtype = np.dtype(_first_dtype(dtype))
    letter = _STRUCT_LETTERS.get(first_dtype.str[1:])
    try:
        width = len(rows[0][numbers])
        if letter is None or not width:
            return None
        pack_row = struct.Struct("=%d%s" % (width, letter)).pack
        content = bytearray().join(itertools.starmap(pack_row, map(operator.itemgetter(numbers), rows)))
        return fitting(np.frombuffer(content, first_dtype).reshape(len(rows), width), dtype)
    except Exception:  # as in `at_once`
        return None


def _first_dtype(dtype: str) -> str:
    """The dtype that NumPy makes of Python's numbers, before `fitting`."""
    return dtype if np.dtype(dtype).kind == "f" else _widest(dtype)


def as_array(values: Any, column: Column) -> np.ndarray:
    """The values of one column as an array (rows, ...) of the column's dtype; text ("S") becomes objects, UTF-8 bytes.

    Lists for a ragged tensor become objects, too: an array of each row's values.

    values: a sequence of numbers, strings, nested lists or ML vectors, or a numpy array. ValueError, in words for the
    user, where values are missing or their lengths differ.
    """
    dtype = column["dtype"]
    if is_of_lists(column):
        is_padded = isinstance(values, np.ndarray) and values.ndim > 1  # of Arrow
        return fitting(values, dtype) if is_padded else of_lists(*flattened(values, column), column)
    if isinstance(values, np.ndarray) and values.dtype != object and dtype != "S":  # of pandas or Arrow
        return fitting(values, dtype)
    if column.get("sparse"):
        check_present(values)
        one_length(values)
        return text_array([sparse_bytes(value) for value in values], [len(values)])
    if column["vector"]:
        check_present(values)
        values = [np.array(value) if isinstance(value, list) else value.toArray() for value in values]  # Arrow's lists
        one_length(values)
        return fitting(np.stack(values), dtype)
    array = at_once(values, dtype, column["depth"] + 1)
    if array is not None:
        return array
    if "ragged" in column:
        return of_lists(*flattened(values, column), column)
    shape = [len(values)]
    for _ in range(column["depth"]):
        check_present(values)
        shape.append(one_length(values, pad_hint(column)))
        values = list(itertools.chain.from_iterable(values))
    check_present(values)
    if dtype == "S":
        return text_array([_as_bytes(value) for value in values], shape)
    return _number_array(values, dtype).reshape(shape)


def fitting(values: np.ndarray, dtype: str) -> np.ndarray:
    """The numbers in a dtype; ValueError where it does not hold one, which NumPy would make another or infinite."""
    if values.dtype == dtype:
        return values
    with np.errstate(over="ignore", invalid="ignore"):
        array = values.astype(dtype)
    if array.dtype.kind in "iu":
        # Processors differ in what they make of 2.0**63: the largest integer of some is equal to it as a float.
        changed = array != values
        if values.dtype.kind == "f":
            changed |= values >= float(np.iinfo(dtype).max) + 1
    elif array.dtype.kind == "f":
        changed = np.isinf(array) & ~np.isinf(values)
    else:
        return array
    if changed.any():
        words = values[changed][0], array.dtype.name
        raise ValueError("it has %s, which %s does not hold: drop these rows, or train with a wider type" % words)
    return array


def _number_array(values: Sequence[Any], dtype: str) -> np.ndarray:
    """The array of Python's numbers; ValueError where a text is among them, of which NumPy would make a number."""
    text = _first_text(values)
    if text is not None:
        raise ValueError("it has %r, a text in place of a number: make all values numbers, or all texts" % (text,))
    return fitting(np.array(values, _widest(dtype)), dtype)


def _first_text(values: Iterable[Any]) -> str | bytes | None:
    return next((value for value in values if isinstance(value, (str, bytes))), None)


def _widest(dtype: str) -> str:
    """The dtype that Python's numbers are read in before `fitting`, as NumPy 1 makes an int32 of any int."""
    kind = np.dtype(dtype)
    return {"i": "i8", "u": "i8", "f": "f8"}.get(kind.kind, dtype) if kind.itemsize < 8 else dtype


def is_of_lists(column: Column) -> bool:
    """Whether lists of a column are padded or ragged even if they have one length."""
    return "pad" in column or column.get("ragged") == "always"


def flattened(lists: Any, column: Column) -> tuple[np.ndarray, npt.NDArray[np.int64]]:
    """(the values of all lists of numbers or texts, as an array; the length of each list)."""
    if len(lists) and column["dtype"] != "S" and all(map(_is_of_numbers, lists)):
        lengths = np.fromiter(map(len, lists), np.int64, len(lists))
        return fitting(np.concatenate([*lists]), column["dtype"]), lengths
    check_present(lists)
    for value in lists:
        if isinstance(value, (str, bytes)):
            raise ValueError("it has lists, and %r, which is a text: make all values lists" % value)
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    values = list(itertools.chain.from_iterable(lists))
    check_present(values)
    if column["dtype"] == "S":
        return text_array([_as_bytes(value) for value in values], [len(values)]), lengths
    return _number_array(values, column["dtype"]).reshape(-1), lengths


def _is_of_numbers(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "iufb"


def of_lists(values: np.ndarray, lengths: npt.NDArray[np.int64], column: Column) -> np.ndarray:
    """The lists of a column: padded at their ends by 0 or "" and cut, where it says so, else as a ragged tensor needs.

    That is an array of objects, the array of each list; or one of lists, where all have one length and it need not be.
    """
    rows, stops = len(lengths), np.cumsum(lengths)
    if "pad" in column:
        size = column["pad"]
        places = np.arange(len(values)) - np.repeat(stops - lengths, lengths)
        array = np.zeros((rows, size), values.dtype)
        if values.dtype == object:
            array[:] = b""
        row_indices, fits = np.repeat(np.arange(rows), lengths), places < size
        array[row_indices[fits], places[fits]] = values[fits]
        return array
    if column["ragged"] == "if needed" and (lengths == lengths[:1]).all():
        return values.reshape(rows, lengths.max(initial=0))
    return array_of_arrays([values[stop - length : stop] for stop, length in zip(stops, lengths)])


def array_of_arrays(arrays: Sequence[np.ndarray]) -> np.ndarray:
    array = np.empty(len(arrays), object)
    for index, row in enumerate(arrays):
        array[index] = row
    return array


def ragged_bytes(array: np.ndarray) -> np.ndarray:
    """Rows of a ragged tensor as bytes objects: their numbers; or the lengths of their texts, int64, then these.

    array: of the array of each row, or (rows, length).
    """
    return text_array([_list_bytes(row) for row in array], [len(array)])


def _list_bytes(values: np.ndarray) -> bytes:
    if values.dtype != object:
        return values.tobytes()
    return np.array([len(values), *map(len, values)], np.int64).tobytes() + b"".join(values)


def ragged_parts(rows: Sequence[bytes], dtype: Any) -> tuple[np.ndarray, npt.NDArray[np.int64]]:
    """(values, the length of each row) of what `ragged_bytes` has made; dtype object for texts."""
    dtype = np.dtype(dtype)
    if dtype.kind != "O":
        lengths = np.array([len(row) // dtype.itemsize for row in rows], np.int64)
        return np.frombuffer(b"".join(rows), dtype), lengths
    texts: list[bytes] = []
    lengths = np.array([np.frombuffer(row, np.int64, 1)[0] for row in rows], np.int64)
    for row, length in zip(rows, lengths.tolist()):
        stops = 8 * (1 + length) + np.cumsum(np.frombuffer(row, np.int64, length, 8))
        texts += [row[start:stop] for start, stop in zip([8 * (1 + length), *stops.tolist()], stops.tolist())]
    return text_array(texts, [len(texts)]), lengths


def _as_bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8")
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise ValueError("it has text, and %r, which is a %s: make all values text" % (value, type(value).__name__))


def sparse_bytes(vector: Any) -> bytes:
    """A vector of Spark ML as bytes: its size, then the indices of its values, int64, and these, float64."""
    if hasattr(vector, "indices"):
        indices, values = np.asarray(vector.indices, np.int64), np.asarray(vector.values, np.float64)
    else:
        values = np.asarray(vector.toArray(), np.float64)
        indices = np.flatnonzero(values)
        values = values[indices]
    head = np.array([len(vector), *indices], np.int64)
    return bytes(head.tobytes() + values.tobytes())


def sparse_size(value: bytes) -> int:
    """The size of the vector that `sparse_bytes` has made bytes of."""
    return int(np.frombuffer(value, np.int64, 1)[0])


def sparse_arrays(vectors: Sequence[bytes], dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """(row and column of each value, int64 of shape (values, 2); the values) of what `sparse_bytes` has made."""
    numbers = [np.frombuffer(vector, np.int64, offset=8) for vector in vectors]
    counts = np.array([len(vector) // 2 for vector in numbers], np.int64)
    columns = [vector[: len(vector) // 2] for vector in numbers]
    values = [vector[len(vector) // 2 :].view(np.float64) for vector in numbers]
    rows = np.repeat(np.arange(len(vectors)), counts)
    if not len(rows):
        return np.zeros((0, 2), np.int64), np.zeros(0, dtype)
    return np.stack([rows, np.concatenate(columns)], axis=1), fitting(np.concatenate(values), np.dtype(dtype).str)


def check_present(values: Iterable[Any]) -> None:
    """ValueError where a value is missing."""
    if any(value is None for value in values):
        raise ValueError("it has empty values (null): fill them or drop their rows first")


def pad_hint(column: Column) -> str:
    """How to make lists of several lengths one tensor, where --pad takes them."""
    return ", as --pad %s=LENGTH does" % column["name"] if column["depth"] == 1 and not column["vector"] else ""


def one_length(values: Iterable[Any], hint: str = "") -> int:
    """The length that all values have; ValueError where they differ, which ends with the hint."""
    lengths = sorted(set(map(len, values)))
    if lengths in ([], [0]):
        raise ValueError("its arrays are empty: drop these rows, or leave it out of --features")
    if len(lengths) > 1:
        words = lengths[0], lengths[1], hint
        raise ValueError("its lengths differ (%d and %d): pad or cut them to one length%s" % words)
    return lengths[0]


def rows_per_blob(first_blob: bytes) -> int:
    """How many rows make a blob, from the blob of one row."""
    return max(1, min(BLOB_ROWS, BLOB_BYTES // max(1, len(first_blob))))


def column_arrays(values: Iterable[Any], columns: Sequence[Column], tensors: Sequence[Sequence[int]]) -> Arrays:
    """The tensors of some rows, as arrays.

    values: of each column, a sequence of the rows' values. tensors: of each, the indices of its columns; several make a
    matrix (rows, columns). ValueError, one line in words for the user, for a value that cannot be read.
    """
    arrays = []
    for column, content in zip(columns, values):
        try:
            arrays.append(as_array(content, column))
        except (ValueError, TypeError, OverflowError, AttributeError) as error:
            raise ValueError("column %r: %s" % (column["name"], str(error).splitlines()[0])) from None
    return [
        arrays[indices[0]] if len(indices) == 1 else np.stack([arrays[index] for index in indices], axis=1)
        for indices in tensors
    ]


def row_arrays(rows: Sequence[Sequence[Any]], columns: Sequence[Column], tensors: Sequence[Sequence[int]]) -> Arrays:
    """As `column_arrays`, for rows: a matrix of neighbouring columns of one dtype is made of the rows at once."""
    arrays = []
    for indices in tensors:
        start, count = indices[0], len(indices)
        column, dtypes = columns[start], {columns[index]["dtype"] for index in indices}
        array = None
        if count > 1 and len(dtypes) == 1 and list(indices) == list(range(start, start + count)):
            array = matrix_at_once(rows, slice(start, start + count), column["dtype"])
        elif count == 1 and not column["vector"] and not is_of_lists(column):
            if column["depth"] == 1:
                array = matrix_at_once(rows, start, column["dtype"])
            else:
                array = at_once([row[start] for row in rows], column["dtype"], column["depth"] + 1)
        if array is None:
            return column_arrays(list(zip(*rows)), columns, tensors)
        arrays.append(array)
    return arrays


def packed(
    arrays: Callable[[Any, Sequence[Column], Sequence[Sequence[int]]], Arrays],
    values: Any,
    columns: Sequence[Column],
    tensors: Sequence[Sequence[int]],
) -> tuple[PackReport, bytes]:
    """(report, blob) of what `arrays`, `column_arrays` or `row_arrays`, makes of `values`.

    A value that cannot be read is an error in the report and no exception, which would come out of Spark as a page of
    Java.
    """
    try:
        tensor_arrays = arrays(values, columns, tensors)
    except ValueError as error:
        return {**EMPTY_REPORT, "error": str(error)}, b""
    ragged = [array.ndim == 1 and "ragged" in columns[indices[0]] for array, indices in zip(tensor_arrays, tensors)]
    tensor_arrays = [ragged_bytes(array) if is_ragged else array for array, is_ragged in zip(tensor_arrays, ragged)]
    blob = encode({}, tensor_arrays)
    return report_of(tensor_arrays, columns, tensors, zlib.crc32(blob)), blob


def report_of(arrays: Arrays, columns: Sequence[Column], tensors: Sequence[Sequence[int]], checksum: int) -> PackReport:
    """The report of a blob of these tensors."""
    nan, inf, too_large = [], [], []
    rounded: dict[str, str] = {}
    dtypes = [array.dtype.str for array in arrays]
    for tensor, (array, indices) in enumerate(zip(arrays, tensors)):
        column = columns[indices[0]]
        if "ragged" in column and array.ndim == 1 and column["dtype"] != "S":
            array, dtypes[tensor] = ragged_parts(list(array), column["dtype"])[0], np.dtype(column["dtype"]).str
        rounded.update(rounding_floats(array, [columns[index] for index in indices]))
        if array.dtype.kind != "f" or not array.size:
            continue
        if abs(array.max()) <= MOST_FLOAT32 and abs(array.min()) <= MOST_FLOAT32:  # no NaN is
            continue
        values = [array] if len(indices) == 1 else list(array.T)
        for index, value in zip(indices, values):
            name, is_nan, is_inf = columns[index]["name"], np.isnan(value), np.isinf(value)
            nan += [name] if is_nan.any() else []
            inf += [name] if is_inf.any() else []
            too_large += [name] if (np.abs(value[~is_nan & ~is_inf]) > MOST_FLOAT32).any() else []
    return {
        **EMPTY_REPORT,
        "rows": len(arrays[0]),
        "checksum": checksum,
        "shapes": [
            [sparse_size(array[0])] if columns[indices[0]].get("sparse") else list(array.shape[1:])
            for array, indices in zip(arrays, tensors)
        ],
        "dtypes": dtypes,
        "text_bytes": [text_bytes(array, columns[indices[0]]) for array, indices in zip(arrays, tensors)],
        "nan": nan,
        "inf": inf,
        "rounded": rounded,
        "too_large": too_large,
    }


def text_bytes(array: np.ndarray, column: Column) -> int:
    """The bytes of a tensor's texts, and of its numbers where they may become rows of a ragged tensor."""
    if array.dtype == object:
        return int(text_lengths(array).sum())
    return array.nbytes if "ragged" in column else 0


def rounding_floats(array: np.ndarray, columns: Sequence[Column]) -> Iterator[tuple[str, str]]:
    """(column, the wider type of floats that rounds its whole numbers or decimals) of a tensor, where there is one.

    A column of whole numbers alone is none of floats. Nothing is computed for columns of floats, and little where all
    numbers are small.
    """
    in_matrix = len(columns) > 1
    exact = [(in_matrix and np.dtype(column["dtype"]).kind in "iu") or "scale" in column for column in columns]
    if not any(exact) or not array.size or (array.dtype.kind in "iu" and is_exact_in_float32(array)):
        return
    for position, column in enumerate(columns):
        values = array[:, position] if in_matrix else array
        dtype = rounding_float(values, column.get("scale", 0)) if exact[position] else None
        if dtype is not None:
            yield column["name"], dtype


def is_exact_in_float32(whole_numbers: np.ndarray) -> bool:
    return bool(whole_numbers.min() >= -(1 << 24) and whole_numbers.max() <= 1 << 24)


def rounding_float(values: np.ndarray, scale: int) -> str | None:
    """The wider of float32 and float64 that does not hold all digits of whole numbers or decimals, or None.

    scale: the most digits behind the point. Of float64, what has more digits than that holds has lost them already.
    """
    numbers = values.ravel()
    if scale == 0 and is_exact_in_float32(numbers):
        return None
    if numbers.dtype.kind in "iu":
        with np.errstate(invalid="ignore"):
            if (numbers.astype("f8").astype(numbers.dtype) != numbers).any():
                return "float64"
    doubles, is_rounded = numbers.astype("f8"), False
    singles = doubles.astype("f4").astype("f8")
    for digits in range(scale + 1):
        scaled, unit = doubles * 10.0**digits, 10.0**digits
        whole = np.rint(scaled)
        has_digits = np.abs(scaled - whole) <= np.abs(scaled) * 2.0**-51  # as many behind the point, and no more
        if numbers.dtype.kind == "f" and (np.abs(whole[has_digits]) >= 2.0**53).any():
            return "float64"
        is_rounded = is_rounded or bool((np.rint(singles[has_digits] * unit) != whole[has_digits]).any())
        doubles, singles = doubles[~has_digits], singles[~has_digits]
        if not len(doubles):
            break
    return "float32" if is_rounded else None


def merged(losses: Iterable[FloatLosses | PackReport]) -> FloatLosses:
    """The losses of all parts of the rows."""
    rounded: dict[str, str] = {}
    too_large: set[str] = set()
    for part in losses:
        too_large |= set(part["too_large"])
        for name, dtype in part["rounded"].items():
            rounded[name] = max(dtype, rounded.get(name, dtype))  # "float64" is the larger text
    return {"rounded": dict(sorted(rounded.items())), "too_large": sorted(too_large)}


def about_losses(data: str, losses: FloatLosses, floatx: str) -> list[str]:
    """The notice that floatx rounds numbers of some columns of --data, or none.

    ValueError, one line, where it makes one infinite.
    """
    wider = "call keras.backend.set_floatx('float64') in a cell before this one"
    if losses["too_large"] and floatx == "float32":
        column = losses["too_large"][0]
        raise ValueError("column %r: it has a number beyond 3.4e38, infinite as float32: %s" % (column, wider))
    rounded = {name: dtype for name, dtype in losses["rounded"].items() if floatx in ("float32", dtype)}
    if not rounded:
        return []
    remedies = [wider] if "float32" in rounded.values() else []
    in_both = ", ".join(repr(name) for name, dtype in rounded.items() if dtype == "float64")
    if in_both:
        remedies.append("make a text of %s, which float64 rounds as well, if all of its digits count" % in_both)
    words = data, floatx, ", ".join(map(repr, rounded)), "; ".join(remedies)
    return ["--data %s: %s rounds numbers of %s: %s" % words]


def holding(data: str, column: str, contents: str) -> str:
    """The notice that a column of --data has such values."""
    words = data, column, contents
    return "--data %s: column %r holds %s, and so will the loss: fill these rows, or leave them out" % words


def take(rows: Iterator[Sequence[Any]], limit: int, texts: Sequence[int]) -> list[Sequence[Any]]:
    """The next rows, at most so many, and not much more text than `BLOB_BYTES`. texts: the columns of text."""
    if not texts:
        return list(itertools.islice(rows, limit))
    block, size = [], 0
    for row in rows:
        block.append(row)
        size += sum(text_size(row[index]) for index in texts)
        if len(block) == limit or size >= BLOB_BYTES:
            break
    return block


def text_size(value: Any) -> int:
    """The length of a text, or of those in nested lists."""
    if isinstance(value, (list, tuple)):
        return sum(map(text_size, value))
    return 0 if value is None else len(value)


def add_series(report: PackReport, keys: Sequence[Sequence[Any]], order_by: str) -> None:
    """Add to a report which time series its rows belong to. keys: of each row, as `records.SeriesColumns` says.

    Values that are missing or that two rows of a series share are the report's error: they have no order.
    """
    segments: list[list[int]] = []
    before: tuple[Any, Any] | None = None
    for row in keys:
        group, order, early = tuple(row[:-2]), row[-2], row[-1]
        if any(value is None or value != value for value in (*group, order)):
            report["error"] = "column %r or --group-by: rows without a value have no order: drop them first" % order_by
            return
        if (group, order) == before:
            report["error"] = equal_rows(order_by, group)
            return
        if before is None or group != before[0]:
            segments.append([0, 0])
        segments[-1][0] += 1
        segments[-1][1] += bool(early)
        before = group, order
    assert before is not None
    report["series"] = {
        "first_key": (tuple(keys[0][:-2]), keys[0][-2]),
        "last_key": before,
        "segments": [(rows, early) for rows, early in segments],
    }


def equal_rows(order_by: str, group: Sequence[Any]) -> str:
    """What is wrong where two rows of a series have one place."""
    of = "of %s " % ", ".join(map(str, group)) if group else ""
    remedy = "keep one of them" + ("" if group else ", or name the column that tells series apart: --group-by COLUMN")
    return "column %r: two rows %shave the same value, and so no order: %s" % (order_by, of, remedy)


def pack(
    partition: int,
    rows: Iterable[Sequence[Any]],
    columns: Sequence[Column],
    tensors: Sequence[Sequence[int]],
    series: SeriesColumns | None = None,
) -> Iterator[Record]:
    """The records of a Spark partition with these `rows`; the first error is the last record.

    series: where the rows are sorted, and the values of a row are followed by those that `SeriesColumns` tells.
    """
    rows = iter(rows)
    first_row = list(itertools.islice(rows, 1))
    if not first_row:
        return
    _, blob = packed(row_arrays, first_row, columns, tensors)
    block_rows = rows_per_blob(blob)
    rows = itertools.chain(first_row, rows)
    texts = [index for index, column in enumerate(columns) if column["dtype"] == "S"]
    for chunk in itertools.count():
        block = take(rows, block_rows, texts)
        if not block:
            return
        report, blob = packed(row_arrays, block, columns, tensors)
        if series is not None and not report["error"]:
            add_series(report, [row[len(columns) :] for row in block], series["order_by"])
        yield partition, chunk, report, blob
        if report["error"]:
            return


def pack_batches(
    partition: int,
    batches: Iterable[Any],
    columns: Sequence[Column],
    tensors: Sequence[Sequence[int]],
    series: SeriesColumns | None = None,
) -> Iterator[Record]:
    """As `pack`, for the pyarrow.RecordBatches of a partition, whose columns hold numbers or arrays of them."""
    chunk, block_rows = 0, 0
    for batch in batches:
        if batch.num_rows and not block_rows:
            block_rows = rows_per_blob(pack_batch(batch.slice(0, 1), columns, tensors)[1])
        for start in range(0, batch.num_rows, block_rows or 1):
            block = batch.slice(start, block_rows)
            report, blob = pack_batch(block, columns, tensors)
            if series is not None and not report["error"]:
                keys = zip(*(values.to_pylist() for values in block.columns[len(columns) :]))
                add_series(report, list(keys), series["order_by"])
            yield partition, chunk, report, blob
            if report["error"]:
                return
            chunk += 1


def pack_batch(batch: Any, columns: Sequence[Column], tensors: Sequence[Sequence[int]]) -> tuple[PackReport, bytes]:
    """(report, blob) of a pyarrow.RecordBatch. What NumPy cannot take at once is packed as lists of Python."""
    return packed(column_arrays, batch_values(batch.columns, columns), columns, tensors)


def batch_values(arrays: Iterable[Any], columns: Sequence[Column]) -> list[Any]:
    """Of each column, its pyarrow.Array as a NumPy array, or as a list where NumPy cannot take it at once."""
    converted = [(values, arrow_array(values, column)) for values, column in zip(arrays, columns)]
    return [values.to_pylist() if array is None else array for values, array in converted]


def arrow_array(values: Any, column: Column) -> np.ndarray | None:
    """The array of a pyarrow.Array, or None where values are missing, or arrays of several lengths.

    Its dtype is that of its values, but for decimals: `as_array` makes it the column's.
    """
    shape = [len(values)]
    for _ in range(column["depth"]):
        if values.null_count or not len(values):
            return None
        if hasattr(values, "offsets"):
            lengths = np.diff(numbers_of_arrow(values.offsets, column))
            if "pad" in column or "ragged" in column:
                return lists_of_arrow(values.flatten(), lengths.astype(np.int64), column)
            if not lengths[0] or (lengths != lengths[0]).any():
                return None
            shape.append(int(lengths[0]))
        elif is_of_lists(column):
            return lists_of_arrow(values.flatten(), np.full(len(values), values.type.list_size), column)
        else:
            shape.append(values.type.list_size)
        values = values.flatten()
    if values.null_count:
        return None
    return numbers_of_arrow(values, column).reshape(shape)


def numbers_of_arrow(values: Any, column: Column) -> np.ndarray:
    """The numbers of a pyarrow.Array without missing values; Arrow has decimals as objects.

    `to_numpy` imports pandas, with which a process that reads Parquet takes twice as long to start.
    """
    dtype = np.dtype(values.type.to_pandas_dtype())
    if dtype.kind in "iuf" and len(values):
        return np.frombuffer(values.buffers()[1], dtype, len(values), values.offset * dtype.itemsize)
    array: np.ndarray = values.to_numpy(zero_copy_only=False)
    return array.astype(_widest(column["dtype"])) if array.dtype == object else array


def lists_of_arrow(values: Any, lengths: npt.NDArray[np.int64], column: Column) -> np.ndarray | None:
    """`of_lists`, of a pyarrow.Array of all their values; None where some are missing."""
    if values.null_count:
        return None
    return of_lists(numbers_of_arrow(values, column), lengths, column)


def held_out_count(rows: int, fraction: float) -> int:
    """How many of the first `rows` rows are held out for validation."""
    return int(fraction * rows + 0.5)


def held_out_mask(start: int, stop: int, order: DealOrder) -> tuple[npt.NDArray[np.bool_], int]:
    """Which of the rows start..stop-1 are held out: (mask of stop - start elements, rows held out before `start`).

    Within each block of `BLOCK_ROWS` rows they are drawn from (seed, block), as many as bring the total nearest to the
    fraction.
    """
    fraction = order["fraction"]
    block = start // BLOCK_ROWS
    first_block = block * BLOCK_ROWS
    pieces = []
    while block * BLOCK_ROWS < stop:
        low, high = block * BLOCK_ROWS, min((block + 1) * BLOCK_ROWS, order["rows"])
        piece = np.zeros(high - low, np.bool_)
        draw = np.random.default_rng([order["seed"], block]).permutation(high - low)
        piece[draw[: held_out_count(high, fraction) - held_out_count(low, fraction)]] = True
        pieces.append(piece)
        block += 1
    mask = np.concatenate(pieces)
    before = held_out_count(first_block, fraction) + int(mask[: start - first_block].sum())
    return mask[start - first_block : stop - first_block], before


def positions_in_set(name: SetName, start: int, stop: int, rows: int, seed: int) -> npt.NDArray[np.int64]:
    """The positions of the rows start..stop-1 in their set of `rows` rows: shuffled for training, else their order."""
    return shuffled(start, stop, rows, seed) if name == "train" else np.arange(start, stop)


def rows_of_rank(
    positions: npt.NDArray[np.int64], rank: int, size: int, replicated: bool
) -> tuple[Any, npt.NDArray[np.int64]]:
    """(an index of the rows at `positions` that a rank has, their positions in its share).

    replicated: the rank has all rows.
    """
    if replicated:
        return slice(None), positions  # which copies nothing
    indices = np.flatnonzero(positions % size == rank)
    return indices, positions[indices] // size


def shuffled(start: int, stop: int, rows: int, seed: int) -> npt.NDArray[np.int64]:
    """The positions of the rows start..stop-1 in a set of `rows` rows, shuffled within blocks of `SHUFFLE_ROWS`."""
    positions = []
    for block in range(start // SHUFFLE_ROWS, -(-stop // SHUFFLE_ROWS)):
        block_start = block * SHUFFLE_ROWS
        draw = np.random.default_rng([seed, _SHUFFLE_DRAW, block]).permutation(min(SHUFFLE_ROWS, rows - block_start))
        positions.append(block_start + draw[max(start - block_start, 0) : stop - block_start])
    return np.concatenate(positions)


def deal(records: Iterable[Record], order: DealOrder) -> Iterator[tuple[int, bytes]]:
    """(rank, blob) for packed `records`: the row at position p of a set goes to rank p % size, as row p // size.

    The positions are those of `positions_in_set`. The header of a blob has its "set"; its first array has the index of
    each row in the rank's share, and those of the tensors follow. RuntimeError if the rows are not those that were
    packed.
    """
    for partition, chunk, _, blob in records:
        _, arrays = decode(blob)
        arrays = [
            (ragged_bytes(array) if array.ndim > 1 else array) if is_ragged else array.astype(dtype, copy=False)
            for array, dtype, is_ragged in zip(arrays, order["dtypes"], order["ragged"])
        ]
        if order["checksums"].get(partition, [])[chunk : chunk + 1] != [zlib.crc32(blob)]:
            raise RuntimeError(
                "the rows of --data have changed between two passes over them: cache() the DataFrame, or write it out"
            )
        start = order["starts"][partition][chunk]
        if order.get("stretches") is not None:
            yield from deal_stretches(arrays, start, order)
            continue
        for name, set_arrays, set_start, total, replicated in split(arrays, start, order):
            set_stop = set_start + len(set_arrays[0])
            if set_start == set_stop:
                continue
            positions = positions_in_set(name, set_start, set_stop, total, order["seed"])
            for rank in order["ranks"]:
                yield from cut(name, set_arrays, positions, rank, order["size"], replicated)


def split(arrays: Arrays, start: int, order: DealOrder) -> list[tuple[SetName, Arrays, int, int, bool]]:
    """(set, arrays, index of their first row in it, rows of the set, whether every rank gets all) for some rows.

    arrays: rows start, start + 1, ... of what was packed, which may be cut into training and validation.
    """
    if not order["fraction"]:
        return [(order["set"], arrays, start, order["rows"], order["replicated"] and order["set"] == "validation")]
    mask, before = held_out_mask(start, start + len(arrays[0]), order)
    held_out = held_out_count(order["rows"], order["fraction"])
    return [
        ("train", [array[~mask] for array in arrays], start - before, order["rows"] - held_out, False),
        ("validation", [array[mask] for array in arrays], before, held_out, order["replicated"]),
    ]


def cut(
    name: SetName, arrays: Arrays, positions: npt.NDArray[np.int64], rank: int, size: int, replicated: bool
) -> Iterator[tuple[int, bytes]]:
    """(rank, blob) with the rank's rows among `arrays`, if there are any.

    arrays: rows at these positions of the set. replicated: all of them are the rank's.
    """
    indices, rows = rows_of_rank(positions, rank, size, replicated)
    if len(rows):
        index = rows.astype(np.uint32 if rows.max() < 1 << 32 else np.int64)
        yield rank, encode({"set": name}, [index] + [array[indices] for array in arrays])


def deal_stretches(arrays: Arrays, start: int, order: DealOrder) -> Iterator[tuple[int, bytes]]:
    """As `deal`, for the stretches of rows that the ranks' windows need. arrays: rows start, start + 1, ..."""
    stop = start + len(arrays[0])
    assert order["stretches"] is not None
    for name, stretches in order["stretches"].items():
        low = np.searchsorted(stretches[:, 1], start, "right")
        high = np.searchsorted(stretches[:, 0], stop, "left")
        by_rank: dict[int, list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]] = {}
        for begin, stretch_stop, rank, position in stretches[low:high].tolist():
            rows = np.arange(max(begin, start), min(stretch_stop, stop))
            by_rank.setdefault(rank, []).append((rows - start, rows - begin + position))
        for rank, pieces in by_rank.items():
            indices, positions = (np.concatenate(rows) for rows in zip(*pieces))
            blob = encode({"set": name}, [positions] + [array[indices] for array in arrays])
            for receiver in range(order["size"]) if name == "validation" and order["replicated"] else [rank]:
                if receiver in order["ranks"]:
                    yield receiver, blob


def identity(value: int) -> int:
    """The partitioner of (rank, blob): the rank is the partition."""
    return value
