"""Which rows of every batch are this rank's: cuts the data of an unchanged `fit` so that the ranks together see what
one process would see, in the same order.

All-reduce: of every global batch of b rows, rank k of n takes rows floor(k b / n) to floor((k + 1) b / n).
Parameter server: of the sequence of batches, worker k of n takes every n-th, beginning with the k-th.
"""

import zlib
from typing import Any, NamedTuple

import numpy as np

#: At most so many rows of a batch, spread over it, and first values of each, does its fingerprint look at.
_SAMPLE_ROWS = 8
_SAMPLE_VALUES = 256
_GOLDEN_RATIO = 0.6180339887498949
_WEIGHTS = 0.5 + np.arange(_SAMPLE_ROWS * _SAMPLE_VALUES) * _GOLDEN_RATIO % 1.0


class Share(NamedTuple):
    """An element of a cut dataset.

    batch: what Keras would have got, this rank's rows of it (one row of no weight where there are none);
    rows: how many rows are really this rank's; total: rows of the global batch, -1 where only this rank knows its data;
    sample: some rows of the global batch, a tensor of each of its parts, for `fingerprint`.
    """

    batch: Any
    rows: Any
    total: Any
    sample: Any = ()


def mark_local(dataset):
    """Say that a tf.data.Dataset is this rank's own share. Recognised through map, prefetch, zip and the like."""
    dataset._ddl_local = True
    return dataset


def is_local(dataset):
    """Whether a dataset or any that it is made from was marked with `mark_local`."""
    return any(getattr(one, "_ddl_local", False) for one in _lineage(dataset))


def is_random(dataset):
    """Whether functions of a tf.data.Dataset, or of any that it is made from, have operations that draw by a seed.

    `Dataset.shuffle` is none: it draws anew in each iteration by itself, if it is not told otherwise.
    """
    functions = [wrapped.function.graph for one in _lineage(dataset) for wrapped in one._functions()]
    definitions = [graph.as_graph_def() for graph in functions]
    nodes = [node for one in definitions for node in one.node]
    nodes += [node for one in definitions for called in one.library.function for node in called.node_def]
    return any("seed2" in node.attr for node in nodes)


def _lineage(dataset):
    """A dataset and all that it is made from."""
    waiting, seen = [dataset], set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        inputs = getattr(one, "_inputs", None)
        if callable(inputs):
            waiting.extend(inputs())


def fingerprint(sample, total):
    """(projection, scale) of a `Share`'s sample and total, as arrays: comparable within rounding (`same_batch`)."""
    check = scale = float(total)
    for part in sample:
        values = part.reshape(len(part), int(np.prod(part.shape[1:])))[:, :_SAMPLE_VALUES].ravel()
        if part.dtype == object:  # text
            values = [zlib.crc32(one) % (1 << 20) for one in values]
        values = np.nan_to_num(np.asarray(values, np.float64), nan=0.0, posinf=0.0, neginf=0.0)
        weights = _WEIGHTS[: len(values)]
        check += float(values @ weights)
        scale += float(np.abs(values) @ weights)
    return check, scale


def same_batch(check, scale, other_check, other_scale):
    """Whether two fingerprints can be of the same rows: alike within what floating point differs between hosts."""
    return abs(check - other_check) <= 1e-3 * max(scale, other_scale)


def cut(dataset, rank, size, of_arrays=False):
    """A dataset of `Share`s: rank's slice of every batch of `dataset`.

    of_arrays: Keras has made `dataset` of arrays. Then the numbers of a batch's rows are cut, before any is gathered.
    """
    import tensorflow as tf

    dataset, gather = _before_gathering(dataset) if of_arrays else (dataset, None)

    def slice_batch(*parts):
        batch, arrays = parts if gather else (_element(dataset, parts), None)

        def rows_of(part):
            return gather(part, arrays) if gather else part

        total = _rows(batch)
        low, high = total * rank // size, total * (rank + 1) // size
        rows = high - low
        if isinstance(total, int):
            low = low if rows else 0
            high = high if rows else 1
        else:
            low = tf.where(rows > 0, low, 0)
            high = tf.where(rows > 0, high, 1)
        every = total // _SAMPLE_ROWS + 1
        sample = _dense([rows_of(part[::every]) for part in _dense(batch)])
        mine = rows_of(tf.nest.map_structure(lambda part: _slice(part, low, high), batch))
        return Share(mine, tf.cast(rows, tf.int64), tf.cast(total, tf.int64), tuple(sample))

    return dataset.map(slice_batch, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).prefetch(2)


def whole(dataset):
    """A dataset of `Share`s for data that is this rank's own: an empty batch becomes one row of zeros."""
    import tensorflow as tf

    def keep(*parts):
        batch = _element(dataset, parts)
        rows = _rows(batch)
        if not isinstance(rows, int):
            batch = tf.nest.map_structure(lambda part: _never_empty(part, rows), batch)
        return Share(batch, tf.cast(rows, tf.int64), tf.constant(-1, tf.int64))

    return dataset.map(keep, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).prefetch(2)


def shard(dataset, rank, size, of_arrays=False):
    """A dataset of `Share`s: every `size`-th batch of `dataset`, beginning with number `rank`.

    of_arrays: Keras has made `dataset` of arrays. Then the other batches are not gathered.
    """
    import tensorflow as tf

    dataset, gather = _before_gathering(dataset) if of_arrays else (dataset, None)
    mine = dataset.shard(size, rank)
    return whole(mine.map(gather, num_parallel_calls=tf.data.AUTOTUNE) if gather else mine)


def shard_steps(steps, rank, size):
    """How many of `steps` batches `shard` leaves to `rank`; None stays None."""
    return None if steps is None else (steps - rank + size - 1) // size


class GoingOn:
    """A dataset that has one iterator for all epochs, each of as many batches as `dataset` has.

    Its random operations go on there. A new iterator starts them anew where TensorFlow has a seed, so that each epoch
    would have the order and the augmentation of the first.
    """

    def __init__(self, dataset):
        self.element_spec = dataset.element_spec
        self._endless, self._iterator = dataset.repeat(), None

    def __iter__(self):
        if self._iterator is None:
            self._iterator = iter(self._endless)
        return self._iterator


def _before_gathering(dataset):
    """(a dataset of the numbers of each batch's rows and the arrays, Keras' function of both that makes the batch).

    (`dataset`, None) where it is made in another way.
    """
    last, inputs = dataset, dataset._inputs()
    while not hasattr(last, "_map_func") and len(inputs) == 1:
        last, inputs = inputs[0], inputs[0]._inputs()
    if not hasattr(last, "_map_func") or [len(numbered._inputs()) for numbered in inputs] != [2]:
        return dataset, None
    return inputs[0].with_options(dataset.options()), last._map_func._func


def _element(dataset, parts):
    """What tf.data passes to a function as arguments, as the element that it was."""
    return parts if isinstance(dataset.element_spec, tuple) else parts[0]


def _leaves(batch):
    import tensorflow as tf

    return [part for part in tf.nest.flatten(batch) if isinstance(part, (tf.Tensor, tf.RaggedTensor, tf.SparseTensor))]


def _dense(batch):
    import tensorflow as tf

    return [part for part in _leaves(batch) if isinstance(part, tf.Tensor)]


def _rows(batch):
    """Rows of a batch: an int where they are static, else a scalar int64 tensor."""
    import tensorflow as tf

    first = _leaves(batch)[0]
    static = first.shape[0]
    if static is not None:
        return int(static)
    if isinstance(first, tf.RaggedTensor):
        return tf.cast(first.nrows(), tf.int64)
    if isinstance(first, tf.SparseTensor):
        return first.dense_shape[0]
    return tf.shape(first, out_type=tf.int64)[0]


def _slice(part, low, high):
    import tensorflow as tf

    if isinstance(part, tf.SparseTensor):
        rest = part.dense_shape[1:]
        start = tf.concat([[low], tf.zeros_like(rest)], 0)
        cut_out = tf.sparse.slice(part, start, tf.concat([[high - low], rest], 0))
        cut_out.set_shape([None] + part.shape.as_list()[1:])
        return cut_out
    if isinstance(part, (tf.Tensor, tf.RaggedTensor)):
        return part[low:high]
    return part  # None, or an optional that Keras turns into None


def _never_empty(part, rows):
    import tensorflow as tf

    if not isinstance(part, tf.Tensor):
        return part
    blank = tf.zeros(tf.concat([[1], tf.shape(part)[1:]], 0), part.dtype)
    filled = tf.cond(rows > 0, lambda: part, lambda: blank)
    filled.set_shape(part.shape)
    return filled
