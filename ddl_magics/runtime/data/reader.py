"""A rank's share as a tf.data.Dataset whose batches TensorFlow gathers itself, out of memory-mapped files.

Python is called once an iteration and once a window (row_order.py), to draw the order of some million rows. Only text
is gathered by Python, a call a batch, as TensorFlow has no operation that makes strings of bytes in memory.
"""

from __future__ import annotations

import functools
import itertools
import mmap
import os
from typing import TYPE_CHECKING, Any, Callable, List, Sequence, Tuple, Union

import numpy as np

from . import packing
from .roles import indices
from .row_order import Piece, RowOrder
from .share_files import is_text

if TYPE_CHECKING:
    import numpy.typing as npt

    from .records import Features, Manifest, Sequences, Tensor

#: Batches that are gathered ahead of the training.
PREFETCH_BATCHES = 4
#: Of the memory of TensorFlow's tensors, at most.
ALIGNMENT_BYTES = 64

#: Of TensorFlow, which has no types: its module, a tf.data.Dataset, a tensor or what stands for one.
TensorFlow = Any
Dataset = Any
Element = Any
#: Makes one tensor of a batch from the indices of its rows.
Gather = Callable[[Element], Element]
Bytes = Union[bytes, mmap.mmap]
#: The shape of a batch, before that of a row: (rows,), or (windows, rows of a window).
Axes = List[Union[int, None]]


class Share:
    """A rank's rows of one set in .npy files, one a tensor, and how they become a dataset's elements."""

    def __init__(self, tf: TensorFlow, paths: Sequence[Tuple[str, str]], manifest: Manifest, starts: str) -> None:
        """paths: of each tensor's files, the second for text. One that is missing stands for a share of no row. starts:
        the file of `share_files.starts_path`, for windows.
        """
        self._shown: List[Features] = [manifest["features"]]
        self._shown += [shown for shown in (manifest["label"], manifest.get("weight")) if shown is not None]
        self._targets = {index for shown in self._shown[1:] for index in indices(shown)}
        self.arrays = [_map(path, tensor) for (path, _), tensor in zip(paths, manifest["tensors"])]
        sequences = manifest.get("sequences")
        self._windows = None if sequences is None else _Windows(tf, starts, sequences)
        self._gathers: List[Gather] = []
        for index, (array, (_, text), tensor) in enumerate(zip(self.arrays, paths, manifest["tensors"])):
            axes: Axes = [None] if sequences is None or index in self._targets else [None, sequences["length"]]
            self._gathers.append(
                _gather_text(tf, array, _map_text(text), tensor, axes)
                if is_text(tensor)
                else _gather(tf, array, tensor, axes)
            )

    def element(self, rows: Element) -> Element:
        """The element with the rows, or windows, of these indices, a 1-D integer tensor."""
        past, target = (rows, rows) if self._windows is None else self._windows.rows(rows)
        tensors = [gather(target if index in self._targets else past) for index, gather in enumerate(self._gathers)]
        parts = [
            tensors[shown] if isinstance(shown, int) else {name: tensors[index] for name, index in shown.items()}
            for shown in self._shown
        ]
        return tuple(parts) if len(parts) > 1 else parts[0]

    def read_ahead(self, pieces: Sequence[Piece], classes: int) -> None:
        """Have the disk read these elements into the page cache, in the background and in their order.

        classes: of the rank.
        """
        if self._windows is not None:
            pieces = [rows for piece in pieces for rows in self._windows.spans(piece, classes)]
        for array in self.arrays:
            row_bytes = array.nbytes // max(1, len(array))
            mapped = getattr(array, "_mmap", None)
            if mapped is None or not hasattr(mapped, "madvise"):  # Python 3.8 has it
                continue
            header = len(mapped) - array.nbytes
            for first, last in pieces:
                start = (header + first * row_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
                mapped.madvise(mmap.MADV_WILLNEED, start, header + last * row_bytes - start)


class _Windows:
    """The windows of a rank's share."""

    def __init__(self, tf: TensorFlow, path: str, sequences: Sequences) -> None:
        """path: of the file with the first row of each. One that is missing stands for a share of no window."""
        self._tf, self._length = tf, sequences["length"]
        self._span = sequences["length"] + sequences["horizon"]
        self._starts = np.load(path, mmap_mode="r+") if os.path.exists(path) else np.empty(0, np.int64)
        self._first = _as_tensor(tf, self._starts)

    def rows(self, windows: Element) -> Tuple[Element, Element]:
        """(rows of the features, (windows, length); row of the label and the weight, (windows,)), int64."""
        first = self._tf.gather(self._first, windows)
        return first[:, None] + self._tf.range(self._length, dtype=np.int64), first + (self._span - 1)

    def spans(self, piece: Piece, classes: int) -> List[Piece]:
        """The stored rows of consecutive windows: of each class, they are consecutive, too."""
        spans = []
        for first in range(piece[0], min(piece[0] + classes, piece[1])):
            last = first + (piece[1] - 1 - first) // classes * classes
            spans.append((int(self._starts[first]), int(self._starts[last]) + self._span))
        return spans


def _map(path: str, tensor: Tensor) -> np.ndarray:
    """The rows of a file, writable, as DLPack has no read-only memory; nobody writes.

    A private copy of a file that is larger than the memory would be refused by Linux' overcommit heuristic.
    """
    if os.path.exists(path):
        mapped: np.ndarray = np.load(path, mmap_mode="r+")
        return mapped
    if is_text(tensor):
        return np.empty([0] + tensor["shape"] + [2], np.int64)
    return np.empty([0] + tensor["shape"], tensor["dtype"])


def _map_text(path: str) -> Bytes:
    if not os.path.exists(path) or not os.path.getsize(path):
        return b""
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _gather_text(tf: TensorFlow, places: np.ndarray, content: Bytes, tensor: Tensor, axes: Axes) -> Gather:
    take = functools.partial(_take_text, places, content)

    def gather(rows: Element) -> Element:
        return tf.ensure_shape(tf.numpy_function(take, [rows], tf.string, stateful=False), axes + tensor["shape"])

    return gather


def _take_text(places: np.ndarray, content: Bytes, rows: npt.NDArray[np.int64]) -> np.ndarray:
    """places: (rows, ..., 2), start and length of each value in `content`."""
    chosen = places[rows]
    values = [content[start : start + length] for start, length in chosen.reshape(-1, 2).tolist()]
    return packing.text_array(values, chosen.shape[:-1])


def _gather(tf: TensorFlow, array: np.ndarray, tensor: Tensor, axes: Axes) -> Gather:
    use = tf.keras.backend.floatx() if tensor["use"] == "floatx" else tensor["use"]
    shape = axes + tensor["shape"]
    if use == "float64" and array.dtype == np.float32 and tensor["dtype"][1:] != "f4":
        raise ValueError(
            "--data: Keras' floatx is float64 in this process, but float32 or unset in the executor's keras.json, so "
            "that %s is stored as float32: set floatx in the keras.json of every executor" % tensor["name"]
        )
    values = _as_tensor(tf, array)

    def gather(rows: Element) -> Element:
        return tf.ensure_shape(tf.cast(tf.gather(values, rows), use), shape)

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


def in_order(tf: TensorFlow, share: Share, steps: npt.NDArray[np.int64]) -> Dataset:
    """The share's rows in their own order. steps: as `rank_data.edges` returns them."""
    batches = _batches(
        tf, _constant(tf, steps), 0, len(steps) - 1, lambda first, last: share.element(tf.range(first, last))
    )
    return _finish(tf, batches, steps)


def shuffled(tf: TensorFlow, share: Share, steps: npt.NDArray[np.int64], order: RowOrder) -> Dataset:
    """The share's rows, in each iteration in the next epoch's order. steps: as `rank_data.edges` returns them."""
    iterations, reader = itertools.count(), _Reader(share, steps, order)
    edges = _constant(tf, steps)

    def part_of_epoch(epoch: Element, part: Element) -> Dataset:
        rows, step, last_step = tf.numpy_function(reader.draw, [epoch, part], (tf.int64, tf.int64, tf.int64))
        rows = tf.ensure_shape(rows, [None])
        begin = edges[step]
        return _batches(
            tf, edges, step, last_step, lambda first, last: share.element(rows[first - begin : last - begin])
        )

    def parts(epoch: Element) -> Dataset:
        return tf.data.Dataset.range(reader.parts).flat_map(_as_is(tf, functools.partial(part_of_epoch, epoch)))

    def epoch(start: Element) -> Element:
        return tf.numpy_function(lambda _: np.int64(next(iterations)), [start], tf.int64)

    once = tf.data.Dataset.from_tensors(np.int64(0)).map(_as_is(tf, epoch))
    return _finish(tf, once.flat_map(_as_is(tf, parts)), steps)


def _batches(
    tf: TensorFlow, edges: Element, step: Element, last_step: Element, element: Callable[[Element, Element], Element]
) -> Dataset:
    """The elements of some steps. element(first, last): that of a step's first position and the one behind its last."""
    ends = tf.data.Dataset.from_tensor_slices((edges[step:last_step], edges[step + 1 : last_step + 1]))
    return ends.map(_as_is(tf, element))


def _constant(tf: TensorFlow, values: npt.NDArray[np.int64]) -> Element:
    """On the CPU, where tf.data works; TensorFlow would place it on a GPU."""
    with tf.device("CPU:0"):
        return tf.constant(values)


def _as_is(tf: TensorFlow, function: Callable[..., Element]) -> Callable[..., Element]:
    """The function as tf.data takes it: not rewritten by AutoGraph, which would look for its source."""
    converted: Callable[..., Element] = tf.autograph.experimental.do_not_convert(function)
    return converted


def _finish(tf: TensorFlow, dataset: Dataset, steps: npt.NDArray[np.int64]) -> Dataset:
    return dataset.apply(tf.data.experimental.assert_cardinality(len(steps) - 1)).prefetch(PREFETCH_BATCHES)


class _Reader:
    """Draws the rows of a part of an epoch: of the steps that end in one window, whose first may begin before it."""

    def __init__(self, share: Share, steps: npt.NDArray[np.int64], order: RowOrder) -> None:
        self._share, self._steps, self._order = share, steps, order
        self._edges = order.window_edges()
        self._step_edges = np.searchsorted(steps[1:], self._edges[1:], side="right")
        self._step_edges = np.concatenate([[0], self._step_edges]).astype(np.int64)
        self._step_edges[-1] = len(steps) - 1
        self.parts = order.windows
        # What was drawn last, for the next part's beginning: (epoch, window), and its rows.
        self._last: Tuple[Tuple[int, int], npt.NDArray[np.int64]] = ((-1, -1), np.zeros(0, np.int64))

    def draw(self, epoch: Any, part: Any) -> Tuple[Any, Any, Any]:
        """(rows in their order, first step, behind the last step), int64."""
        epoch, part = int(epoch), int(part)
        for window in range(part + 1 if part else 0, min(part + 2, self.parts)):
            self._share.read_ahead(self._order.pieces(epoch, window), self._order.own_classes)
        step, last_step = self._step_edges[part], self._step_edges[part + 1]
        first, last = self._steps[step], self._steps[last_step]
        first_window = min(part, int(np.searchsorted(self._edges, first, side="right")) - 1)
        rows = np.concatenate([self._window(epoch, window) for window in range(first_window, part + 1)])
        before = self._edges[first_window]
        return rows[first - before : last - before], step, last_step

    def _window(self, epoch: int, window: int) -> npt.NDArray[np.int64]:
        key, rows = self._last
        if key != (epoch, window):
            rows = self._order.draw(epoch, window)
            self._last = (epoch, window), rows
        return rows
