"""What the ranks of an all-reduce run sum up: gradients at every step, metrics at every epoch, weights at the start.

Gradients are weighted by rows: sum of rows_k g_k over sum of rows_k is the gradient of the mean over the global batch.
"""

import numpy as np

from . import collective
from .outcome import NotANumber
from .parts import BARRIER, EPOCH, STEP, USER, WEIGHTS, Part
from .rank import NOT_FINITE, STOP_FIT, STOP_RUN, UNCHECKED
from .share import same_batch


def part(context, kind, weight=1.0, flags=0, check=0.0, scale=0.0):
    """What this rank says of itself in a collective."""
    place = (0, 0, context.calls) if kind in (USER, BARRIER) else (max(0, context.fit), context.epoch, context.step)
    return Part(kind, place[0], place[1], place[2], weight, flags | stop_flags(context), check, scale)


def stop_flags(context):
    return (STOP_FIT if context.stop_requested else 0) | (STOP_RUN if context.stop_asked else 0)


def note_stop(context, parts):
    """What any rank wants, all do: they read it in the same collective."""
    flags = 0
    for each in parts:
        flags |= each.flags
    context.stop_agreed = context.stop_agreed or bool(flags & (STOP_FIT | STOP_RUN))
    context.run_stop_agreed = context.run_stop_agreed or bool(flags & STOP_RUN)


class GradientExchange:
    """Sums the gradients of one optimizer over the ranks, inside the training step."""

    def __init__(self, context, check_finite):
        self._context, self._check_finite = context, check_finite

    def __call__(self, gradients, share, sums):
        """Gradients (tensors, IndexedSlices or None) -> the job's, same order. Called while the step is traced.

        share: the `Share` in work, or None outside of `fit`: then ranks count alike. sums: the loss is a sum over rows,
        not a mean.
        """
        import tensorflow as tf

        at = [i for i, gradient in enumerate(gradients) if gradient is not None]
        dense = [tf.convert_to_tensor(gradients[i]) for i in at]
        if share is None:
            told = [tf.constant(1, tf.int64), tf.constant(-1, tf.int64), tf.constant(0.0, tf.float64)]
            told.append(told[-1])
        else:
            told = [share.rows, share.total, share.check, share.scale]

        def exchange(rows, total, check, scale, *arrays):
            try:
                return self._exchange(int(rows), int(total), float(check), float(scale), arrays, sums)
            except BaseException as error:
                self._context.error = self._context.error or error
                raise

        reduced = tf.numpy_function(exchange, told + dense, [gradient.dtype for gradient in dense])
        result = list(gradients)
        for i, before, after in zip(at, dense, reduced):
            after.set_shape(before.shape)
            result[i] = after
        return result

    def _exchange(self, rows, total, check, scale, arrays, sums):
        context = self._context
        flags = UNCHECKED if total < 0 else 0
        result = [None] * len(arrays)
        for dtype in sorted({array.dtype for array in arrays}, key=str):
            mine = [i for i, array in enumerate(arrays) if array.dtype == dtype]
            flat = _weighted(arrays, mine, dtype, 1 if sums and rows else rows)
            if self._check_finite and not np.isfinite(flat.sum()):
                flags |= NOT_FINITE
            parts = context.ring.allreduce(flat, part(context, STEP, float(rows), flags, check, scale))
            context.waited += context.ring.waited
            note_stop(context, parts)
            _check(context, parts)
            if not sums:
                flat /= dtype.type(sum(each.weight for each in parts))
            _scatter(flat, arrays, mine, result)
        context.exchanged_rows += rows
        return result


def _weighted(arrays, chosen, dtype, weight):
    """The chosen arrays times `weight`, one after the other in a new buffer. Zero weight makes zeros, also of NaN."""
    flat = np.empty(sum(arrays[i].size for i in chosen), dtype)
    if not weight:
        flat.fill(0)
        return flat
    begin = 0
    for i in chosen:
        end = begin + arrays[i].size
        np.multiply(arrays[i].reshape(-1), dtype.type(weight), out=flat[begin:end])
        begin = end
    return flat


def _scatter(flat, arrays, chosen, result):
    begin = 0
    for i in chosen:
        end = begin + arrays[i].size
        result[i] = flat[begin:end].reshape(arrays[i].shape)
        begin = end


def _check(context, parts):
    """The ranks must have trained on the same global batch, and on numbers."""
    broken = [rank for rank, each in enumerate(parts) if each.flags & NOT_FINITE]
    if broken:
        ranks = ("ranks " if len(broken) > 1 else "rank ") + ", ".join(map(str, broken))
        message = (
            "the gradient of %s is NaN or infinite at step %d of epoch %d; lower the learning rate or clip gradients"
        )
        raise NotANumber(broken[0], message % (ranks, context.step + 1, context.epoch + 1))
    first = parts[0]
    for rank, each in enumerate(parts):
        if (each.flags | first.flags) & UNCHECKED or same_batch(each.check, each.scale, first.check, first.scale):
            continue
        message = (
            "rank %d and rank 0 read different data at step %d of epoch %d: seed every random choice of the input "
            "pipeline, or mark data that is each rank's own with ddl.local()"
        )
        raise collective.Diverged(rank, 0, message % (rank, context.step + 1, context.epoch + 1))


def sum_metrics(context, kind, metrics, averaged):
    """Make the states of `metrics` those of the whole job, and `averaged` variables the mean over ranks."""
    states = [variable for metric in metrics for variable in metric.variables]
    for metric in metrics:
        for single in getattr(metric, "metrics", [metric]):  # what `compile` was given comes as one metric of many
            _check_additive(context, single)
    values = [np.asarray(variable) for variable in states]
    values += [np.asarray(variable) / context.size for variable in averaged]
    flat = np.concatenate([np.asarray(value, np.float64).reshape(-1) for value in values] or [np.zeros(0)])
    parts = context.ring.allreduce(flat, part(context, kind))
    note_stop(context, parts)
    assign(states + list(averaged), flat)


def assign(variables, flat):
    """Fill variables, one after the other, from a flat buffer."""
    begin = 0
    for variable in variables:
        count = int(np.prod(variable.shape))
        value = flat[begin : begin + count].reshape(tuple(variable.shape))
        variable.assign(value.astype(_numpy_dtype(variable)))
        begin += count


def _numpy_dtype(variable):
    name = variable.dtype if isinstance(variable.dtype, str) else variable.dtype.name
    return np.float32 if name in ("bfloat16", "float16") else np.dtype(name)


def _check_additive(context, metric):
    """States that start at zero add up over ranks; others need a rule that only their author knows."""
    if id(metric) in context.additive:
        return
    before = [np.asarray(variable) for variable in metric.variables]
    metric.reset_state()
    starts_at_zero = all(not np.any(np.asarray(variable)) for variable in metric.variables)
    for variable, value in zip(metric.variables, before):
        variable.assign(value)
    if not starts_at_zero:
        raise ValueError(
            "the metric %r has a state that does not start at zero, so that it cannot be summed over workers; "
            "write it as a sum and a count, or leave it out" % metric.name
        )
    context.additive[id(metric)] = metric


def mean_logs(context, kind, logs):
    """Numbers that a custom step returned, as the mean over ranks weighted by the rows of their last step."""
    names = sorted(logs)
    weight = context.last_rows if context.last_rows is not None else 1.0
    flat = np.array([weight * float(np.asarray(logs[name])) for name in names] + [weight], np.float64)
    note_stop(context, context.ring.allreduce(flat, part(context, kind)))
    return dict(zip(names, flat[:-1] / flat[-1]))


def agree_on_stop(context):
    """At the end of an epoch: whether any rank wants to stop."""
    note_stop(context, context.ring.allreduce(np.zeros(1), part(context, EPOCH)))


def broadcast_weights(context, weights):
    """Give `weights` (variables) the values that they have on rank 0, to the bit."""
    values = [np.ascontiguousarray(np.asarray(variable)) for variable in weights]
    flat = np.concatenate([value.reshape(-1).view(np.uint8) for value in values] or [np.zeros(0, np.uint8)])
    context.ring.broadcast(flat, part(context, WEIGHTS))
    if context.is_chief:
        return
    begin = 0
    for variable, value in zip(weights, values):
        variable.assign(flat[begin : begin + value.nbytes].view(value.dtype).reshape(value.shape))
        begin += value.nbytes


def allreduce(context, value, op, kind=USER):
    """`ddl.allreduce` of the cell, and as `kind` BARRIER its `ddl.barrier`."""
    if op not in ("mean", "sum"):
        raise ValueError("op is %r; it must be 'mean' or 'sum'" % (op,))
    array = np.asarray(value)
    if context.strategy == "ps":
        raise RuntimeError(
            "ddl.allreduce and ddl.barrier need --strategy allreduce; parameter-server workers do not meet"
        )
    if context.size == 1:
        return array
    if op == "mean" and array.dtype.kind in "biu":
        array = array.astype(np.float64)
    flat = np.array(array, copy=True).reshape(-1)
    context.ring.allreduce(flat, part(context, kind))
    context.calls += 1
    return (flat / context.size if op == "mean" else flat).reshape(array.shape)
