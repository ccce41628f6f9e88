"""A rank's share as a tf.data.Dataset whose batches TensorFlow gathers itself, out of memory-mapped files.

Python is called once an iteration and once a window (row_order.py), to draw the order of some million rows. Only text
is gathered by Python, a call a group, as TensorFlow has no operation that makes strings of bytes in memory.

Batches of equal size are gathered as a group and then taken apart: calling a function for each batch costs tf.data more
than the rows of a small one.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import mmap
import os
import threading
from typing import TYPE_CHECKING, Any, Callable, List, Optional, Sequence, Tuple, Union

import numpy as np

from ..keras_types import Dataset, TensorFlow
from . import packing
from .records import RAGGED, is_ragged
from .roles import indices
from .row_order import Piece, RowOrder
from .share_files import is_text, stored_shape

if TYPE_CHECKING:
    import numpy.typing as npt

    from .records import Features, Manifest, Sequences, TensorLayout

#: Batches that are gathered ahead of the training, and groups of them where batches are small.
PREFETCH_BATCHES, PREFETCH_GROUPS = 4, 2
#: Bounds of a group of batches. One that leaves the processor's cache costs more than the calls that it saves.
GROUP_BYTES, GROUP_STEPS = 512 << 10, 256
#: Of the memory of TensorFlow's tensors, at most.
ALIGNMENT_BYTES = 64

#: A tensor, or what stands for one.
Element = Any
#: Makes one tensor of a batch from the indices of its rows.
Gather = Callable[[Element], Element]
Bytes = Union[bytes, mmap.mmap]


class StoredShare:
    """A rank's rows of one set in .npy files, one a tensor, and how they become a dataset's elements.

    element_bytes: at most so many of a row, or window, of an element, without the bytes of text. has_values: whether
    every tensor has a value in each row; arrays and lists may be empty, and sparse vectors zero.
    """

    def __init__(self, tf: TensorFlow, paths: Sequence[Tuple[str, str]], manifest: Manifest, starts: str) -> None:
        """paths: of each tensor's files, the second for text. One that is missing stands for a share of no row. starts:
        the file of `share_files.starts_path`, for windows.
        """
        self._roles: List[Features] = [manifest["features"]]
        self._roles += [features for features in (manifest["label"], manifest.get("weight")) if features is not None]
        self._targets = {index for features in self._roles[1:] for index in indices(features)}
        self.arrays = [_map(path, tensor) for (path, _), tensor in zip(paths, manifest["tensors"])]
        self._of_bytes = [is_text(tensor) for tensor in manifest["tensors"]]
        self._texts: List[Bytes] = [
            _map_text(path) if is_text(tensor) else b"" for (_, path), tensor in zip(paths, manifest["tensors"])
        ]
        sequences = manifest.get("sequences")
        self._windows = None if sequences is None else _Windows(tf, starts, sequences)
        self._gathers: List[Gather] = []
        for array, text, tensor in zip(self.arrays, self._texts, manifest["tensors"]):
            of_bytes = {"string": _gather_text, "sparse": _gather_sparse, "ragged": _gather_ragged}.get(
                tensor["use"].split(" ")[0]
            )
            self._gathers.append(_gather(tf, array, tensor) if of_bytes is None else of_bytes(tf, array, text, tensor))
        window_rows = 1 if sequences is None else sequences["length"]
        self.element_bytes = window_rows * sum(array.nbytes // max(1, len(array)) for array in self.arrays)
        self.has_values = not any(
            0 in t["shape"] or t["use"] == "sparse" or is_ragged(t["use"]) for t in manifest["tensors"]
        )

    def element(self, rows: Element) -> Element:
        """The element with the rows, or windows, of these indices, an integer tensor of any number of axes."""
        feature_rows, target = (rows, rows) if self._windows is None else self._windows.rows(rows)
        tensors = [
            gather(target if index in self._targets else feature_rows) for index, gather in enumerate(self._gathers)
        ]
        elements = [
            tensors[features]
            if isinstance(features, int)
            else {name: tensors[index] for name, index in features.items()}
            for features in self._roles
        ]
        return tuple(elements) if len(elements) > 1 else elements[0]

    def stored(self, start: int, stop: int) -> List[np.ndarray]:
        """These stored rows of each tensor, as `packing.encode` takes them."""
        pieces = zip(self.arrays, self._texts, self._of_bytes)
        return [
            _texts(array[start:stop], content) if of_bytes else array[start:stop] for array, content, of_bytes in pieces
        ]

    def block_stop(self, start: int, block_bytes: int) -> int:
        """Behind the last of the stored rows from `start` on that have so many bytes together, or of one row."""
        row_bytes = sum(array.nbytes // len(array) for array in self.arrays)
        stop = min(start + max(1, block_bytes // max(1, row_bytes)), len(self.arrays[0]))
        for spans in itertools.compress(self.arrays, self._of_bytes):
            text_bytes = spans[start:stop, ..., 1].reshape(stop - start, -1).sum(axis=1)
            stop = start + max(1, int(np.searchsorted(np.cumsum(text_bytes), block_bytes)))
        return stop

    @property
    def window_starts(self) -> npt.NDArray[np.int64]:
        """With which of the stored rows each window begins."""
        assert self._windows is not None
        return self._windows.starts

    def read_in_pieces(self) -> None:
        """From now on, `read_ahead` says what is read. Where a page is missing, the kernel would read its neighbours,
        too, on some machines megabytes, which the rows of a shuffled window never ask for before they are evicted.
        """
        for mapped in [getattr(array, "_mmap", None) for array in self.arrays] + self._texts:
            if mapped is not None and hasattr(mapped, "madvise"):  # Python 3.8 has it
                mapped.madvise(mmap.MADV_RANDOM)

    def read_ahead(self, pieces: Sequence[Piece], classes: int) -> None:
        """Have the disk read these elements, in their order, into the page cache. It waits while the disk is busy.

        classes: of the rank.
        """
        if self._windows is not None:
            pieces = [rows for piece in pieces for rows in self._windows.spans(piece, classes)]
        for array in self.arrays:
            if not isinstance(array, np.memmap) or array.filename is None:
                continue
            row_bytes = array.nbytes // len(array)
            with contextlib.suppress(OSError), open(array.filename, "rb") as file:  # a run that ends removes it
                for start, stop in pieces:
                    offset, length = array.offset + start * row_bytes, (stop - start) * row_bytes
                    os.posix_fadvise(file.fileno(), offset, length, os.POSIX_FADV_WILLNEED)


class _Windows:
    """The windows of a rank's share."""

    def __init__(self, tf: TensorFlow, path: str, sequences: Sequences) -> None:
        """path: of the file with the first row of each. One that is missing stands for a share of no window."""
        self._tf, self._length = tf, sequences["length"]
        self._span = sequences["length"] + sequences["horizon"]
        self.starts = (
            np.load(path, mmap_mode="r+", allow_pickle=False) if os.path.exists(path) else np.empty(0, np.int64)
        )
        self._first_rows = _as_tensor(tf, self.starts)

    def rows(self, windows: Element) -> Tuple[Element, Element]:
        """(rows of the features, (..., length); row of the label and the weight, (...)), int64; windows: (...)."""
        first_rows = self._tf.gather(self._first_rows, windows)
        return first_rows[..., None] + self._tf.range(self._length, dtype=np.int64), first_rows + (self._span - 1)

    def spans(self, piece: Piece, classes: int) -> List[Piece]:
        """The stored rows of consecutive windows: of each class, they are consecutive, too."""
        spans = []
        for start in range(piece[0], min(piece[0] + classes, piece[1])):
            last_start = start + (piece[1] - 1 - start) // classes * classes
            spans.append((int(self.starts[start]), int(self.starts[last_start]) + self._span))
        return spans


def _map(path: str, tensor: TensorLayout) -> np.ndarray:
    """The rows of a file, writable, as DLPack has no read-only memory; nobody writes.

    A private copy of a file that is larger than the memory would be refused by Linux' overcommit heuristic.
    """
    if os.path.exists(path):
        mapped: np.ndarray = np.load(path, mmap_mode="r+", allow_pickle=False)
        return mapped
    if is_text(tensor):
        return np.empty([0] + stored_shape(tensor) + [2], np.int64)
    return np.empty([0] + tensor["shape"], tensor["dtype"])


def _map_text(path: str) -> Bytes:
    if not os.path.exists(path) or not os.path.getsize(path):
        return b""
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _texts(spans: np.ndarray, content: Bytes) -> np.ndarray:
    """The bytes objects at spans (..., 2), start and length of each in `content`: (...)."""
    values = [content[start : start + length] for start, length in spans.reshape(-1, 2).tolist()]
    return packing.text_array(values, spans.shape[:-1])


def _gather_text(tf: TensorFlow, spans: np.ndarray, content: Bytes, tensor: TensorLayout) -> Gather:
    """spans: (rows, ..., 2), start and length of each value in `content`."""

    def take(rows: npt.NDArray[np.int64]) -> np.ndarray:
        return _texts(spans[rows], content)

    def gather(rows: Element) -> Element:
        values = tf.numpy_function(take, [rows], tf.string, stateful=False)
        return tf.ensure_shape(values, rows.shape + tensor["shape"])

    return gather


def _gather_sparse(tf: TensorFlow, spans: np.ndarray, content: Bytes, tensor: TensorLayout) -> Gather:
    """A tf.SparseTensor of shape (rows, size of the vectors)."""
    floatx = tf.keras.backend.floatx()
    size = tensor["shape"][0]

    def take(rows: npt.NDArray[np.int64]) -> Tuple[np.ndarray, np.ndarray]:
        return packing.sparse_arrays(_texts(spans[rows], content).tolist(), np.dtype(floatx))

    def gather(rows: Element) -> Element:
        indices, values = tf.numpy_function(take, [rows], (tf.int64, floatx), stateful=False)
        shape = tf.stack([tf.size(rows, tf.int64), tf.constant(size, tf.int64)])
        sparse = tf.SparseTensor(tf.ensure_shape(indices, [None, 2]), tf.ensure_shape(values, [None]), shape)
        sparse.set_shape(rows.shape + [size])
        return sparse

    return gather


def _gather_ragged(tf: TensorFlow, spans: np.ndarray, content: Bytes, tensor: TensorLayout) -> Gather:
    """A tf.RaggedTensor of shape (rows, values of each)."""
    use = tensor["use"][len(RAGGED) :]
    dtype = tf.as_dtype(tf.keras.backend.floatx() if use == "floatx" else use)

    def take(rows: npt.NDArray[np.int64]) -> Tuple[np.ndarray, np.ndarray]:
        of_rows = [content[start : start + length] for start, length in spans[rows].tolist()]
        values, lengths = packing.ragged_parts(of_rows, tensor["dtype"])
        return values if use == "string" else values.astype(dtype.as_numpy_dtype), lengths

    def gather(rows: Element) -> Element:
        values, lengths = tf.numpy_function(take, [rows], (dtype, tf.int64), stateful=False)
        values, lengths = tf.ensure_shape(values, [None]), tf.ensure_shape(lengths, rows.shape)
        return tf.RaggedTensor.from_row_lengths(values, lengths, validate=False)

    return gather


def _gather(tf: TensorFlow, array: np.ndarray, tensor: TensorLayout) -> Gather:
    use = tf.keras.backend.floatx() if tensor["use"] == "floatx" else tensor["use"]
    if use == "float64" and array.dtype == np.float32 and tensor["dtype"][1:] != "f4":
        raise ValueError(
            "--data: Keras' floatx is float64 here, and %s is stored as float32: call "
            "keras.backend.set_floatx('float64') in a cell before this one" % tensor["name"]
        )
    values = _as_tensor(tf, array)

    def gather(rows: Element) -> Element:
        return tf.ensure_shape(tf.cast(tf.gather(values, rows), use), rows.shape + tensor["shape"])

    return gather


def _as_tensor(tf: TensorFlow, array: np.ndarray) -> Element:
    """The tensor that shares an array's memory, or its copy where NumPy or TensorFlow cannot share it."""
    if array.dtype == np.bool_:
        array = array.view(np.uint8)  # which every version shares
    with tf.device("CPU:0"):
        # TensorFlow ends the process where it finds memory that is not aligned. The rows of an .npy file are.
        if array.size and hasattr(array, "__dlpack__") and array.ctypes.data % ALIGNMENT_BYTES == 0:
            return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
        return tf.convert_to_tensor(array)


def in_order(
    tf: TensorFlow,
    share: StoredShare,
    steps: npt.NDArray[np.int64],
    order: Callable[[int, int], npt.NDArray[np.int64]] | None = None,
) -> Dataset:
    """The share's rows in their own order, or in another. steps: as `rank_data.edges` returns them.

    order: (start, stop) -> the share's rows that come as the rows start to stop - 1.
    """

    def ordered(start: Element, stop: Element) -> Element:
        assert order is not None
        rows = tf.numpy_function(lambda *bounds: order(*map(int, bounds)), [start, stop], tf.int64, stateful=False)
        return tf.ensure_shape(rows, [None])

    groups = _Groups(tf, share, steps, np.array([0, len(steps) - 1]))
    return _finish(tf, groups, groups.of_window(0, tf.range if order is None else ordered), len(steps) - 1)


class Epochs:
    """Numbers the iterations of a shuffled share, each of which has an order of its own. next: of the next one."""

    def __init__(self) -> None:
        self.next = 0

    def begin(self) -> int:
        self.next += 1
        return self.next - 1


def shuffled(
    tf: TensorFlow, share: StoredShare, steps: npt.NDArray[np.int64], order: RowOrder, epochs: Epochs
) -> Dataset:
    """The share's rows, in each iteration in the next epoch's order. steps: as `rank_data.edges` returns them."""
    reader = _Reader(share, steps, order)
    groups = _Groups(tf, share, steps, reader.step_edges)

    def part_of_epoch(epoch: Element, window: Element) -> Dataset:
        rows, begin = tf.numpy_function(reader.draw, [epoch, window], (tf.int64, tf.int64))
        rows = tf.ensure_shape(rows, [None])
        return groups.of_window(window, lambda start, stop: rows[start - begin : stop - begin])

    def windows(epoch: Element) -> Dataset:
        return tf.data.Dataset.range(reader.windows).flat_map(_as_is(tf, functools.partial(part_of_epoch, epoch)))

    def epoch(start: Element) -> Element:
        return tf.numpy_function(lambda _: np.int64(epochs.begin()), [start], tf.int64)

    epoch_number = tf.data.Dataset.from_tensors(np.int64(0)).map(_as_is(tf, epoch))
    return _finish(tf, groups, epoch_number.flat_map(_as_is(tf, windows)), len(steps) - 1)


class _Groups:
    """The steps of an epoch in groups: consecutive ones of one window and of equal size."""

    def __init__(
        self, tf: TensorFlow, share: StoredShare, steps: npt.NDArray[np.int64], edges: npt.NDArray[np.int64]
    ) -> None:
        """edges: the first step of each window of an epoch, and behind the last."""
        self._tf, self._share = tf, share
        rows = int(steps[1] - steps[0]) if len(steps) > 1 else 0
        limit = min(GROUP_STEPS, GROUP_BYTES // max(1, rows * share.element_bytes))
        # `unbatch` of TensorFlow 2.21 ends the process where a batch has no value.
        self.grouped = limit > 1 and share.has_values and bool((np.diff(steps) > 0).all())
        firsts = group_edges(steps, edges, limit if self.grouped else 1)
        self._edges, self._firsts = _constant(tf, steps), _constant(tf, firsts)
        self._windows = _constant(tf, np.searchsorted(firsts, edges))

    def of_window(self, window: Element, rows: Callable[[Element, Element], Element]) -> Dataset:
        """Their elements, with an axis for the steps of a group unless batches are large.

        rows(first, last): those at these positions of the epoch.
        """
        tf = self._tf

        def group(number: Element) -> Element:
            step, last_step = self._firsts[number], self._firsts[number + 1]
            start, stop = self._edges[step], self._edges[last_step]
            row_indices = rows(start, stop)
            if self.grouped:
                row_indices = tf.reshape(row_indices, [last_step - step, self._edges[step + 1] - start])
            return self._share.element(row_indices)

        return tf.data.Dataset.range(self._windows[window], self._windows[window + 1]).map(_as_is(tf, group))


def group_edges(steps: npt.NDArray[np.int64], edges: npt.NDArray[np.int64], limit: int) -> npt.NDArray[np.int64]:
    """The first step of each group, and behind the last.

    A group has at most so many steps, all of one size and of one window. steps: the first row of each step, and behind
    the last; edges: the first step of each window, and behind the last.
    """
    sizes = np.diff(steps)
    changes = np.flatnonzero(np.diff(sizes)) + 1
    runs = np.unique(np.concatenate([edges, changes]))
    groups = [np.arange(start, stop, limit) for start, stop in zip(runs[:-1], runs[1:])]
    return np.concatenate([*groups, [len(sizes)]]).astype(np.int64)


def _constant(tf: TensorFlow, values: npt.NDArray[np.int64]) -> Element:
    """On the CPU, where tf.data works; TensorFlow would place it on a GPU."""
    with tf.device("CPU:0"):
        return tf.constant(values)


def _as_is(tf: TensorFlow, function: Callable[..., Element]) -> Callable[..., Element]:
    """The function as tf.data takes it: not rewritten by AutoGraph, which would look for its source."""
    converted: Callable[..., Element] = tf.autograph.experimental.do_not_convert(function)
    return converted


def _finish(tf: TensorFlow, groups: _Groups, dataset: Dataset, steps: int) -> Dataset:
    cardinality = tf.data.experimental.assert_cardinality(steps)
    # To rewrite its graph, tf.data copies all tensors that it refers to: the whole share, into memory.
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    dataset = dataset.with_options(options)
    if groups.grouped:  # taking a group apart is so cheap that it needs no thread of its own
        return dataset.prefetch(PREFETCH_GROUPS).unbatch().apply(cardinality)
    return dataset.apply(cardinality).prefetch(PREFETCH_BATCHES)


class _Reader:
    """Draws the rows of the steps that end in one window of an epoch; the first of them may begin before it.

    The disk reads the next window, also that of the next epoch, while this one is used.
    """

    def __init__(self, share: StoredShare, steps: npt.NDArray[np.int64], order: RowOrder) -> None:
        self._share, self._steps, self._order = share, steps, order
        self._edges = order.window_edges()
        step_edges = np.searchsorted(steps[1:], self._edges[1:], side="right")
        self.step_edges = np.concatenate([[0], step_edges]).astype(np.int64)
        self.step_edges[-1] = len(steps) - 1
        self.windows = order.windows
        if self.windows > 1:
            share.read_in_pieces()
        # What was drawn last, for the beginning of the next window: (epoch, window), and its rows.
        self._drawn: Tuple[Tuple[int, int], npt.NDArray[np.int64]] = ((-1, -1), np.zeros(0, np.int64))
        # Which (epoch, window) the disk reads, and the thread that waits for it.
        self._ahead: Tuple[Tuple[int, int], Optional[threading.Thread]] = ((-1, -1), None)

    def draw(self, epoch: Any, last_window: Any) -> Tuple[Any, Any]:
        """(rows in their order, position of the first one), int64."""
        epoch, last_window = int(epoch), int(last_window)
        self._read(epoch, last_window)
        start, stop = self._steps[self.step_edges[last_window : last_window + 2]]
        first_window = min(last_window, int(np.searchsorted(self._edges, start, side="right")) - 1)
        rows = np.concatenate([self._window(epoch, window) for window in range(first_window, last_window + 1)])
        before = self._edges[first_window]
        return rows[start - before : stop - before], start

    def _read(self, epoch: int, window: int) -> None:
        """Have the window read, and the next one begun."""
        key, thread = self._ahead
        if key != (epoch, window) or thread is None:
            thread = self._reading(epoch, window)
        thread.join()
        if self.windows > 1:
            following = (epoch, window + 1) if window + 1 < self.windows else (epoch + 1, 0)
            self._ahead = following, self._reading(*following)

    def _reading(self, epoch: int, window: int) -> threading.Thread:
        arguments = self._order.pieces(epoch, window), self._order.own_classes
        thread = threading.Thread(target=self._share.read_ahead, args=arguments, name="ddl-read-ahead", daemon=True)
        thread.start()
        return thread

    def _window(self, epoch: int, window: int) -> npt.NDArray[np.int64]:
        key, rows = self._drawn
        if key != (epoch, window):
            rows = self._order.draw(epoch, window)
            self._drawn = (epoch, window), rows
        return rows
