"""Running the cell on a rank: its names, its data, its last expression, its fitted models."""

from __future__ import annotations

import ast
import contextlib
import difflib
import functools
import json
import os
import sys
import types
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, Sequence, Tuple

from ..data import file_share, rank_data, reader, share_files, transform
from ..data.all_rows import AllRows
from ..files import names as file_names
from ..files import written
from ..keras_types import Dataset, Metric, Model, array_of
from ..monitoring import at_training
from ..random_streams import CellStreams, Streams
from ..rank.rank import Rank
from ..variables.left import FILE as VARIABLES_FILE
from ..variables.left import CellVariables
from . import function_sources, names, pipelines, set_order, suggestions
from .ending import CELL_FILE, is_stop
from .pictures import Pictures

if TYPE_CHECKING:
    import numpy as np

    from ..data.records import SetName

#: A JSON result up to this size travels inside its event; a larger one would not fit a poll's reply.
MAX_INLINE_RESULT_BYTES = 16 * 1024
MAX_REPR_CHARACTERS = 10_000
_BEGINS_ANEW = (
    "%s shuffles by a seed, in another order each time that it is read, and begins here with its first order; where "
    "earlier cells have read it, make it again inside the cell for the orders of one process"
)
_OTHER_ORDER = (
    "%s is a set of texts, which workers iterate in another order than the notebook; "
    "sorted(%s) has the same order in both"
)
_SHARED = (
    "this host allows no overlay of the notebook's folder, so these are not kept apart: %s; child processes and native "
    "libraries of all ranks would change the notebook's own files there: have them write new files, by relative paths"
)
#: (a name, what is called with its value).
OnceDefined = Tuple[str, Callable[[Any], None]]
#: In the cell's namespace, what a statement that is added to it calls.
_CALL = "__ddl_transform__"


def run(rank: Rank) -> None:
    """Execute the cell; on the chief, report its value, also when it was stopped its models, and always its files."""
    rank.files.enter()
    shared = _shared_files(rank)
    if rank.peers.is_chief and shared:
        rank.reporter.notice("info", _SHARED % file_names.listed(shared))
    try:
        _run(rank)
    finally:
        if rank.peers.is_chief:
            _send_files(rank)


def _shared_files(rank: Rank) -> list[str]:
    """What code that is not hooked changes in the notebook's folder itself, from all ranks: names, and ways to it."""
    folder, cell = rank.config.spec.folder, rank.config.spec.cell
    if rank.files.is_mirror and folder and folder in cell:
        return [*rank.files.links, "absolute paths"]
    return rank.files.links


def _send_files(rank: Rank) -> None:
    warn = functools.partial(rank.reporter.notice, "warning")
    written.send(rank.files.written(), rank.reporter.send_file, warn)
    removed = rank.files.removed()
    if removed:
        message = "removed by the cell, and kept in the notebook's folder: "
        rank.reporter.notice("info", message + file_names.listed(removed))
    outside = rank.files.outside()
    if outside:
        warn("written outside of the notebook's folder, which does not come back: " + file_names.listed(outside))


def _run(rank: Rank) -> None:
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    namespace = module.__dict__
    pictures = _pictures(rank)
    with open(os.path.join(rank.config.scratch, "names.pkl"), "rb") as file:
        mentioned, streams = names.unpack(file.read(), rank.config.spec.continues_streams)
    of_functions = {name for name in namespace if not name.startswith("__")}
    if "display" not in namespace or names.is_ipythons(namespace["display"]):
        namespace["display"] = pictures.display
    if rank.peers.is_chief:
        for name in pipelines.begin_anew(namespace):
            rank.reporter.notice("info", _BEGINS_ANEW % name)
        for name in set_order.iterated(rank.config.spec.cell, namespace):
            rank.reporter.notice("warning", _OTHER_ORDER % (name, name))
    unmentioned = {name: value for name, value in namespace.items() if name not in mentioned}  # but by functions
    datasets = _datasets(rank)
    if rank.config.spec.transform is None:
        namespace.update(_marked(rank, datasets, lambda name, dataset: dataset))
    values = suggestions.Suggestions(rank.config.spec.set or {}, searched=rank.config.spec.trial is not None)
    namespace["ddl"] = Helper(rank, values)
    if rank.cluster is not None:
        namespace["strategy"] = rank.cluster.strategy
    left = _variables(rank, mentioned | of_functions, namespace, streams)
    try:
        with rank.stop.interruptible():
            value = execute(rank.config.spec.cell, namespace, _transform(rank, datasets, namespace))
            for callback in rank.at_cell_end:
                callback()
            pictures.show_figures()
    except BaseException as error:
        if is_stop(error, rank):
            _report_namespace(rank, left, unmentioned, namespace, finished=False)
            at_training.report(rank)
        raise
    _report_namespace(rank, left, unmentioned, namespace, finished=True)
    if rank.cluster is not None:
        rank.cluster.wait_for_all()
    if rank.peers.is_chief:
        _hint_alone(rank)
        for name in values.unused():
            rank.reporter.notice("warning", "--set %s: the cell has not asked for this parameter" % name)
        report_result(value, rank)
        if value is not None:
            pictures.show(value)
    at_training.report(rank)  # last: a call may change a model's state


def _new_or_changed(before: Mapping[str, Any], namespace: Mapping[str, Any]) -> dict[str, Any]:
    """The variables that are not these with these values."""
    return {name: value for name, value in namespace.items() if name not in before or before[name] is not value}


def _pictures(rank: Rank) -> Pictures:
    """Those of this rank: an ensemble's members show what they trained, other ranks what the chief shows."""
    config = rank.config
    emit = functools.partial(rank.reporter.emit, "picture")
    warn = functools.partial(rank.reporter.notice_once, "warning")
    pictures = Pictures(emit, warn, config.models, lambda: config.in_ensemble or rank.peers.is_chief)
    os.environ["MPLBACKEND"] = "Agg"  # not that of the notebook, which this process has inherited
    pictures.hook(config.spec.cell)
    return pictures


def _hint_alone(rank: Rank) -> None:
    """Say so where the ranks have had nothing to do with each other: a model that is not this Keras', or none."""
    config, progress = rank.config, rank.progress
    if config.size > 1 and progress.fit < 0 and not progress.cell_collectives and not progress.exchanges:
        import keras

        message = "the cell fitted no model of Keras %s: each of the %d workers ran all of it for itself"
        rank.reporter.notice("warning", message % (keras.__version__, config.size))


def _datasets(rank: Rank) -> dict[str, Dataset]:
    """`dataset` and `validation` of --data."""
    config, cluster = rank.config, rank.cluster
    if not config.manifest:
        return {}
    folder = os.path.join(config.scratch, "data")
    number, count = config.share_of_data(config.rank)
    shares = [share_files.share_rows(config.manifest, name, number) for name in share_files.SETS]
    size = rank_data.row_bytes(config.manifest)

    def report(rows: int, seconds: float) -> None:
        if rank.peers.is_chief:
            rank.reporter.emit("reading", rows=rows, of=sum(shares), row_bytes=size, seconds=seconds)

    stopped = lambda: rank.stop.asked  # noqa: E731
    for notice in file_share.finish(rank.reading, config.manifest, folder, number, stopped, report):
        rank.reporter.notice("info", notice)
    batch = config.spec.batch_size
    if cluster is not None and batch:  # the global one, which its strategy would not cut
        batch = max(1, batch // config.workers)
    rank.data_epochs = reader.Epochs()
    dataset, validation = rank_data.datasets(
        folder, config.manifest, number, count, batch, config.seed, config.reduces_gradients, rank.data_epochs
    )
    return {"dataset": dataset} if validation is None else {"dataset": dataset, "validation": validation}


def _marked(
    rank: Rank, datasets: Mapping[str, Dataset], transformed: Callable[[str, Dataset], Dataset]
) -> dict[str, Dataset]:
    """`transformed`(name, dataset) of each, as the cell has them, which say whose share they are."""
    made = {name: transformed(name, dataset) for name, dataset in datasets.items()}
    if rank.cluster is not None:
        return {name: rank.cluster.distribute(dataset) for name, dataset in made.items()}
    import tensorflow as tf

    from ..training import derived_datasets
    from ..training.share import mark_alike, mark_local

    config = rank.config
    assert config.manifest is not None or not datasets
    if config.manifest is not None:
        folder = os.path.join(config.scratch, "data")
        number, _ = config.share_of_data(config.rank)
        all_rows = AllRows(config.manifest, folder, number, config.spec.batch_size, rank.peers.gather_rows)
        for name, dataset in made.items():
            set_name: SetName = "train" if name == "dataset" else "validation"

            def whole(name: str = name, set_name: SetName = set_name) -> Dataset:
                return transformed(name, all_rows.dataset(tf, set_name))

            derived_datasets.mark(dataset, derived_datasets.Origin(whole, not all_rows.is_whole(set_name)))
    if config.whole_data:
        for dataset in datasets.values():
            mark_alike(dataset)
        return made
    return {name: mark_local(dataset) for name, dataset in made.items()}


def _transform(rank: Rank, datasets: Mapping[str, Dataset], namespace: dict[str, Any]) -> OnceDefined | None:
    """What gives the cell its datasets with --transform: once the function is there, which the cell may define."""
    if rank.config.spec.transform is None:
        return None
    import tensorflow as tf

    name, by_batch = transform.read(rank.config.spec.transform)

    def give(function: Any) -> None:
        if not callable(function):
            raise TypeError("--transform %s: it is no function, but of type %s" % (name, type(function).__name__))

        def transformed(dataset_name: str, dataset: Dataset) -> Dataset:
            for_rows = transform.for_rows(function, dataset_name == "dataset")
            try:
                return transform.mapped(tf, dataset, for_rows, by_batch)
            except Exception as error:  # of the function, of many kinds, while TensorFlow makes a graph of it
                raise TransformError(_of_transform(name, error)) from error

        namespace.update(_marked(rank, datasets, transformed))

    return name, give


class TransformError(Exception):
    """The function of --transform does not work on what `dataset` has."""


def _of_transform(name: str, error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    traced = lines[0] == "in user code:"  # by AutoGraph: the error is its last line
    cause = lines[-1].strip() if traced else "%s: %s" % (type(error).__name__, lines[0].rstrip("."))
    hint = ""
    if "symbolic" in str(error).lower():
        hint = "; TensorFlow makes a graph of the function: call tf and keras.ops in it, or tf.numpy_function"
    return "--transform %s: %s%s" % (name, cause, hint)


def execute(source: str, namespace: dict[str, Any], once_defined: OnceDefined | None = None) -> Any:
    """Run `source` in `namespace`; the value of its last statement if that is an expression, else None.

    once_defined: (name, what is called with its value), as soon as `namespace` or `source` has defined the name.
    """
    function_sources.remember({CELL_FILE: source})
    tree = ast.parse(source, CELL_FILE)
    if once_defined is not None:
        _call_once_defined(tree, namespace, *once_defined)
    statement = tree.body[-1] if tree.body else None
    if not isinstance(statement, ast.Expr):
        exec(compile(tree, CELL_FILE, "exec"), namespace)
        return None
    del tree.body[-1]
    exec(compile(tree, CELL_FILE, "exec"), namespace)
    return eval(compile(ast.Expression(statement.value), CELL_FILE, "eval"), namespace)


def _call_once_defined(tree: ast.Module, namespace: dict[str, Any], name: str, call: Callable[[Any], None]) -> None:
    index = names.defining_statement(tree, name)
    if index is None:
        call(namespace[name])
        return
    namespace[_CALL] = call
    (added,) = ast.parse("%s(%s)" % (_CALL, name)).body
    for node in ast.walk(added):
        ast.copy_location(node, tree.body[index])
    tree.body.insert(index + 1, added)


#: What `Helper` sets for each rank.
_ATTRIBUTES = ("rank", "size", "seed", "strategy")


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError("ddl.log: %s must be a number, not %.80r" % (name, value)) from None


class Helper:
    """`ddl` in the cell: who this rank is, and the few things that ranks do together.

    Attributes:
        rank: this worker's number, from 0: int.
        size: the number of workers, with MIN..MAX that at the beginning: int.
        is_chief: True on the rank whose output, files and model come back: rank 0. With --workers MIN..MAX another rank
            takes over when rank 0 is lost: bool.
        seed: the run's seed, in an ensemble this rank's: int.
        strategy: the strategy of tf.distribute with `--strategy tf-allreduce` and `tf-ps`, else None.
    """

    def __init__(self, rank: Rank, values: suggestions.Suggestions) -> None:
        config = rank.config
        self._reporter, self._peers, self._training = rank.reporter, rank.peers, rank.training
        self._config = config
        self.rank, self.size, self.seed = config.rank, config.workers, config.rank_seed
        self.strategy = None if rank.cluster is None else rank.cluster.strategy
        self._suggestions = values

    @property
    def is_chief(self) -> bool:
        return self._peers.is_chief

    def __getattr__(self, name: str) -> Any:
        """Called for what `ddl` does not have."""
        attributes = [attribute for attribute in (*vars(Helper), *_ATTRIBUTES) if not attribute.startswith("_")]
        matches = difflib.get_close_matches(name, attributes, 1)
        raise AttributeError("ddl has no %s%s" % (name, "; did you mean %s?" % matches[0] if matches else ""))

    def suggest_float(
        self,
        name: str,
        low: float,
        high: float,
        *,
        step: float | None = None,
        log: bool = False,
        default: Any = suggestions.NO_DEFAULT,
    ) -> float:
        """The value of a parameter: in a search the trial's, else that of `--set NAME=VALUE`, else `default`.

        It is equal on all ranks. The arguments are those of Optuna.

        Args:
            name: in quotes, different from those of other parameters.
            low, high: the value is between them, or one of them.
            step: the value is on a grid from `low` on.
            log: a search samples the logarithm.
            default: the value of an ordinary run.

        Raises:
            ValueError: the parameter has no value, or one that is out of range.
        """
        parameter = suggestions.suggest_float(name, low, high, step=step, log=log, default=default)
        return float(self._suggestions.value(parameter))

    def suggest_int(
        self,
        name: str,
        low: int,
        high: int,
        *,
        step: int = 1,
        log: bool = False,
        default: Any = suggestions.NO_DEFAULT,
    ) -> int:
        """Like `suggest_float`, for a whole number."""
        parameter = suggestions.suggest_int(name, low, high, step=step, log=log, default=default)
        return int(self._suggestions.value(parameter))

    def suggest_categorical(
        self, name: str, choices: Sequence[suggestions.Choice], *, default: Any = suggestions.NO_DEFAULT
    ) -> Any:
        """Like `suggest_float`, for one of `choices`: texts, numbers, True, False or None."""
        return self._suggestions.value(suggestions.suggest_categorical(name, choices, default=default))

    def log(self, step: int | None = None, **metrics: Any) -> None:
        """Report numbers of your own; they appear beside the metrics of the fit and in `run.metrics`.

        Args:
            step: the step that they belong to, 0 or more.
            metrics: name=number.

        Raises:
            ValueError: `step` is negative.
            TypeError: a value is no number, or has no name.
        """
        if isinstance(step, str):
            raise TypeError("write the name before the number: ddl.log(%s=0.5)" % step)
        if step is not None and step < 0:
            raise ValueError("step must be 0 or more, not %s" % step)
        at = None if step is None else int(step)  # of NumPy or TensorFlow, perhaps
        numbers = {name: _number(name, value) for name, value in metrics.items()}
        self._reporter.emit("values", metrics=numbers, step=at)

    def allreduce(self, value: Any, op: str = "mean") -> np.ndarray:
        """`value` summed or averaged over the ranks: an ndarray of its shape. Every rank must call it.

        Args:
            value: a number or an array, of the same shape and dtype on every rank.
            op: "mean" or "sum".

        Raises:
            ValueError: another `op`.
            RuntimeError: with `--strategy ps`, `ensemble` and `tf-ps`, whose ranks do not meet.
        """
        from ..gradients.reduce import allreduce

        return allreduce(self._peers, value, op)

    def barrier(self) -> None:
        """Wait until every rank is here. Every rank must call it."""
        from ..collectives.announcement import BARRIER
        from ..gradients.reduce import allreduce

        allreduce(self._peers, 0.0, "mean", BARRIER)

    def all_gather(self, tensor: Any) -> Any:
        """The rows of `tensor` of all ranks, one rank after the other: a tensor of shape (rows of all, ...).

        It has a gradient: use it in a train_step, a layer or a loss that looks at the whole batch. Every rank must
        call it. Where a rank has the whole batch, as in `predict`, the result is `tensor`.

        Args:
            tensor: numbers of shape (rows of this rank, ...), equal on all ranks but for the rows.

        Raises:
            RuntimeError: the strategy's ranks do not take each step together.
        """
        if self._training is None or (self._config.size > 1 and not self._config.reduces_gradients):
            raise RuntimeError("ddl.all_gather needs --strategy allreduce, whose workers take every step together")
        return self._training.all_gather(tensor)

    def local(self, dataset: Dataset) -> Dataset:
        """Mark a tf.data.Dataset as this rank's own share, so that `fit` does not cut it again."""
        from ..training.share import mark_local

        return mark_local(dataset)

    def all_rows(self, dataset: Dataset) -> Dataset:
        """`dataset` or `validation` of `--data`, or what was made from one, with the rows of all ranks.

        They come in the order of the DataFrame or the files, in batches of `--batch-size` rows (32 by default), and so
        do not depend on the number of workers. The first call for each of the two exchanges rows: afterwards every rank
        has all rows of that set on its disk. So every rank must make the call. `adapt` of a layer of Keras makes it.

        Args:
            dataset: a tf.data.Dataset. One that has nothing of `--data` is returned as it is.

        Raises:
            ValueError: the dataset was made in a way that is not known, or marked by `ddl.local`.
            RuntimeError: with `--strategy tf-allreduce` and `tf-ps`; or another worker does not come.
        """
        if self._training is None:
            raise RuntimeError("ddl.all_rows needs a strategy of this library; use --strategy allreduce or ps")
        return self._training.all_rows(dataset)

    def distribute(self, data: Any, reduction: str | None = None) -> Any:
        """This rank's rows of each batch, for a training loop of your own.

        A batch's first axis is its rows; rank k of n gets the rows floor(k b / n) to floor((k + 1) b / n) of b. If
        there are none, it gets one row that the loss does not count. The updates of Keras' optimizers that follow are
        those of the whole batch.

        Args:
            data: a tf.data.Dataset, or another iterable of batches; the result is an iterable of the slices, and each
                iteration begins the data anew. Or one batch of arrays or tensors: the result is its slice, of the
                same structure.
            reduction: how your loss is made of its rows, "mean" (also if left out) or "sum".

        Raises:
            ValueError: the parts of a batch have different numbers of rows.
            RuntimeError: it is called inside a tf.function, or the strategy's ranks do not take each step together.
        """
        config = self._config
        if self._training is None or (config.size > 1 and not config.reduces_gradients):
            instead = "strategy.experimental_distribute_dataset" if self.strategy else "model.fit"
            raise RuntimeError(
                "ddl.distribute needs --strategy allreduce; with --strategy %s, use %s"
                % (config.spec.strategy, instead)
            )
        return self._training.distribute(data, reduction)

    def result(self, metric: Metric) -> Any:
        """`metric.result()` of a Keras metric over the rows of all ranks. Its state stays this rank's.

        Every rank must call it.

        Raises:
            ValueError: the metric's state does not start at zero.
            RuntimeError: the strategy's ranks do not meet: with `--strategy ps`.
        """
        return metric.result() if self._training is None else self._training.result(metric)

    def __repr__(self) -> str:
        return "ddl: rank %d of %d" % (self.rank, self.size)


def _variables(
    rank: Rank, of_notebook: set[str], namespace: Mapping[str, Any], streams: Streams | None
) -> CellVariables | None:
    """Those of the cell on the chief, before it runs, where they are to come back. streams: the session's."""
    if not ((rank.peers.is_chief or rank.config.regroups) and rank.config.spec.returns_variables):
        return None
    try:
        return CellVariables(rank.config.spec.cell, of_notebook, namespace, CellStreams(streams))
    except Exception as error:  # of the notebook's own objects, which are compared, of many kinds
        _warn_of_variables(rank, error)
        return None


def _warn_of_variables(rank: Rank, error: Exception) -> None:
    message = "the cell's variables do not come back (%s: %s)" % (type(error).__name__, error)
    rank.reporter.notice("warning", message[:MAX_REPR_CHARACTERS])


def _report_namespace(
    rank: Rank, left: CellVariables | None, unmentioned: Mapping[str, Any], namespace: dict[str, Any], finished: bool
) -> None:
    """Send the models that the cell has trained, and what it has left in its variables, unless that is nothing."""
    if left is not None:
        left.note_streams()
    models = _report_models(rank, _new_or_changed(unmentioned, namespace))
    if left is None or not rank.peers.is_chief:
        return
    try:
        packed = left.packed(namespace, models, finished)
    except Exception as error:  # of the cell's own objects, of many kinds
        return _warn_of_variables(rank, error)
    if packed is not None:
        path = os.path.join(rank.config.scratch, VARIABLES_FILE)
        with open(path, "wb") as file:
            file.write(packed)
        rank.reporter.send_artifact(VARIABLES_FILE, path)


def _report_models(rank: Rank, namespace: dict[str, Any]) -> Sequence[Model]:
    """Send every model fitted in the cell, from the chief, as `model-K.keras` and its weights as `weights-K.npz`.

    The other members of an ensemble send theirs, too, with `rank-R-` before these names. Returns the models in this
    order; of a rank that sends none, nothing.
    """
    config, cluster = rank.config, rank.cluster
    if not (rank.peers.is_chief or config.in_ensemble):
        if cluster is not None:
            cluster.save_with_chief(rank.models, namespace)
        return ()
    import numpy as np

    prefix = "" if rank.peers.is_chief else "rank-%d-" % config.rank
    models = rank.models if cluster is None else cluster.models(rank.models, namespace)
    for index, model in enumerate(models):
        weights = os.path.join(config.scratch, "weights-%d.npz" % index)
        np.savez(weights, *_weights(model))
        rank.reporter.send_artifact(prefix + "weights-%d.npz" % index, weights)
        path = os.path.join(config.scratch, "captured-%d.keras" % index)
        problem = _save(model, path)
        if problem is None:
            rank.reporter.send_artifact(prefix + "model-%d.keras" % index, path)
        else:
            message = "%smodel %d (%s) %s; its weights are kept" % (prefix, index, model.name, problem)
            rank.reporter.notice("warning", message[:MAX_REPR_CHARACTERS])
    return models


def _weights(model: Model) -> Sequence[Any]:
    """The arrays of `model.get_weights`, without a copy of all of them in memory."""
    import numpy as np

    if all(hasattr(weight, "assign") and hasattr(weight, "shape") for weight in model.weights):
        return [array_of(weight) for weight in model.weights]
    return [np.asarray(value) for value in model.get_weights()]  # tables of Keras 2 are among them


@contextlib.contextmanager
def _without_copies_in_memory() -> Iterator[None]:
    """Keras 3 writes weights and the optimizer's state to the disk; it has all of them in memory first, if they fit."""
    saving: Any = sys.modules.get("keras.src.saving.saving_lib")
    chooses = getattr(saving, "is_memory_sufficient", None)
    if chooses is None:
        yield
        return
    saving.is_memory_sufficient = lambda model: False
    try:
        yield
    finally:
        saving.is_memory_sufficient = chooses


def _save(model: Any, path: str) -> str | None:
    """Write a model as a .keras file; why it cannot be, or None. Its training has ended well in either case."""
    try:
        with _without_copies_in_memory():
            type(model).save(model, path)  # not the cell's own attribute `save`
    except Exception as error:  # of the cell's own layers, of many kinds
        return "cannot be saved as a .keras file (%s)" % error
    return None


def _is_finite(value: Any) -> bool:
    """Whether a JSON value has no NaN and no infinity, which an event cannot have."""
    try:
        json.dumps(value, default=_plain, allow_nan=False)
    except ValueError:
        return False
    return True


def report_result(value: Any, rank: Rank) -> None:
    """Send the cell's value: JSON where it is JSON, an array as .npy, a model as .keras, else its repr."""
    import numpy as np

    scratch, reporter = rank.config.scratch, rank.reporter
    history = getattr(value, "history", None)
    if type(value).__name__ == "History" and isinstance(history, dict):
        value = history
    if value is None:
        return reporter.emit("result", encoding="none")
    masked = isinstance(value, np.ma.MaskedArray)
    if isinstance(value, np.ndarray) and not masked and value.ndim and value.dtype.kind in "biufc":
        path = os.path.join(scratch, "result.npy")
        np.save(path, value, allow_pickle=False)
        reporter.send_artifact("result.npy", path)
        return reporter.emit("result", encoding="npy", artifact="result.npy")
    try:
        text = json.dumps(value, default=_plain)
    except (TypeError, ValueError):
        text = None
    if text is not None and len(text) <= MAX_INLINE_RESULT_BYTES and _is_finite(value):
        return reporter.emit("result", encoding="json", value=json.loads(text))
    if text is not None:
        path = os.path.join(scratch, "result.json")
        with open(path, "w") as file:
            file.write(text)
        reporter.send_artifact("result.json", path)
        return reporter.emit("result", encoding="json", artifact="result.json")
    if _is_model(value):
        path = os.path.join(scratch, "result.keras")
        problem = _save(value, path)
        if problem is None:
            reporter.send_artifact("result.keras", path)
            return reporter.emit("result", encoding="keras", artifact="result.keras")
        message = "the value of the cell %s, so that run.result is its text" % problem
        reporter.notice("warning", message[:MAX_REPR_CHARACTERS])
    return reporter.emit("result", encoding="repr", value=repr(value)[:MAX_REPR_CHARACTERS])


def _plain(value: Any) -> Any:
    """Numbers of numpy and TensorFlow, and small arrays inside containers, as JSON knows them."""
    if hasattr(value, "numpy"):
        value = value.numpy()
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(type(value).__name__)


def _is_model(value: Any) -> bool:
    return any(
        cls.__name__ == "Model" and cls.__module__.split(".")[0] in ("keras", "tf_keras") for cls in type(value).__mro__
    )
