"""The exchange of gradients in every step of an all-reduce run.

Gradients are weighted by rows: sum of rows_k g_k over sum of rows_k is the gradient of the mean over the global batch.
Dense ones are summed in one flat buffer for each dtype. Sparse ones (IndexedSlices, as an Embedding has) are laid one
after the other in the order of the ranks, which is what one process has of the whole batch, repeated indices included.
"""

import struct

import numpy as np

from . import collective
from .buffers import ALIGNMENT_BYTES, Buffers
from .outcome import NAN_ADVICE, NotANumber
from .parts import STEP
from .rank import NOT_FINITE, UNCHECKED
from .reduce import note_stop, part
from .share import same_batch

#: More sparse gradients than this of one variable and rank are refused rather than held in memory n times.
MAX_SPARSE_BYTES = 1 << 30

_WEIGHT = struct.Struct("=d")


class GradientExchange:
    """Sums the gradients of one optimizer over the ranks, inside the training step."""

    def __init__(self, context, check_finite):
        self._context, self._check_finite = context, check_finite
        self._buffers, self._layouts = Buffers(), None
        self._total = 1.0  # rows of the last step

    def __call__(self, gradients, share, sums):
        """Gradients (tensors, IndexedSlices or None) -> the job's, same order. Called while the step is traced.

        share: the `Share` in work, or None outside of `fit`: then ranks count alike. sums: the loss is a sum over rows,
        not a mean.
        """
        import tensorflow as tf

        dense = [i for i, gradient in enumerate(gradients) if tf.is_tensor(gradient) and not _is_sparse(gradient)]
        sparse = [i for i, gradient in enumerate(gradients) if _is_sparse(gradient)]
        given = [gradients[i] for i in dense]
        for i in sparse:
            given += [gradients[i].indices, gradients[i].values]
        if share is None:
            told = [tf.constant(1, tf.int64), tf.constant(-1, tf.int64)] + [tf.constant(0.0, tf.float64)] * 2
        else:
            told = [share.rows, share.total, share.check, share.scale]

        def exchange(rows, total, check, scale, *arrays):
            try:
                said = _Said(int(rows), int(total), float(check), float(scale))
                return self._exchange(said, arrays[: len(dense)], arrays[len(dense) :], sums)
            except BaseException as error:
                self._context.error = self._context.error or error
                raise

        reduced = tf.numpy_function(exchange, told + given, [tensor.dtype for tensor in given])
        result = list(gradients)
        for i, after in zip(dense, reduced):
            after.set_shape(gradients[i].shape)
            result[i] = after
        pairs = iter(reduced[len(dense) :])
        for i in sparse:
            indices, values = next(pairs), next(pairs)
            indices.set_shape([None])
            values.set_shape([None] + gradients[i].values.shape.as_list()[1:])
            result[i] = tf.IndexedSlices(values, indices, gradients[i].dense_shape)
        return result

    def _exchange(self, said, dense, sparse, sums):
        context = self._context
        context.exchanges += 1
        # Where only this rank knows its rows, those of the step before are a guess at everybody's.
        total = said.total if said.total >= 0 else self._total
        weight = (1.0 if said.rows else 0.0) if sums else said.rows / total
        flags = UNCHECKED if said.total < 0 else 0
        if self._check_finite and not all(np.isfinite(values).all() for values in sparse[1::2]):
            flags |= NOT_FINITE
        mine = part(context, STEP, float(said.rows), flags, said.check, said.scale)
        result = [None] * len(dense)
        if self._layouts is None:
            self._layouts = _layouts(dense)
        for layout in self._layouts:
            flat = self._buffers.take(layout.dtype, layout.size)
            layout.fill(flat, dense, weight)
            parts = context.ring.allreduce(flat, mine)
            context.note_collective()
            note_stop(context, parts)
            _check(context, parts)
            if self._check_finite and not np.isfinite(flat).all():
                self._blame(dense, weight)
            rows = sum(each.weight for each in parts)
            if not sums and rows not in (0, total):
                flat *= layout.dtype.type(total / rows)
            self._total = rows or 1.0
            layout.scatter(flat, dense, result)
        for indices, values in zip(sparse[::2], sparse[1::2]):
            result += self._gather(indices, values, said.rows, sums)
        return result

    def _blame(self, dense, weight):
        """Raises on all ranks, as all have the same sum, what is told of those whose own gradients are not finite."""
        context = self._context
        fine = not weight or all(np.isfinite(array).all() for array in dense)
        gathered = context.ring.gather(bytes([fine]), part(context, STEP), 1)
        _refuse(context, [rank for rank, each in enumerate(gathered) if each == b"\0"])

    def _gather(self, indices, values, rows, sums):
        """The slices of all ranks: [indices, values]."""
        context = self._context
        weight = float(bool(rows)) if sums else float(rows)
        if not weight:
            indices, values = indices[:0], values[:0]
        payload = _WEIGHT.pack(weight) + indices.tobytes() + values.tobytes()
        gathered = context.ring.gather(payload, part(context, STEP), MAX_SPARSE_BYTES)
        context.note_collective()
        row_bytes = indices.itemsize + values.itemsize * int(np.prod(values.shape[1:]))
        total = sum(_WEIGHT.unpack_from(one)[0] for one in gathered)
        all_indices, all_values = [], []
        for one in gathered:
            count = (len(one) - _WEIGHT.size) // row_bytes
            all_indices.append(np.frombuffer(one, indices.dtype, count, _WEIGHT.size))
            begin = _WEIGHT.size + count * indices.itemsize
            theirs = np.frombuffer(one, values.dtype, offset=begin).reshape((count,) + values.shape[1:])
            share = 1.0 if sums else _WEIGHT.unpack_from(one)[0] / total
            all_values.append(theirs * values.dtype.type(share))
        return [np.concatenate(all_indices), np.concatenate(all_values)]


class _Said:
    """What a rank knows of its batch, as numbers."""

    def __init__(self, rows, total, check, scale):
        self.rows, self.total, self.check, self.scale = rows, total, check, scale


def _is_sparse(gradient):
    return hasattr(gradient, "indices") and hasattr(gradient, "values") and hasattr(gradient, "dense_shape")


class _Layout:
    """Where the arrays of one dtype have their place in a flat buffer of `size` elements.

    Each begins where TensorFlow takes it over without a copy.
    """

    def __init__(self, dtype, arrays):
        self.dtype = dtype
        self._places, self._gaps = [], []
        step, end = max(1, ALIGNMENT_BYTES // dtype.itemsize), 0
        for i, array in enumerate(arrays):
            if array.dtype != dtype:
                continue
            begin = -(-end // step) * step
            if begin > end:
                self._gaps.append(slice(end, begin))
            end = begin + array.size
            self._places.append((i, slice(begin, end)))
        self.size = end

    def fill(self, flat, arrays, weight):
        """Lay the arrays, times `weight`, into the buffer. A weight of zero makes zeros, also of NaN."""
        if not weight:
            flat.fill(0)
            return
        for gap in self._gaps:
            flat[gap] = 0
        weight = self.dtype.type(weight)
        for i, place in self._places:
            np.multiply(arrays[i].reshape(-1), weight, out=flat[place])

    def scatter(self, flat, arrays, result):
        """Put into `result` what the buffer has in place of each array."""
        for i, place in self._places:
            result[i] = flat[place].reshape(arrays[i].shape)


def _layouts(arrays):
    """One for each dtype. With sparse gradients alone there still is what the ranks tell each other."""
    return [_Layout(dtype, arrays) for dtype in sorted({array.dtype for array in arrays}, key=str)] or [
        _Layout(np.dtype(np.float32), ())
    ]


def _check(context, parts):
    """The ranks must have trained on the same global batch, and on numbers."""
    broken = [rank for rank, each in enumerate(parts) if each.flags & NOT_FINITE]
    if broken:
        _refuse(context, broken)
    first = parts[0]
    for rank, each in enumerate(parts):
        if (each.flags | first.flags) & UNCHECKED or same_batch(each.check, each.scale, first.check, first.scale):
            continue
        message = (
            "rank %d and rank 0 read different data at step %d of epoch %d: seed every random choice of the input "
            "pipeline, or mark data that is each rank's own with ddl.local()"
        )
        raise collective.Diverged(rank, 0, message % (rank, context.step + 1, context.epoch + 1))


def _refuse(context, ranks):
    """Raises what is told of gradients that are no numbers: those of `ranks`, or their sum alone."""
    whose = "the sum of the gradients"
    if ranks:
        whose = "the gradient of %s %s" % ("ranks" if len(ranks) > 1 else "rank", ", ".join(map(str, ranks)))
    message = "%s is NaN or infinite at step %d of epoch %d; %s"
    message %= (whose, context.step + 1, context.epoch + 1, NAN_ADVICE)
    raise NotANumber(ranks[0] if ranks else 0, message)
