"""tf-allreduce and tf-ps: what is told of a `model.fit` that TensorFlow's strategy distributes.

A callback reports what the hooks of keras_fit.py report elsewhere, and ends the fit when the run is to stop; nothing of
Keras' inside is changed. Keras 3 has no fit for these strategies: its cells write their own loop.
"""

import functools
import sys

import keras

from . import reduce
from .monitor import Monitor
from .rank import StopRun
from .strategies import TF_ALLREDUCE

_NO_FIT = (
    "model.fit of Keras %s does not run under --strategy %s: write the loop with strategy.run, take tf_keras, or leave "
    "it to --strategy allreduce, which needs no change to the cell"
)


def install(context):
    """Hook the Keras of this process, and tf_keras where the cell names it."""
    context.start_training_state()
    context.row_counter, context.taken_up = _Rows(), _Reported()
    packages = [keras]
    if "tf_keras" in context.config["cell"]:
        import tf_keras

        packages.append(tf_keras)
    for package in packages:
        _hook(package, context)


class _Rows:
    """Counts rows where Keras' steps say nothing of them: each batch for a full one."""

    def __init__(self):
        self.count = 0

    def numpy(self):
        return self.count


class _Reported:
    """The fit in progress is the run's to report: there are no checkpoints of an earlier attempt."""

    reports, skipped = True, False


class _Monitor(Monitor):
    rows = 0  # of a step, on this rank

    def __init__(self, context):
        super().__init__(context)
        # Else ParameterServerStrategy, whose steps end later than they are asked for, refuses what looks at each.
        self._supports_tf_logs = True

    def on_train_batch_end(self, batch, logs=None):
        context = self._context
        context.row_counter.count += self.rows
        super().on_train_batch_end(batch, logs if isinstance(logs, dict) else {})  # else it is not known yet
        if context.ring is not None:  # all leave after the same step
            reduce.agree_on_stop(context)
        if context.stop_asked if context.ring is None else context.stop_agreed:
            self.model.stop_training = True


def _hook(package, context):
    original = package.Model.fit
    base = _Monitor if package is keras else type("TfKerasMonitor", (_Monitor, package.callbacks.Callback), {})

    @functools.wraps(original)
    def fit(model, *args, **kwargs):
        if package.__version__.startswith("3."):
            raise NotImplementedError(_NO_FIT % (package.__version__, context.strategy))
        if context.stop_asked:
            raise StopRun
        monitor = base(context)
        rows = _rows(args[0] if args else kwargs.get("x"), kwargs.get("batch_size"))
        rows = rows or context.config["batch_size"] or 0  # what is not known is `dataset`, of --data
        monitor.rows = rows // (context.workers if context.strategy == TF_ALLREDUCE else 1)
        given = kwargs.get("callbacks") or []
        kwargs["callbacks"] = (list(given) if isinstance(given, (list, tuple)) else [given]) + [monitor]
        kwargs["verbose"] = 0 if not context.is_chief else 2 if kwargs.get("verbose") in (None, "auto", 1) else 0
        context.begin_fit(model, None)
        try:
            history = original(model, *args, **kwargs)
        finally:
            context.end_fit()
        if context.run_stop_agreed or context.stop_asked:
            raise StopRun
        return history

    package.Model.fit = fit


def _rows(data, batch_size):
    """Rows of a full batch of what `fit` is given: arrays, or a tf.data.Dataset; 0 where that is not known."""
    if hasattr(data, "shape"):
        return batch_size or 32
    waiting = [data]
    while waiting:
        one = waiting.pop()
        size = getattr(one, "_batch_size", None)
        if size is not None:
            return int(size)
        inputs = getattr(one, "_inputs", None)
        waiting.extend(inputs() if callable(inputs) else ())
    return 0


def models(namespace):
    """The Keras models among a cell's variables: what a loop of its own has trained."""
    packages = [sys.modules[name] for name in ("keras", "tf_keras") if name in sys.modules]
    kinds = tuple(package.Model for package in packages)
    found = {id(value): value for value in namespace.values() if isinstance(value, kinds) and value.built}
    return list(found.values())
