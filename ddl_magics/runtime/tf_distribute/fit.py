"""tf-allreduce and tf-ps: the reports of a `model.fit` that TensorFlow's strategy distributes.

A callback reports what keras_hooks.py reports elsewhere, and ends the fit when the run is to stop. Nothing inside Keras
is changed. Keras 3 has no fit for these strategies: its cells write their own loop.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, Callable

import keras

from ..gradients import reduce
from ..keras_types import Model
from ..rank.rank import Rank
from ..stopping import StopRun
from ..strategies import TF_ALLREDUCE
from ..training import share
from ..training.fit_in_progress import FitInProgress
from ..training.fit_reporter import FitReporter
from ..trial.patching import wrap

_NO_FIT = (
    "model.fit of Keras %s does not run under --strategy %s: write the loop with strategy.run, take tf_keras, or leave "
    "it to --strategy allreduce, which needs no change to the cell"
)


def install(rank: Rank) -> None:
    """Hook the Keras of this process, and tf_keras where the cell names it."""
    rows = _Rows()
    packages = [keras]
    if "tf_keras" in rank.config.spec.cell:
        import tf_keras

        packages.append(tf_keras)
    for package in packages:
        _hook(package, rank, rows)


class _Rows:
    """Counts rows where Keras' steps do not: every batch counts as a full one."""

    total = 0


class _Reporter(FitReporter):
    def __init__(self, rank: Rank, model: Model, rows: _Rows, rows_each: int) -> None:
        """rows_each: of a step, on this rank."""
        super().__init__(rank, FitInProgress(model), rows)
        self._counter, self._rows_each = rows, rows_each
        # Else ParameterServerStrategy, whose steps end later than they are asked for, refuses what looks at each.
        self._supports_tf_logs = True

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        peers, stop = self._rank.peers, self._rank.stop
        self._counter.total += self._rows_each
        super().on_train_batch_end(batch, logs if isinstance(logs, dict) else {})  # else it is not known yet
        if peers.ring is not None:  # all leave after the same step
            reduce.agree_on_stop(peers)
        if stop.asked if peers.ring is None else stop.agreed:
            self.model.stop_training = True


def _hook(package: ModuleType, rank: Rank, rows: _Rows) -> None:
    config, stop = rank.config, rank.stop
    base = _Reporter if package is keras else type("TfKerasReporter", (_Reporter, package.callbacks.Callback), {})

    def fit(original: Callable[..., Any], model: Model, *args: Any, **kwargs: Any) -> Any:
        if package.__version__.startswith("3."):
            raise NotImplementedError(_NO_FIT % (package.__version__, config.spec.strategy))
        if stop.asked:
            raise StopRun
        batch = _rows(args[0] if args else kwargs.get("x"), kwargs.get("batch_size"))
        batch = batch or config.spec.batch_size or 0  # what is not known is `dataset`, of --data
        reporter = base(rank, model, rows, batch // (config.workers if config.spec.strategy == TF_ALLREDUCE else 1))
        callbacks = kwargs.get("callbacks") or []
        kwargs["callbacks"] = (list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks]) + [reporter]
        kwargs["verbose"] = 0 if not config.is_chief else 2 if kwargs.get("verbose") in (None, "auto", 1) else 0
        rank.begin_fit(model)
        try:
            history = original(model, *args, **kwargs)
        finally:
            rank.end_fit()
        if stop.run_agreed or stop.asked:
            raise StopRun
        return history

    wrap(package.Model, "fit", fit)


def _rows(data: Any, batch_size: int | None) -> int:
    """Rows of a full batch of what `fit` is given: arrays, or a tf.data.Dataset; 0 where that is not known."""
    if hasattr(data, "shape"):
        return batch_size or 32
    sizes = (getattr(dataset, "_batch_size", None) for dataset in share.lineage(data))
    return int(next((size for size in sizes if size is not None), 0))


def models(namespace: dict[str, Any]) -> list[Model]:
    """The Keras models among a cell's variables: those that a loop of its own has trained."""
    packages = [sys.modules[name] for name in ("keras", "tf_keras") if name in sys.modules]
    kinds = tuple(package.Model for package in packages)
    models_by_id = {id(value): value for value in namespace.values() if isinstance(value, kinds) and value.built}
    return list(models_by_id.values())
