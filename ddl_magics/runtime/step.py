"""One training or test step on a rank's share of a batch, around Keras' own or the user's step function."""

import tensorflow as tf

from .share import Share

NOT_COMPILED = "a step is not compiled by XLA: its BatchNormalization or its masked loss is summed up over the workers"


class StepHook:
    """A step function that takes a `Share`: tells the context what is in work, and undoes a step without rows.

    A rank that has no row of a batch must still take part in its collective: it computes on one row of weight zero, and
    its metrics and BatchNorm statistics are put back afterwards.
    """

    def __init__(self, hooks, model, step, compiled=False):
        """compiled: by XLA, all but the exchange of gradients and the update that follows it."""
        self._hooks, self._context, self._model = hooks, hooks.context, model
        self._step = step
        self._run = self._run_compiled if compiled else step

    def __call__(self, data):
        context = self._context
        if not isinstance(data, Share):
            return self._run(data)
        if self._hooks.training:
            context.row_counter.assign_add(data.rows)
        context.last_rows.assign(data.rows)
        if context.size == 1:
            return self._step(data.batch)
        self._hooks.build(self._model, self._step, data.batch)
        variables = self._state()
        before = [tf.identity(variable) for variable in variables]
        context.begin_step(data)
        put_back = self._weigh_losses(data)
        try:
            logs = self._run(data.batch)
            if context.loss_sums and self._model.losses:
                raise ValueError(
                    "a loss with reduction='sum' beside regularisation cannot be put together from the workers' "
                    "shares; use a mean, or --strategy ps"
                )
        finally:
            for undo in put_back:
                undo()
            context.end_step()
        tf.cond(data.rows > 0, lambda: tf.constant(0), lambda: _restore(variables, before))
        return logs

    def _run_compiled(self, batch):
        """The step compiled by XLA up to its gradients; they are exchanged, and applied, behind it."""
        aside = []

        def step():
            self._hooks.put_aside = []
            try:
                logs = self._step(batch)
                aside[:] = self._hooks.put_aside
            finally:
                self._hooks.put_aside = None
            return logs, [gradients for _, gradients, _ in aside]

        within = self._hooks.within
        within.left_out = False
        compiled = tf.function(step, jit_compile=True, autograph=False).get_concrete_function()
        if within.left_out:
            self._context.tell_once("info", NOT_COMPILED)
            return self._step(batch)
        logs, exchanged = compiled()
        for (apply, _, scaled), gradients in zip(aside, exchanged):
            self._hooks.apply_reduced(apply, gradients, scaled)
        return logs

    def _state(self):
        states = [variable for metric in self._model.metrics for variable in metric.variables]
        return [
            getattr(v, "value", v) if not callable(getattr(v, "value", v)) else v
            for v in states + self._hooks.statistics(self._model)
        ]

    def _weigh_losses(self, data):
        """Have the metrics that average losses count this rank's share. Returns functions that end it."""
        context = self._context
        rows, total = tf.cast(data.rows, tf.float64), tf.cast(data.total, tf.float64)
        total = tf.where(total < 0, rows * context.size, total)

        def of_rows(value, weight):
            if context.loss_sums:  # the average is over batches, of which this is a part
                value = value * tf.cast(total / tf.maximum(rows, 1.0), value.dtype)
            return value, weight

        def of_batches(value, weight):
            return of_rows(value, rows / total)

        return [
            _change_update(metric, of_batches if counts_batches else of_rows)
            for metric, counts_batches in self._hooks.loss_trackers(self._model)
        ]


def _change_update(metric, change):
    """Pass what `metric` is updated with through `change`, until the function that is returned is called."""
    original, own = metric.update_state, metric.__dict__.get("update_state")

    def update_state(value, sample_weight=None):
        value, weight = change(value, sample_weight)
        return original(value, sample_weight=weight)

    def undo():
        if own is None:
            object.__delattr__(metric, "update_state")
        else:  # Keras 2 keeps one in each metric
            object.__setattr__(metric, "update_state", own)

    object.__setattr__(metric, "update_state", update_state)
    return undo


def _restore(variables, before):
    for variable, value in zip(variables, before):
        variable.assign(value)
    return tf.constant(0)
