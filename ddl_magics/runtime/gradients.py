"""The exchange of gradients in every step of an all-reduce run.

Gradients are weighted by rows: sum of rows_k g_k over sum of rows_k is the gradient of the mean over the global batch.
Dense ones are summed in one flat buffer for each dtype. Sparse ones (IndexedSlices, as an Embedding has) are laid one
after the other in the order of the ranks, which is what one process has of the whole batch, repeated indices included.
"""

import struct
from typing import NamedTuple

import numpy as np

from . import collective
from .buffers import ALIGNMENT_BYTES, Buffers
from .outcome import NAN_ADVICE, NotANumber
from .parts import STEP, Part
from .rank import NOT_FINITE, UNCHECKED
from .reduce import note_stop, part
from .share import fingerprint, same_batch

#: More sparse gradients than this of one variable and rank are refused rather than held in memory n times.
MAX_SPARSE_BYTES = 1 << 30

#: Of a run's batches those whose fingerprints are compared: the first ones, then one in so many. A shuffle that differs
#: shows in the first.
FIRST_FINGERPRINTS, FINGERPRINT_EVERY = 16, 16

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

        dense = [i for i, gradient in enumerate(gradients) if tf.is_tensor(gradient) and not is_sparse(gradient)]
        sparse = [i for i, gradient in enumerate(gradients) if is_sparse(gradient)]
        given = [gradients[i] for i in dense]
        for i in sparse:
            given += [gradients[i].indices, gradients[i].values]
        told = self.told(share)

        def exchange(*arrays):
            about, arrays = arrays[: len(told)], arrays[len(told) :]
            dense_arrays, sparse_arrays = arrays[: len(dense)], arrays[len(dense) :]
            batch = self.batch(about, sums, sparse_arrays)
            return self._exchange(batch, dense_arrays, sparse_arrays)

        reduced = tf.numpy_function(self._context.guarded(exchange), told + given, [tensor.dtype for tensor in given])
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

    # What every way of exchanging them needs.

    def told(self, share):
        """What `batch` wants to know of a share, as tensors."""
        import tensorflow as tf

        if share is None:
            return [tf.constant(1, tf.int64), tf.constant(-1, tf.int64)]
        return [share.rows, share.total, *share.sample]

    def batch(self, told, sums, sparse=()):
        """What this rank knows of its batch, and says of it, from what was `told`; sparse: indices and values."""
        rows, total, *sample = told
        rows = float(rows)
        # Where only this rank knows its rows, those of the step before are a guess at everybody's.
        known = float(total) if total >= 0 else self._total
        flags = UNCHECKED if total < 0 else 0
        if self._check_finite and not all(np.isfinite(values).all() for values in sparse[1::2]):
            flags |= NOT_FINITE
        done = self._context.exchanges
        if done < FIRST_FINGERPRINTS or done % FINGERPRINT_EVERY == 0:
            check, scale = fingerprint(sample, total)
        else:
            check = scale = float(total)
        mine = part(self._context, STEP, rows, flags, check, scale)
        return _Batch(mine, rows, known, (1.0 if rows else 0.0) if sums else rows / known, sums)

    def sum(self, number, flat, mine):
        """Sums buffer `number` of a step over the ranks; their parts."""
        return self._context.ring.allreduce(flat, mine)

    def settle(self, flat, parts, batch, dense):
        """Checks what the ranks said with a sum, and brings that to the mean over all rows."""
        context = self._context
        note_stop(context, parts)
        _check(context, parts)
        if self._check_finite and not np.isfinite(flat).all():
            self._blame(dense, batch.weight)
        rows = sum(each.weight for each in parts)
        if not batch.sums and rows not in (0, batch.total):
            flat *= flat.dtype.type(batch.total / rows)
        self._total = rows or 1.0

    # One buffer after all gradients are there.

    def _exchange(self, batch, dense, sparse):
        context = self._context
        context.exchanges += 1
        result = [None] * len(dense)
        if self._layouts is None:
            self._layouts = _layouts(dense)
        for number, layout in enumerate(self._layouts):
            flat = self._buffers.take(layout.dtype, layout.size)
            layout.fill(flat, dense, batch.weight)
            parts = self.sum(number, flat, batch.part)
            context.note_collective()
            self.settle(flat, parts, batch, dense)
            layout.scatter(flat, dense, result)
        for indices, values in zip(sparse[::2], sparse[1::2]):
            result += self._gather(indices, values, batch.rows, batch.sums)
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


class _Batch(NamedTuple):
    """What a rank says of its batch; its rows and everybody's; what its gradients weigh in the sum.

    sums: the loss is a sum over rows.
    """

    part: Part
    rows: float
    total: float
    weight: float
    sums: bool


def is_sparse(gradient):
    """Whether a gradient is IndexedSlices."""
    return hasattr(gradient, "indices") and hasattr(gradient, "values") and hasattr(gradient, "dense_shape")


class Layout:
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
    return [Layout(dtype, arrays) for dtype in sorted({array.dtype for array in arrays}, key=str)] or [
        Layout(np.dtype(np.float32), ())
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
