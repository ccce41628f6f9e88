"""Cuts the data of an unchanged `fit`: the ranks together see the batches of one process, in the same order.

All-reduce: of every global batch of b rows, rank k of n takes rows floor(k b / n) to floor((k + 1) b / n).
Parameter server: of the sequence of batches, worker k of n takes every n-th, beginning with the k-th.
"""

from __future__ import annotations

from typing import Any, Callable, Iterable, Iterator, Tuple

import tensorflow as tf

from ..gradients.batch import SAMPLE_ROWS, LocalShare, Share, Whole
from ..keras_types import Batch, Dataset, Tensor, Variable

#: (elements of a dataset, a rank's position, the number of ranks) -> its `Share`.
Cutter = Callable[[Tuple[Any, ...], Any, Any], Share]

#: That call functions of Python.
PYTHON_OPERATIONS = {"PyFunc", "EagerPyFunc", "PyFuncStateless"}

NOT_ROWS = (
    "the parts of a batch have %s rows, so that workers cannot cut it along its first axis: wrap the dataset in "
    "ddl.local(...) if each worker is to train on all of it or on a share of its own, or use --strategy ps, whose "
    "workers take whole batches"
)


def mark_local(dataset: Dataset) -> Dataset:
    """Say that a tf.data.Dataset is this rank's own share. Recognised through map, prefetch, zip and the like."""
    dataset._ddl_local = True
    return dataset


def mark_alike(dataset: Dataset) -> None:
    """Say that all ranks read the same from a tf.data.Dataset, whatever it calls."""
    dataset._ddl_alike = True


def is_local(dataset: Dataset) -> bool:
    """Whether a dataset or any that it is made from was marked with `mark_local`."""
    return any(getattr(source, "_ddl_local", False) for source in lineage(dataset))


def is_random(dataset: Dataset) -> bool:
    """Whether functions of a tf.data.Dataset, or of any that it is made from, have operations that draw by a seed.

    `Dataset.shuffle` is none: it draws anew in each iteration by itself, if it is not told otherwise. Operations of a
    pipeline of the notebook are none, if their seeds are the notebook's: they begin anew in each iteration.
    """
    sources = (source for source in lineage(dataset) if not getattr(source, "_ddl_is_seeded", False))
    return any("seed2" in node.attr for node in operations(sources))


def reorders(dataset: Dataset) -> bool:
    """Whether each iteration of a tf.data.Dataset may have another order: it shuffles, or calls functions of Python."""
    kinds = [type(source).__name__ for source in lineage(dataset)] + [node.op for node in operations(lineage(dataset))]
    return any("Shuffle" in kind or kind in PYTHON_OPERATIONS for kind in kinds)


def operations(datasets: Iterable[Dataset]) -> list[Any]:
    """The nodes of the functions of each tf.data.Dataset, without those of the datasets that it is made from."""
    definitions = [graph for source in datasets for graph in _graphs(source)]
    nodes = [node for definition in definitions for node in definition.node]
    return nodes + [
        node
        for definition in definitions
        for function_def in definition.library.function
        for node in function_def.node_def
    ]


def _graphs(dataset: Dataset) -> list[Any]:
    if hasattr(dataset, "_ddl_graph"):  # of a pipeline that has travelled: that of all that it is made from
        return [dataset._ddl_graph]
    return [wrapped.function.graph.as_graph_def() for wrapped in dataset._functions()]


def perhaps_unlike(dataset: Dataset) -> Iterator[Dataset]:
    """As `lineage`, without what is marked with `mark_alike` and what that is made from."""
    return lineage(dataset, lambda source: not getattr(source, "_ddl_alike", False))


def lineage(dataset: Dataset, counts: Callable[[Dataset], bool] = lambda source: True) -> Iterator[Dataset]:
    """A dataset and all that it is made from. counts: of a dataset, False leaves it and its sources out."""
    waiting = [dataset]
    visited: set[int] = set()
    while waiting:
        source = waiting.pop()
        if id(source) in visited or not counts(source):
            continue
        visited.add(id(source))
        yield source
        inputs = getattr(source, "_inputs", None)
        if callable(inputs):
            waiting.extend(inputs())


def cut(dataset: Dataset, rank: int, size: int, of_arrays: bool = False) -> Dataset:
    """A dataset of `Share`s: rank's slice of every batch of `dataset`.

    Of a batch of b rows, rank k of n has the rows floor(k b / n) to floor((k + 1) b / n).

    of_arrays: Keras has made `dataset` of arrays. Then the numbers of a batch's rows are cut, before any is gathered.
    """
    dataset, cut_out = _cutter(dataset, of_arrays)
    return _mapped(dataset, lambda *elements: cut_out(elements, rank, size)).prefetch(2)


def whole(dataset: Dataset, of_arrays: bool = False) -> tuple[Dataset, Cutter]:
    """(A dataset of `Whole`s, what makes this rank's `Share` of the elements of one). The arguments are `cut`'s."""
    dataset, cut_out = _cutter(dataset, of_arrays)
    return _mapped(dataset, lambda *elements: Whole(elements)).prefetch(2), cut_out


def _cutter(dataset: Dataset, of_arrays: bool) -> tuple[Dataset, Cutter]:
    """(A dataset, what makes of its elements, of a rank's position and of the number of ranks its `Share`)."""
    _check_spec(dataset.element_spec)
    dataset, gather = before_gathering(dataset) if of_arrays else (dataset, None)

    def slice_batch(elements: tuple[Any, ...], rank: Any, size: Any) -> Share:
        if gather is None:
            return share_of(_element(dataset, elements), rank, size)
        numbers, arrays = elements
        return _share_of(numbers, _rows(numbers), rank, size, lambda rows: gather(rows, arrays))

    return dataset, slice_batch


def share_of(batch: Batch, rank: Any, size: Any) -> Share:
    """Rank's `Share` of a batch of tensors. An error where its parts have different numbers of rows.

    rank, size: ints, or scalars of int64.
    """
    with tf.control_dependencies(_same_rows(batch)):
        total = _rows(batch)
        total = total if isinstance(total, int) else tf.identity(total)
    return _share_of(batch, total, rank, size, lambda rows: rows)


def _share_of(batch: Batch, total: Any, rank: Any, size: Any, rows_of: Callable[[Any], Any]) -> Share:
    """rows_of: makes rows of those of `batch`, which has `total`."""
    if not isinstance(rank, int):
        total = tf.cast(total, tf.int64)
    low, high = total * rank // size, total * (rank + 1) // size
    rows = high - low
    if isinstance(total, int):
        low, high = (low, high) if rows else (0, 1)
    else:
        low, high = tf.where(rows > 0, low, 0), tf.where(rows > 0, high, 1)
    every = total // SAMPLE_ROWS + 1
    sample = _dense([rows_of(tensor[::every]) for tensor in _dense(batch)])
    local_rows = rows_of(tf.nest.map_structure(lambda tensor: slice_rows(tensor, low, high), batch))
    return Share(local_rows, tf.cast(rows, tf.int64), tf.cast(total, tf.int64), tuple(sample))


def _mapped(dataset: Dataset, function: Callable[..., Share | Whole]) -> Dataset:
    """`function` of each element, as it is: converted by AutoGraph, ours take a third of a second in a first fit."""
    unconverted = tf.autograph.experimental.do_not_convert(function)
    return dataset.map(unconverted, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def _check_spec(spec: Any) -> None:
    """ValueError where the shapes of a dataset's elements tell that their parts have different numbers of rows."""
    shapes = [component.shape for component in tf.nest.flatten(spec) if getattr(component, "shape", None) is not None]
    static = {shape[0] for shape in shapes if shape.rank and shape[0] is not None}
    if len(static) > 1:
        raise ValueError(NOT_ROWS % " and ".join(map(str, sorted(static))))


def _same_rows(batch: Batch) -> list[Any]:
    """Checks, to be made before a batch is cut, that all its parts have as many rows as the first."""
    first_rows, *other_rows = [_rows_of(tensor) for tensor in _leaves(batch)]
    message = NOT_ROWS % "different numbers of"
    checked = [rows for rows in other_rows if not (isinstance(rows, int) and isinstance(first_rows, int))]
    if len(checked) < len(other_rows) and any(rows != first_rows for rows in other_rows if isinstance(rows, int)):
        raise ValueError(message)
    return [
        tf.debugging.assert_equal(tf.cast(rows, tf.int64), tf.cast(first_rows, tf.int64), message) for rows in checked
    ]


def uncut(dataset: Dataset) -> Dataset:
    """A dataset of `LocalShare`s for data that is this rank's own: an empty batch becomes one row of zeros."""

    def keep(*elements: Any) -> Share:
        batch = _element(dataset, elements)
        rows = _rows(batch)
        if not isinstance(rows, int):
            batch = tf.nest.map_structure(lambda tensor: _never_empty(tensor, rows), batch)
        return LocalShare(batch, tf.cast(rows, tf.int64), tf.constant(-1, tf.int64))

    return _mapped(dataset, keep).prefetch(2)


def shard(dataset: Dataset, rank: Any, size: Any, of_arrays: bool = False) -> Dataset:
    """A dataset of `Share`s: every `size`-th batch of `dataset`, beginning with number `rank`.

    rank, size: ints, or variables of int64, which are read while it is iterated over. There is nothing for `size` and
    above. of_arrays: Keras has made `dataset` of arrays. Then the other batches are not gathered.
    """
    dataset, gather = before_gathering(dataset) if of_arrays else (dataset, None)
    if not isinstance(size, int):
        batches = every_nth(dataset, rank, size)
    else:
        batches = dataset.shard(size, rank) if rank < size else dataset.take(0)
    return gathered(batches, gather)


def gathered(batches: Dataset, gather: Callable[..., Any] | None) -> Dataset:
    """A dataset of `Share`s of whole batches. gather: makes a batch of an element, as `before_gathering` returns it."""
    return uncut(batches.map(gather, num_parallel_calls=tf.data.AUTOTUNE) if gather else batches)


def every_nth(dataset: Dataset, rank: int | Variable, size: int | Variable, count: int | None = None) -> Dataset:
    """Every `size`-th element, beginning with number `rank`. count: of the elements after which numbers begin anew."""

    def is_own(number: Tensor, _: Any) -> Tensor:
        return tf.equal((number if count is None else number % count) % size, rank)

    return dataset.enumerate().filter(is_own).map(lambda _, batch: batch)


def shard_steps(steps: int | None, rank: int, size: int) -> int | None:
    """How many of `steps` batches `shard` leaves to `rank`, none from `size` on; None stays None."""
    if steps is None:
        return None
    return len(range(rank, steps, size)) if rank < size else 0


class ContinuingDataset:
    """A dataset with one iterator, which all its readers continue.

    Random operations keep drawing. A new iterator would restart them where TensorFlow has a seed: each epoch would have
    the order and the augmentation of the first. And nothing is lost that an iterator has read ahead from a generator.
    """

    def __init__(self, dataset: Dataset) -> None:
        self.element_spec = dataset.element_spec
        self._dataset = dataset
        self._iterator: Any = None

    def __iter__(self) -> Any:
        if self._iterator is None:
            self._iterator = iter(self._dataset)
        return self._iterator


def before_gathering(dataset: Dataset) -> tuple[Dataset, Callable[..., Any] | None]:
    """(a dataset of the numbers of each batch's rows and the arrays, Keras' function of both that makes the batch).

    (`dataset`, None) where it is made in another way.
    """
    mapped, inputs = dataset, dataset._inputs()
    while not hasattr(mapped, "_map_func") and len(inputs) == 1:
        mapped, inputs = inputs[0], inputs[0]._inputs()
    if not hasattr(mapped, "_map_func") or [len(numbered._inputs()) for numbered in inputs] != [2]:
        return dataset, None
    return inputs[0].with_options(dataset.options()), mapped._map_func._func


def _element(dataset: Dataset, elements: tuple[Any, ...]) -> Any:
    """What tf.data passes to a function as arguments, as the element that it was."""
    return elements if isinstance(dataset.element_spec, tuple) else elements[0]


def _leaves(batch: Batch) -> list[Any]:
    return [
        tensor for tensor in tf.nest.flatten(batch) if isinstance(tensor, (tf.Tensor, tf.RaggedTensor, tf.SparseTensor))
    ]


def _dense(batch: Batch) -> list[Tensor]:
    return [tensor for tensor in _leaves(batch) if isinstance(tensor, tf.Tensor)]


def _rows(batch: Batch) -> Any:
    """Rows of a batch: an int where they are static, else a scalar int64 tensor."""
    return _rows_of(_leaves(batch)[0])


def _rows_of(tensor: Any) -> Any:
    static = None if tensor.shape.rank is None else tensor.shape[0] if tensor.shape.rank else 0
    if static is not None:
        return int(static)
    if isinstance(tensor, tf.RaggedTensor):
        return tf.cast(tensor.nrows(), tf.int64)
    if isinstance(tensor, tf.SparseTensor):
        return tensor.dense_shape[0]
    return tf.shape(tensor, out_type=tf.int64)[0]


def slice_rows(tensor: Any, low: Any, high: Any) -> Any:
    """The rows `low` to `high` of a part of a batch, a tensor of any kind; anything else as it is."""
    if isinstance(tensor, tf.SparseTensor):
        other_axes = tensor.dense_shape[1:]
        start = tf.concat([[low], tf.zeros_like(other_axes)], 0)
        cut_out = tf.sparse.slice(tensor, start, tf.concat([[high - low], other_axes], 0))
        cut_out.set_shape([None] + tensor.shape.as_list()[1:])
        return cut_out
    if isinstance(tensor, (tf.Tensor, tf.RaggedTensor)):
        return tensor[low:high]
    return tensor  # None, or an optional that Keras turns into None


def _never_empty(tensor: Any, rows: Tensor) -> Any:
    if isinstance(tensor, tf.RaggedTensor) and tensor.ragged_rank == 1:
        missing = tf.cast(tf.equal(rows, 0), tf.int32)
        blank = tf.zeros(tf.concat([[missing], tf.shape(tensor.values)[1:]], 0), tensor.dtype)
        lengths = tf.concat([tensor.row_lengths(), tf.ones([missing], tensor.row_splits.dtype)], 0)
        return tf.RaggedTensor.from_row_lengths(tf.concat([tensor.values, blank], 0), lengths, validate=False)
    if isinstance(tensor, tf.SparseTensor):
        size = tf.concat([tf.maximum(tensor.dense_shape[:1], 1), tensor.dense_shape[1:]], 0)
        filled = tf.SparseTensor(tensor.indices, tensor.values, size)
        filled.set_shape(tensor.shape)
        return filled
    if not isinstance(tensor, tf.Tensor):
        return tensor
    blank = tf.zeros(tf.concat([[1], tf.shape(tensor)[1:]], 0), tensor.dtype)
    filled = tf.cond(rows > 0, lambda: tensor, lambda: blank)
    filled.set_shape(tensor.shape)
    return filled
