"""The JSON that describes data on its way: a column, how columns become tensors, and what each rank gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, Literal, TypedDict, Union

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

#: Of Spark or pandas, neither of which need be installed here.
DataFrame = Any

#: The name of a set of rows.
SetName = Literal["train", "validation"]

#: How tensors make the features, or the label, of an element: one tensor's index, or {name: index}.
Features = Union[int, Dict[str, int]]

#: The use of a ragged tensor begins with this, and ends with that of its values.
RAGGED = "ragged "


class _AsChosen(TypedDict, total=False):
    sparse: bool
    scale: int
    pad: int
    ragged: Literal["if needed", "always"]


class Column(_AsChosen):
    """How a column is read.

    dtype: numpy's code of the values, "S" for text or binary of any length. depth: levels of lists around them.
    vector: whether the values are vectors of Spark ML. sparse: whether these stay sparse (--sparse). scale: the digits
    of decimals behind the point. pad: the length to which lists are padded or cut (--pad). ragged: when lists make a
    ragged tensor, "if needed" is where their lengths differ.
    """

    name: str
    dtype: str
    depth: int
    vector: bool


class Arrangement(TypedDict):
    """How columns become tensors, and tensors the elements of a dataset.

    tensors: of each, the indices of its columns; several make a matrix, in their order. weight: the tensor's index.
    """

    tensors: list[list[int]]
    features: Features
    label: Features | None
    weight: int | None


class _LabelledWindows(TypedDict, total=False):
    horizon: int
    stride: int


class Windows(_LabelledWindows):
    """The windows of a run with --sequence-length: so many rows of a series, in its order.

    horizon: the label is that of so many rows after the window. stride: between the first rows of two windows. Both are
    1 where an older version has left them out.
    """

    length: int
    order_by: str
    group_by: list[str]


class _Windowed(TypedDict, total=False):
    window: Windows
    transform: Callable[[Any], Any]
    padding: Dict[str, int]


class Inputs(_Windowed):
    """How columns become a model's inputs. window: where these are windows of rows, for `scoring`. transform: what is
    called with the features of a batch there, for --transform.

    tensors: of each, the indices of its columns. uses: of each, as in `TensorLayout`, but for "sparse". shapes: of
    each, that of one row; None where it is not known yet. padding: of --pad, also for the label's column.
    """

    columns: list[Column]
    tensors: list[list[int]]
    uses: list[str]
    shapes: list[list[int]] | None
    features: Features


class SeriesKeys(TypedDict):
    """Which time series the sorted rows of a blob belong to.

    first_key, last_key: (group, value of --order-by) of the first and the last row. segments: of each group in turn,
    its rows and how many of them are before the date of --validation.
    """

    first_key: tuple[Any, Any]
    last_key: tuple[Any, Any]
    segments: list[tuple[int, int]]


class SeriesColumns(TypedDict):
    """What follows the values in a sorted row: so many columns of --group-by, that of --order-by, and whether the row
    is before the date of --validation."""

    groups: int
    order_by: str


class PackReport(TypedDict):
    """What the driver must know of a blob. error: one line, and the other fields are empty then. checksum: CRC-32.

    shapes, dtypes, text_bytes: of each tensor, the shape without the rows, and the bytes of all its texts or ragged
    rows. nan, inf: names of the columns that hold such values. rounded, too_large: as `FloatLosses`. series: of rows
    that are sorted, for --sequence-length.
    """

    error: str | None
    rows: int
    checksum: int
    shapes: list[list[int]]
    dtypes: list[str]
    text_bytes: list[int]
    nan: list[str]
    inf: list[str]
    rounded: dict[str, str]
    too_large: list[str]
    series: SeriesKeys | None


class FloatLosses(TypedDict):
    """What Keras' floatx may lose of the columns.

    rounded: of columns with whole numbers or decimals, the widest of float32 and float64 that does not hold all digits.
    too_large: names of columns with a number that is infinite as float32.
    """

    rounded: dict[str, str]
    too_large: list[str]


class DealOrder(TypedDict):
    """How the rows of a set are dealt to `size` ranks, or to those `ranks` of them that have none yet.

    fraction: of its `rows` that are held out for validation, drawn from `seed`. starts, checksums: by partition, the
    index of the first row of each chunk and the CRC-32 of its blob. dtypes: of each tensor; ragged: whether it is.
    replicated: every rank gets all of the validation rows. stretches: for --sequence-length, of each set, an int64
    array as in `sequences.Layout`.
    """

    set: SetName
    size: int
    seed: int
    fraction: float
    rows: int
    starts: dict[int, list[int]]
    checksums: dict[int, list[int]]
    ranks: list[int]
    dtypes: list[str]
    ragged: list[bool]
    replicated: bool
    stretches: dict[SetName, npt.NDArray[np.int64]] | None


class TensorLayout(TypedDict):
    """shape: of one row; [] of a ragged tensor. dtype: as dealt, numpy's. use: in the dataset: a dtype, "string",
    "floatx" for Keras', "sparse" for a sparse tensor of that, or "ragged " and one of these for a ragged tensor.

    text_bytes: of a row's texts, or of what is stored of its sparse or ragged values, on average.
    """

    name: str
    shape: list[int]
    dtype: str
    use: str
    text_bytes: int


class Sequences(TypedDict):
    """Windows over the rows of time series: an element has so many rows as features, and the label of the row `horizon`
    rows after the last of them. The first rows of two windows are `stride` rows apart.

    stored: of each set and rank, the rows that the rank stores. Windows overlap, and so do the rows of ranks.
    """

    length: int
    horizon: int
    stride: int
    stored: dict[SetName, list[int]]


class Condition(TypedDict):
    """A comparison of --where. sign: of Python. value: a number of the column's kind, or a text."""

    column: str
    sign: str
    value: int | float | str


class FileRows(TypedDict):
    """A file of --data. number: its place in their order. stamp: its size and the time of its last change, to see that
    it stays the same. rows: those that are used of each row group; of a TFRecord file, of all of it.
    """

    number: int
    uri: str
    stamp: list[int]
    rows: list[int]


class FileIndex(TypedDict):
    """How ranks read their rows from files themselves. tensors: as in `Arrangement`. order: without starts and counts,
    as the rows of the files are numbered from 0 in their order.
    """

    format: Literal["parquet", "tfrecord"]
    files: list[FileRows]
    columns: list[Column]
    tensors: list[list[int]]
    conditions: list[Condition]
    order: DealOrder


class Manifest(TypedDict):
    """The data of a run, for every rank.

    data: the DataFrame's name. size: ranks it was dealt to. rows, validation_rows: of all ranks together.
    validation_whole: every rank has all of the validation rows. sequences: where the elements are windows, which "rows"
    and "validation_rows" count then. files: where the ranks read them, and nothing was dealt. floatx: of the session or
    of the cell; None is that of the rank's process.
    """

    data: str
    size: int
    rows: int
    validation_rows: int
    validation_whole: bool
    tensors: list[TensorLayout]
    features: Features
    label: Features | None
    weight: int | None
    sequences: Sequences | None
    files: FileIndex | None
    floatx: str | None


class _Losses(TypedDict, total=False):
    losses: FloatLosses


class FeedRecord(_Losses):
    """What the driver tells of data that is dealt, as `feed.Feed` has it. An older cache has no losses."""

    manifest: Manifest
    inputs: Inputs
    notices: list[str]


class CacheUse(TypedDict):
    """The cache of --data in a run.

    key: `cache_key.of_plan`. digest: of the packed rows in their order. folder, max_bytes: as `CacheOption`.
    data: the DataFrame's name. feed: for later runs. dealt: the ranks that are sent their rows; others must have theirs
    in the cache.
    """

    key: str
    digest: str
    folder: str | None
    max_bytes: int | None
    data: str
    feed: FeedRecord
    dealt: list[int]


def is_ragged(use: str) -> bool:
    """Of a tensor's use in `TensorLayout`."""
    return use.startswith(RAGGED)
