"""Running the cell on a rank: its names, its data, its last expression, its fitted models."""

import ast
import json
import linecache
import os
import sys
import types

from . import feed_share, names
from .outcome import CELL_FILE
from .rank import StopRun

#: A JSON result up to this size travels inside its event; a larger one would not fit a poll's reply.
MAX_INLINE_RESULT_BYTES = 16 * 1024
MAX_REPR_CHARACTERS = 10_000


def run(config, context):
    """Execute the cell; on the chief, report its value and its models also when it was stopped."""
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    namespace = module.__dict__
    with open(os.path.join(config["scratch"], "names.pkl"), "rb") as file:
        namespace.update(names.unpack(file.read()))
    namespace.update(_data(config, context))
    namespace["ddl"] = Helper(context)
    if context.cluster is not None:
        namespace["strategy"] = context.cluster.strategy
    try:
        with context.interruptible():
            value = execute(config["cell"], namespace)
    except (StopRun, KeyboardInterrupt):
        _report_models(context, namespace)
        raise
    _report_models(context, namespace)
    if context.cluster is not None:
        context.cluster.wait_for_all()
    if context.is_chief:
        _hint_alone(context)
        report_result(value, context)


def _hint_alone(context):
    """Say so where the ranks have had nothing to do with each other: a model that is not this Keras', or none."""
    if context.size > 1 and context.fit < 0 and not context.calls and not context.exchanges:
        import keras

        message = "the cell fitted no model of Keras %s: each of the %d workers ran all of it for itself"
        message %= (keras.__version__, context.size)
        context.emit("notice", level="warning", message=message)


def _data(config, context):
    if not config["manifest"]:
        return {}
    folder = os.path.join(config["scratch"], "data")
    own = context.own_steps or context.in_ensemble or context.cluster is not None
    strategy, batch = "ps" if own else config["strategy"], config["batch_size"]  # whose batches the worker's own are
    if context.cluster is not None and batch:  # the global one, which its strategy would not cut
        batch = max(1, batch // context.workers)
    dataset, validation = feed_share.datasets(
        folder, config["manifest"], context.rank, context.workers, batch, config["seed"], strategy
    )
    from .share import mark_local

    mark = mark_local if context.cluster is None else context.cluster.distribute
    given = {"dataset": mark(dataset)}
    if validation is not None:
        given["validation"] = mark(validation)
    return given


def execute(source, namespace):
    """Run `source` in `namespace`; the value of its last statement if that is an expression, else None."""
    linecache.cache[CELL_FILE] = (len(source), None, source.splitlines(True), CELL_FILE)
    tree = ast.parse(source, CELL_FILE)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, CELL_FILE, "exec"), namespace)
    if last is None:
        return None
    return eval(compile(ast.Expression(last.value), CELL_FILE, "eval"), namespace)


class Helper:
    """`ddl` in the cell: who this rank is, and the few things that ranks do together.

    rank, size: int; is_chief: True on rank 0; seed: the run's, in an ensemble this rank's; strategy: tf.distribute's,
    with `--strategy tf-allreduce` and `tf-ps`.
    """

    def __init__(self, context):
        self._context = context
        self.rank, self.size, self.is_chief, self.seed = context.rank, context.workers, context.is_chief, context.seed
        self.strategy = None if context.cluster is None else context.cluster.strategy

    def log(self, step=None, **metrics):
        """Report numbers of your own; they appear beside the metrics of the fit and in `run.metrics`."""
        self._context.emit("values", metrics={k: float(v) for k, v in metrics.items()}, step=step)

    def allreduce(self, value, op="mean"):
        """`value` (number or array, same shape and dtype on every rank) summed or averaged over the ranks: an ndarray.

        Every rank must call it. ValueError for another `op`; RuntimeError with `--strategy ps`: ranks do not meet.
        """
        from .reduce import allreduce

        return allreduce(self._context, value, op)

    def barrier(self):
        """Wait until every rank is here."""
        from .parts import BARRIER
        from .reduce import allreduce

        allreduce(self._context, 0.0, "mean", BARRIER)

    def local(self, dataset):
        """Say of a tf.data.Dataset that it is this rank's own share already, so that `fit` does not cut it again."""
        from .share import mark_local

        return mark_local(dataset)

    def __repr__(self):
        return "ddl: rank %d of %d" % (self.rank, self.size)


def _report_models(context, namespace):
    """Send every model fitted in the cell, from the chief, as `model-K.keras` and its weights as `weights-K.npz`.

    The other members of an ensemble send theirs, too, with `rank-R-` before these names.
    """
    if not (context.is_chief or context.in_ensemble):
        if context.cluster is not None:
            context.cluster.save_with_chief(context.models, namespace)
        return
    import numpy as np

    whose = "" if context.is_chief else "rank-%d-" % context.rank
    models = context.models if context.cluster is None else context.cluster.models(context.models, namespace)
    for index, model in enumerate(models):
        weights = os.path.join(context.scratch, "weights-%d.npz" % index)
        np.savez(weights, *[np.asarray(value) for value in model.get_weights()])
        context.send_artifact(whose + "weights-%d.npz" % index, weights)
        path = os.path.join(context.scratch, "captured-%d.keras" % index)
        try:
            type(model).save(model, path)
        except Exception as error:  # a model that Keras cannot save still has its weights
            message = "%smodel %d (%s) cannot be saved as a .keras file (%s); its weights are kept" % (
                whose,
                index,
                model.name,
                error,
            )
            context.emit("notice", level="warning", message=message[:MAX_REPR_CHARACTERS])
        else:
            context.send_artifact(whose + "model-%d.keras" % index, path)


def report_result(value, context):
    """Send the cell's value: JSON where it is JSON, an array as .npy, a model as .keras, else its repr."""
    import numpy as np

    history = getattr(value, "history", None)
    if type(value).__name__ == "History" and isinstance(history, dict):
        value = history
    if value is None:
        return context.emit("result", encoding="none")
    if isinstance(value, np.ndarray) and value.ndim and value.dtype.kind in "biufc":
        path = os.path.join(context.scratch, "result.npy")
        np.save(path, value, allow_pickle=False)
        context.send_artifact("result.npy", path)
        return context.emit("result", encoding="npy", artifact="result.npy")
    try:
        text = json.dumps(value, default=_plain)
    except (TypeError, ValueError):
        text = None
    if text is not None and len(text) <= MAX_INLINE_RESULT_BYTES:
        return context.emit("result", encoding="json", value=json.loads(text))
    if text is not None:
        path = os.path.join(context.scratch, "result.json")
        with open(path, "w") as file:
            file.write(text)
        context.send_artifact("result.json", path)
        return context.emit("result", encoding="json", artifact="result.json")
    if _is_model(value):
        path = os.path.join(context.scratch, "result.keras")
        value.save(path)
        context.send_artifact("result.keras", path)
        return context.emit("result", encoding="keras", artifact="result.keras")
    return context.emit("result", encoding="repr", value=repr(value)[:MAX_REPR_CHARACTERS])


def _plain(value):
    """Numbers of numpy and TensorFlow, and small arrays inside containers, as JSON knows them."""
    if hasattr(value, "numpy"):
        value = value.numpy()
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(type(value).__name__)


def _is_model(value):
    return any(
        cls.__name__ == "Model" and cls.__module__.split(".")[0] in ("keras", "tf_keras") for cls in type(value).__mro__
    )
