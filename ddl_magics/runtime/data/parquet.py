"""Parquet files, read with pyarrow: by an executor for their index, and by a rank for its rows.

Travels to executors by value (`by_value.py`), and needs numpy and pyarrow, which may be missing there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Iterator, List, Mapping, Sequence, Tuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from .records import Column, Condition, FileRows

#: Of pyarrow, which need not be installed here: a ParquetFile, a RecordBatch, an array, a type.
ParquetFile = Any
Batch = Any
Array = Any
Type = Any
#: `file_systems.located`.
Locate = Callable[[str], Tuple[Any, str, List[int]]]

#: Of the columns that are used, so much is in memory at once: rows at most, and bytes as the file has them.
BATCH_ROWS = 1 << 16
BATCH_BYTES = 16 << 20
#: What pyarrow may call a type of values that are kept as numpy's dtype; "S" is text or binary.
FITTING = {
    "i1": ("int8",),
    "i2": ("int16", "uint8"),
    "i4": ("int32", "uint16"),
    "i8": ("int64", "uint32"),
    "f4": ("float",),
    "f8": ("double",),
    "?": ("bool",),
    "S": ("string", "binary", "large_string", "large_binary"),
}


def opened(uri: str, located: Locate) -> tuple[ParquetFile, list[int]]:
    """(the file, its size and the time of its last change)."""
    import pyarrow.parquet

    system, path, stamp = located(uri)
    return pyarrow.parquet.ParquetFile(path if system is None else system.open_input_file(path)), stamp


def index(
    files: Sequence[tuple[int, str]],
    columns: Sequence[Column],
    conditions: Sequence[Condition],
    located: Locate,
) -> dict[str, Any]:
    """What must be known of some files before their rows are read: {"problem"}, or {"files", "shapes", "text_bytes"}.

    files: (number, URI) of each. problem: why this process cannot read them as Spark does, in a few words. shapes: of a
    row of each column, from the first file with rows, and its number; None without any. text_bytes: of each column, the
    bytes of all its texts. Only columns of text and of conditions are read, without them nothing but the files' ends.
    """
    try:
        import pyarrow

        version = tuple(map(int, pyarrow.__version__.split(".")[:2]))
    except ImportError:
        return {"problem": "the executors' Python has no pyarrow"}
    if version < (6, 0):
        return {"problem": "the executors' pyarrow is %s, and 6 is needed" % pyarrow.__version__}
    indexed_files: list[FileRows] = []
    shapes: tuple[int, list[list[int]]] | None = None
    text_bytes = [0] * len(columns)
    texts = [number for number, column in enumerate(columns) if column["dtype"] == "S"]
    ragged: str | None = None
    for number, uri in files:
        try:
            file, stamp = opened(uri, located)
            unfit = unfitting(file.schema_arrow, columns, conditions)
            if unfit:
                return {"problem": unfit}
            groups = []
            for group in range(file.metadata.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                if texts or conditions:
                    rows = 0
                    for batch in batches(file, group, [columns[index] for index in texts], conditions):
                        rows += batch.num_rows
                        for index in texts:
                            text_bytes[index] += bytes_of_text(batch, columns[index]["name"])
                groups.append(rows)
            if shapes is None and any(groups):
                first_batch = next(batches(file, next(g for g, rows in enumerate(groups) if rows), columns, conditions))
                ragged = ragged_column(first_batch, columns)
                if ragged is None:
                    first_values = [batch_column(first_batch, column["name"])[:1] for column in columns]
                    shapes = number, [shape(value, column) for value, column in zip(first_values, columns)]
            if shapes is not None:
                ragged = ragged_in_metadata(file.metadata, columns, shapes[1])
            if ragged:
                return {"problem": "column %r has lists of several lengths" % ragged}
        except Exception as error:  # of a file system, of pyarrow, or of a file that it does not know
            lines = str(error).splitlines()
            return {"problem": "the executors cannot read %s (%s)" % (uri, lines[0] if lines else type(error).__name__)}
        indexed_files.append({"number": number, "uri": uri, "stamp": stamp, "rows": groups})
    return {"files": indexed_files, "shapes": shapes, "text_bytes": text_bytes}


def ragged_column(batch: Batch, columns: Sequence[Column]) -> str | None:
    """A column that may be ragged, and whose lists in a batch are of several lengths."""
    for column in columns:
        array = batch_column(batch, column["name"])
        if "ragged" in column and hasattr(array, "offsets") and len(set(np.diff(array.offsets.to_numpy()))) > 1:
            return column["name"]
    return None


def ragged_in_metadata(metadata: Any, columns: Sequence[Column], shapes: Sequence[Sequence[int]]) -> str | None:
    """A column that may be ragged, and of which a row group has more or fewer values than lists of one length have."""
    lengths = {column["name"]: shape[0] for column, shape in zip(columns, shapes) if "ragged" in column}
    if not lengths:
        return None
    names: set[str] = set(metadata.schema.to_arrow_schema().names)
    chunks: list[tuple[int, str]] = []
    for number in range(metadata.num_columns):
        path = metadata.schema.column(number).path  # such as NAME.list.element, where NAME may have dots, too
        starts = (path[:end] for end in range(len(path), 0, -1) if path[end : end + 1] in (".", ""))
        name = next(start for start in starts if start in names)
        if name in lengths:
            chunks.append((number, name))
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for number, name in chunks:
            if row_group.column(number).num_values != row_group.num_rows * lengths[name]:
                return name
    return None


def unfitting(schema: Any, columns: Sequence[Column], conditions: Sequence[Condition]) -> str | None:
    """Why a file with this schema is not read here as Spark reads it, or None."""
    types = {field.name: field.type for field in schema}
    if len(types) < len(schema):
        return "two columns of a file have one name"
    for column in columns:
        if column["name"] not in types:
            return "column %r is not in every file, or is the name of folders" % column["name"]
        problem = unfitting_type(types[column["name"]], column)
        if problem:
            return "column %r is of type %s" % (column["name"], types[column["name"]])
    for condition in conditions:
        kind = str(types.get(condition["column"]))
        integers = ("int8", "int16", "int32", "int64")
        fits = {str: ("string", "large_string"), int: integers, float: ("float", "double")}[type(condition["value"])]
        if kind not in fits:
            return "column %r of --where is of type %s" % (condition["column"], kind)
    return None


def unfitting_type(kind: Type, column: Column) -> bool:
    """Whether a column of pyarrow's type `kind` is not what Spark's description of the column says."""
    import pyarrow

    if column["vector"]:
        return [field.name for field in kind] != ["type", "size", "indices", "values"] if is_struct(kind) else True
    for _ in range(column["depth"]):
        if not is_list(kind):
            return True
        kind = kind.value_type
    if pyarrow.types.is_dictionary(kind) and not column["depth"]:
        kind = kind.value_type
    return str(kind) not in FITTING[column["dtype"]]


def is_list(kind: Type) -> bool:
    import pyarrow

    types = pyarrow.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def is_struct(kind: Type) -> bool:
    import pyarrow

    return bool(pyarrow.types.is_struct(kind))


def batches(
    file: ParquetFile, group: int, columns: Sequence[Column], conditions: Sequence[Condition]
) -> Iterator[Batch]:
    """The rows of a row group that fulfil the conditions, in their order, some thousand at a time."""
    names = [column["name"] for column in columns] + [condition["column"] for condition in conditions]
    group_metadata = file.metadata.row_group(group)
    row_bytes = max(1, group_metadata.total_byte_size // max(1, group_metadata.num_rows))
    size = max(1, min(BATCH_ROWS, BATCH_BYTES // row_bytes))
    for batch in file.iter_batches(size, [group], sorted(set(names))):
        if conditions:
            import pyarrow

            batch = batch.filter(pyarrow.array(fulfilled(batch, conditions)))
        if batch.num_rows:
            yield batch


def batch_column(batch: Batch, name: str) -> Array:
    """A column of a batch, as plain values where the file has a dictionary of them."""
    array = batch.column(batch.schema.get_field_index(name))
    return array.dictionary_decode() if hasattr(array, "dictionary_decode") else array


def fulfilled(batch: Batch, conditions: Sequence[Condition]) -> npt.NDArray[np.bool_]:
    """Which rows fulfil all conditions, as Spark has it: missing values none, and NaN is larger than all numbers."""
    result = np.ones(batch.num_rows, np.bool_)
    for condition in conditions:
        array, sign, value = batch_column(batch, condition["column"]), condition["sign"], condition["value"]
        present = ~array.is_null().to_numpy(zero_copy_only=False)
        if isinstance(value, str):
            equal = array.to_numpy(zero_copy_only=False) == value
            result &= present & (equal if sign == "==" else ~equal)
            continue
        array = array.fill_null(0).to_numpy(zero_copy_only=False)
        values = array.astype(np.float64 if isinstance(value, float) else np.int64)
        compared = {
            "==": np.equal,
            "!=": np.not_equal,
            "<": np.less,
            "<=": np.less_equal,
            ">": np.greater,
            ">=": np.greater_equal,
        }[sign](values, value)
        if sign in (">", ">="):
            compared |= values != values
        result &= present & compared
    return result


def bytes_of_text(batch: Batch, name: str) -> int:
    """The bytes of all texts of a column, at whatever depth."""
    import pyarrow.compute

    array = batch_column(batch, name)
    while is_list(array.type):
        array = array.flatten()
    total = pyarrow.compute.sum(pyarrow.compute.binary_length(array.cast(binary_type(array)))).as_py()
    return int(total or 0)


def binary_type(texts: Array) -> Type:
    """The type of the bytes of texts."""
    import pyarrow

    return pyarrow.large_binary() if str(texts.type).startswith("large") else pyarrow.binary()


def shape(first_value: Array, column: Column) -> list[int]:
    """The shape of the one value in an array. ValueError where it has none."""
    value = first_value.to_pylist()[0]
    if column["vector"]:
        return [dense(value).size]
    if "pad" in column:
        return [column["pad"]]
    lengths = []
    for _ in range(column["depth"]):
        if value is None:
            raise ValueError("the first row has no value in column %r" % column["name"])
        lengths.append(len(value))
        if not value:
            raise ValueError("the first row has an empty array in column %r" % column["name"])
        value = value[0]
    return lengths


def dense(value: Mapping[str, Any]) -> npt.NDArray[np.float64]:
    """A vector of Spark ML as it is stored: type 0 is sparse, and has indices; 1 is dense."""
    if value["type"]:
        return np.array(value["values"], np.float64)
    array = np.zeros(value["size"])
    array[value["indices"]] = value["values"]
    return array


def rows(
    file: FileRows, columns: Sequence[Column], conditions: Sequence[Condition], located: Locate
) -> Iterator[Tuple[int, Batch]]:
    """(number of its first row in the file, batch) of the rows of an indexed file. ValueError where it has changed."""
    changed = "%s has changed since the run began, or is another one on this host" % file["uri"]
    opened_file, stamp = opened(file["uri"], located)
    if stamp != file["stamp"]:
        raise ValueError(changed)
    start = 0
    for group, expected in enumerate(file["rows"]):
        stop = start + expected
        for batch in batches(opened_file, group, columns, conditions) if expected else ():
            yield start, batch
            start += batch.num_rows
        if start != stop:
            raise ValueError(changed)
    if located(file["uri"])[2] != stamp:
        raise ValueError(changed)
