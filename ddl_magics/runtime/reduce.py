"""What the ranks of an all-reduce run share beside gradients: metrics, the wish to stop, weights at the start."""

import numpy as np

from . import strategies
from .parts import BARRIER, EPOCH, USER, WEIGHTS, Part
from .rank import STOP_FIT, STOP_RUN


def part(context, kind, weight=1.0, flags=0, check=0.0, scale=0.0):
    """What this rank says of itself in a collective."""
    place = (0, 0, context.calls) if kind in (USER, BARRIER) else (max(0, context.fit), context.epoch, context.place)
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


def sum_metrics(context, kind, metrics, averaged):
    """Make the states of `metrics` those of the whole job, and `averaged` variables the mean over ranks."""
    states = [variable for metric in metrics for variable in metric.variables]
    for metric in metrics:
        for single in getattr(metric, "metrics", None) or [metric]:  # Keras 3 has one metric of all in `compile`
            _check_additive(context, single)
    values = [np.asarray(variable) for variable in states]
    values += [np.asarray(variable) / context.size for variable in averaged]
    flat = np.concatenate([np.asarray(value, np.float64).reshape(-1) for value in values] or [np.zeros(0)])
    parts = context.ring.allreduce(flat, part(context, kind))
    note_stop(context, parts)
    assign(states + list(averaged), flat)


def flat(variables):
    """The values of variables, one after the other, in a new flat buffer of the widest of their dtypes."""
    return np.concatenate([np.asarray(variable).reshape(-1) for variable in variables])


def assign(variables, flat):
    """Fill variables, one after the other, from a flat buffer."""
    for variable, value in _pieces(variables, flat):
        variable.assign(value)


def add(variables, flat):
    """Add a flat buffer to variables, one after the other."""
    for variable, value in _pieces(variables, flat):
        variable.assign_add(value)


def _pieces(variables, flat):
    begin = 0
    for variable in variables:
        count = int(np.prod(variable.shape))
        value = flat[begin : begin + count].reshape(tuple(variable.shape))
        yield variable, value.astype(_numpy_dtype(variable))
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
    weight = float(context.last_rows.numpy())
    values = [float(np.asarray(logs[name])) if weight else 0.0 for name in names]
    flat = np.array([weight * value for value in values] + [weight], np.float64)
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
        variable.assign(flat[begin : begin + value.nbytes].view(value.dtype).reshape(tuple(variable.shape)))
        begin += value.nbytes


def allreduce(context, value, op, kind=USER):
    """`ddl.allreduce` of the cell, and as `kind` BARRIER its `ddl.barrier`."""
    if op not in ("mean", "sum"):
        raise ValueError("op is %r; it must be 'mean' or 'sum'" % (op,))
    array = np.asarray(value)
    if context.strategy in strategies.APART:
        raise RuntimeError(
            "ddl.allreduce and ddl.barrier need --strategy allreduce; workers of --strategy %s do not meet"
            % context.strategy
        )
    if context.workers == 1:
        return array
    if op == "mean" and array.dtype.kind in "biu":
        array = array.astype(np.float64)
    flat = np.array(array, copy=True).reshape(-1)
    context.ring.allreduce(flat, part(context, kind))
    context.calls += 1
    return (flat / context.workers if op == "mean" else flat).reshape(array.shape)
