"""One training or test step on a rank's share of a batch, around Keras' own or the user's step function."""

import tensorflow as tf

from .share import Share


class StepHook:
    """A step function that takes a `Share`: tells the context what is in work, and undoes a step without rows.

    A rank that has no row of a batch must still take part in its collective: it computes on one row of weight zero, and
    its metrics and BatchNorm statistics are put back afterwards.
    """

    def __init__(self, context, model, step):
        self._context, self._model, self._step = context, model, step

    def __call__(self, data):
        context = self._context
        if not isinstance(data, Share):
            return self._step(data)
        context.row_counter.assign_add(data.rows)
        context.last_rows.assign(data.rows)
        if context.size == 1:
            return self._step(data.batch)
        variables = self._state()
        before = [tf.identity(variable) for variable in variables]
        context.begin_step(data)
        replaced = self._weigh_losses(data)
        try:
            logs = self._step(data.batch)
            if context.loss_sums and self._model.losses:
                raise ValueError(
                    "a loss with reduction='sum' beside regularisation cannot be put together from the workers' "
                    "shares; use a mean, or --strategy ps"
                )
        finally:
            for metric in replaced:
                object.__delattr__(metric, "update_state")
            context.end_step()
        tf.cond(data.rows > 0, lambda: tf.constant(0), lambda: _restore(variables, before))
        return logs

    def _state(self):
        from .keras_fit import statistics

        states = [variable for metric in self._model.metrics for variable in metric.variables]
        return [
            getattr(v, "value", v) if not callable(getattr(v, "value", v)) else v
            for v in states + statistics(self._model)
        ]

    def _weigh_losses(self, data):
        """Keras averages the losses of several outputs, and sums of losses, without regard to how rows are cut."""
        context = self._context
        rows, total = tf.cast(data.rows, tf.float64), tf.cast(data.total, tf.float64)
        total = tf.where(total < 0, rows * context.size, total)
        replaced = []
        compiled = getattr(self._model, "_compile_loss", None)
        for metric in getattr(compiled, "metrics", ()):
            replaced.append(_replace_update(metric, lambda value, weight: (value, rows / total)))
        tracker = getattr(self._model, "_loss_tracker", None)
        if tracker is not None and context.reduces:

            def of_a_sum(value, weight):
                if not context.loss_sums:
                    return value, weight
                share = total / tf.maximum(rows, 1.0)
                return value * tf.cast(share, value.dtype), weight

            replaced.append(_replace_update(tracker, of_a_sum))
        return replaced


def _replace_update(metric, change):
    original = metric.update_state

    def update_state(value, sample_weight=None):
        value, weight = change(value, sample_weight)
        return original(value, sample_weight=weight)

    object.__setattr__(metric, "update_state", update_state)
    return metric


def _restore(variables, before):
    for variable, value in zip(variables, before):
        variable.assign(value)
    return tf.constant(0)
