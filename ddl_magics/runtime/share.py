"""Which rows of every batch are this rank's: cuts the data of an unchanged `fit` so that the ranks together see what
one process would see, in the same order.

All-reduce: of every global batch of b rows, rank k of n takes rows floor(k b / n) to floor((k + 1) b / n).
Parameter server: of the sequence of batches, worker k of n takes every n-th, beginning with the k-th.
"""

from typing import Any, NamedTuple

#: Of an epoch's batches those whose fingerprint is taken: the first ones, then one in so many. A shuffle that differs
#: shows in the first, and to take a fingerprint costs some 5 % of a step of 15 ms.
_FIRST_FINGERPRINTS, _FINGERPRINT_EVERY = 16, 16
#: Rows at either end of a batch, and values of each row end, that its fingerprint looks at.
_FINGERPRINT_ROWS = 4
_FINGERPRINT_VALUES = 256
_GOLDEN_RATIO = 0.6180339887498949


class Share(NamedTuple):
    """An element of a cut dataset.

    batch: what Keras would have got, this rank's rows of it (one row of no weight where there are none);
    rows: how many rows are really this rank's; total: rows of the global batch, -1 where only this rank knows its data;
    check, scale: a fingerprint of the global batch, comparable over ranks within rounding (`same_batch`).
    """

    batch: Any
    rows: Any
    total: Any
    check: Any
    scale: Any


def mark_local(dataset):
    """Say that a tf.data.Dataset is this rank's own share. Recognised through map, prefetch, zip and the like."""
    dataset._ddl_local = True
    return dataset


def is_local(dataset):
    """Whether a dataset or any that it is made from was marked with `mark_local`."""
    waiting, seen = [dataset], set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if getattr(one, "_ddl_local", False):
            return True
        inputs = getattr(one, "_inputs", None)
        if callable(inputs):
            waiting.extend(inputs())
    return False


def same_batch(check, scale, other_check, other_scale):
    """Whether two fingerprints can be of the same rows: alike within what floating point differs between hosts."""
    return abs(check - other_check) <= 1e-3 * max(scale, other_scale)


def cut(dataset, rank, size):
    """A dataset of `Share`s: rank's slice of every batch of `dataset`."""
    import tensorflow as tf

    def slice_batch(index, batch):
        total = _rows(batch)
        low, high = total * rank // size, total * (rank + 1) // size
        rows = high - low
        if isinstance(total, int):
            low = low if rows else 0
            high = high if rows else 1
        else:
            low = tf.where(rows > 0, low, 0)
            high = tf.where(rows > 0, high, 1)
        size_alone = tf.cast(total, tf.float64)
        check, scale = tf.cond(
            (index < _FIRST_FINGERPRINTS) | (index % _FINGERPRINT_EVERY == 0),
            lambda: _fingerprint(batch, total),
            lambda: (size_alone, size_alone),
        )
        mine = tf.nest.map_structure(lambda part: _slice(part, low, high), batch)
        return Share(mine, tf.cast(rows, tf.int64), tf.cast(total, tf.int64), check, scale)

    return dataset.enumerate().map(slice_batch, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).prefetch(2)


def whole(dataset):
    """A dataset of `Share`s for data that is this rank's own: an empty batch becomes one row of zeros."""
    import tensorflow as tf

    def keep(*parts):
        batch = _element(dataset, parts)
        rows = _rows(batch)
        if not isinstance(rows, int):
            batch = tf.nest.map_structure(lambda part: _never_empty(part, rows), batch)
        zero = tf.constant(0.0, tf.float64)
        return Share(batch, tf.cast(rows, tf.int64), tf.constant(-1, tf.int64), zero, zero)

    return dataset.map(keep, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).prefetch(2)


def shard(dataset, rank, size):
    """A dataset of `Share`s: every `size`-th batch of `dataset`, beginning with number `rank`."""
    return whole(dataset.shard(size, rank))


def shard_steps(steps, rank, size):
    """How many of `steps` batches `shard` leaves to `rank`; None stays None."""
    return None if steps is None else (steps - rank + size - 1) // size


def _element(dataset, parts):
    """What tf.data passes to a function as arguments, as the element that it was."""
    return parts if isinstance(dataset.element_spec, tuple) else parts[0]


def _leaves(batch):
    import tensorflow as tf

    return [part for part in tf.nest.flatten(batch) if isinstance(part, (tf.Tensor, tf.RaggedTensor, tf.SparseTensor))]


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


def _fingerprint(batch, total):
    """(projection, scale) of the rows at both ends of a batch; float64 scalars."""
    import tensorflow as tf

    check = scale = tf.cast(total, tf.float64)
    for part in _leaves(batch):
        if not isinstance(part, tf.Tensor):
            continue
        ends = tf.concat([part[:_FINGERPRINT_ROWS], part[-_FINGERPRINT_ROWS:]], 0)
        if part.dtype == tf.string:
            ends = tf.strings.to_hash_bucket_fast(ends, 1 << 20)
        values = tf.cast(tf.reshape(ends, [tf.shape(ends)[0], -1])[:, :_FINGERPRINT_VALUES], tf.float64)
        values = tf.reshape(tf.where(tf.math.is_finite(values), values, 0.0), [-1])
        index = tf.cast(tf.range(tf.size(values)), tf.float64)
        weights = 0.5 + tf.math.floormod(index * _GOLDEN_RATIO, 1.0)
        check += tf.reduce_sum(values * weights)
        scale += tf.reduce_sum(tf.abs(values) * weights)
    return check, scale
