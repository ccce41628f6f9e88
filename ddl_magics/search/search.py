"""`Search`: a hyperparameter search as the notebook sees it, while it runs and afterwards."""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from ddl_magics import store
from ddl_magics.errors import NotInRun, SearchFailed
from ddl_magics.history import mlflow, tensorboard
from ddl_magics.options.redaction import MASK
from ddl_magics.runs import Run, live_tracking
from ddl_magics.runs.ending import Ending, search_stop_requested, why_not_ask_search
from ddl_magics.runtime import events as ev
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.search import study as studies
from ddl_magics.search import text
from ddl_magics.search import view as views
from ddl_magics.search.launcher import Launcher
from ddl_magics.search.plan import Plan, make_plan, objectives, require_optuna
from ddl_magics.search.scheduler import Scheduler
from ddl_magics.search.space import searched
from ddl_magics.search.stored_view import StoredView
from ddl_magics.search.view import SearchView
from ddl_magics.store import SearchFolder, SearchRecord

if TYPE_CHECKING:
    import optuna
    import pandas as pd
    import plotly.graph_objects as go

#: How long `stop` waits for the end of the trials.
STOP_SECONDS = 90.0


@dataclass(frozen=True)
class BestTrial:
    """The best of the finished trials.

    Attributes:
        number: of the trial, from 0.
        value: of the objective.
        params: name -> value.
    """

    number: int
    value: float
    params: dict[str, Any]
    search: Search

    @property
    def run(self) -> Run:
        """Its run: history, model, logs. Raises LookupError where it has been removed from the store."""
        return self.search.run(self.number)

    @property
    def options(self) -> str:
        """The options that give an ordinary run of the cell these values."""
        texts = studies.texts(self.params)
        return " ".join(f"--set {shlex.quote(f'{name}={value}')}" for name, value in texts.items())

    def __repr__(self) -> str:
        return f"<trial {self.number}: {self.value:.4g} with {self.options}>"


class Search:
    """A search, running or ended. Its attributes never wait."""

    def __init__(self, spec: RunSpec, folder: SearchFolder, scheduler: Scheduler | None = None) -> None:
        self.spec = spec
        self._folder = folder
        self._scheduler = scheduler
        self._study: optuna.Study | None = None
        self._over = threading.Event()

    @classmethod
    def start(cls, plan: Plan, folder: SearchFolder, launcher: Launcher) -> Search:
        """Start a new search; returns when its first trial has been started.

        Raises:
            UsageError: the cluster refuses the first trial.
        """
        scheduler = Scheduler(plan, folder, launcher, time.time())
        scheduler.begin()
        return cls(plan.spec, folder, scheduler)._running()

    @classmethod
    def resume(cls, record: SearchRecord, launcher: Launcher) -> Search:
        """Continue a search whose kernel is gone, or which failed; the time of --timeout begins anew.

        Raises:
            UsageError: Optuna is missing, another kernel follows it, or the cluster refuses a trial.
        """
        plan, folder = make_plan(RunSpec.from_record(record.spec)), SearchFolder(record.folder)
        hidden = next((key for key, value in plan.spec.conf.items() if value == MASK), None)
        if hidden is not None:
            raise UsageError(f"{record.name} cannot be attached: --conf {hidden} is a secret, and was not stored.")
        try:
            folder.take_over()
        except store.RunInUse as error:
            raise UsageError(f"{record.name} cannot be attached: {error}.") from None
        try:
            scheduler = Scheduler(plan, folder, launcher, record.created)
            scheduler.resume()
        except Exception as error:
            folder.update({"state": ev.FAILED, "message": str(error)})
            raise
        return cls(plan.spec, folder, scheduler)._running()

    @classmethod
    def stored(cls, record: SearchRecord) -> Search:
        """A stored search that has ended, or that another kernel owns."""
        return cls(RunSpec.from_record(record.spec), SearchFolder(record.folder))

    def _running(self) -> Search:
        assert self._scheduler is not None
        self._scheduler.listen(StoredView(self._folder).show)
        name = f"ddl_magics search {self.name}"
        threading.Thread(target=self._run, args=(self._scheduler,), name=name, daemon=True).start()
        return self

    def _run(self, scheduler: Scheduler) -> None:
        """Run the search to its end, and end its live tracking."""
        try:
            scheduler.run()
            if scheduler.view.state in ev.TERMINAL:
                waits = (run.settled for run in scheduler.runs.values())
                live_tracking.end_search(self.spec, self._folder, waits)
        finally:
            self._over.set()

    @property
    def id(self) -> str:
        return self.spec.run

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def state(self) -> str:
        """RUNNING, STOPPING, FINISHED, STOPPED, FAILED or LOST."""
        if self._scheduler is not None:
            return self._scheduler.view.state
        record = self._folder.record()
        return record.state if record else ev.LOST

    @property
    def view(self) -> SearchView:
        """The search as it is now, as values."""
        return self._stored_view() if self._scheduler is None else self._scheduler.view

    def _stored_view(self) -> SearchView:
        record = self._folder.record()
        over = record is None or record.over
        (metric, direction), *further_objectives = objectives(self.spec)
        begun = record.created if record else time.time()
        return SearchView(
            id=self.id,
            name=self.name,
            state=record.state if record else ev.LOST,
            message=record.message if record else "",
            metric=metric,
            direction=direction,
            planned=self.spec.trials or 0,
            further_objectives=further_objectives,
            seconds=((record.ended if record else None) or time.time()) - begun,
            description=views.description(self.spec),
            rows=tuple(views.row(trial, waiting=over) for trial in studies.own_trials(self.study)),
            space=searched(self.spec.cell, self.spec.set or {}),
        )

    @property
    def best(self) -> BestTrial:
        """The best of the trials that have finished so far.

        Raises:
            LookupError: none has finished, or the search has several objectives.
        """
        view = self.view
        if view.further_objectives:
            raise LookupError(f"{self.name} has several objectives, and no single best trial: {self.name}.front")
        row = view.best
        if row is None or row.value is None:
            raise LookupError(f"no trial of {self.name} has finished ({view.state}).")
        return BestTrial(row.number, row.value, dict(row.params), self)

    @property
    def front(self) -> pd.DataFrame:
        """The rows of `trials` that no other finished trial beats; with one objective, that of the best."""
        numbers = [row.number for row in self.view.front]
        trials = self.trials
        return trials[trials["trial"].isin(numbers)]

    @property
    def trials(self) -> pd.DataFrame:
        """One row per trial: trial, state, value, a column for each further objective and each parameter, epochs,
        seconds, tries, reason, run.
        """
        import pandas as pd

        view = self.view
        rows, further_metrics = view.rows, [metric for metric, _ in view.further_objectives]
        names = list(dict.fromkeys(name for row in rows for name in row.params))
        table = [
            (
                *(getattr(row, field) for field in _FIELDS[:3]),
                *(row.further_values or (None,) * len(further_metrics)),
                *(row.params.get(name) for name in names),
                *(getattr(row, field) for field in _FIELDS[3:]),
            )
            for row in rows
        ]
        reserved = {*_COLUMNS, *further_metrics}
        params = (f"param_{name}" if name in reserved else name for name in names)
        columns = [*_COLUMNS[:3], *further_metrics, *params, *_COLUMNS[3:]]
        return pd.DataFrame(table, columns=columns).astype({"value": "float64"})

    @property
    def study(self) -> optuna.Study:
        """The Optuna study, for its own analyses; ask it and read it, but do not tell it anything."""
        require_optuna()
        if self._study is None:
            self._study = studies.open_study(self._folder.journal, self.spec)
        return self._study

    def run(self, trial: int) -> Run:
        """The run of a trial; the last one, if it was tried again.

        Raises:
            LookupError: there is no such trial, or its run has been removed from the store.
        """
        row = next((row for row in self.view.rows if row.number == trial), None)
        if row is None:
            raise LookupError(f"{self.name} has no trial {trial}; trials lists them.")
        live_run = None if self._scheduler is None else self._scheduler.runs.get(row.run)
        if live_run is not None:
            return live_run
        record = store.find_run(row.run) if row.run else None
        if record is None:
            raise LookupError(f"the run of trial {trial} of {self.name} is not stored.")
        return Run.stored(record)

    def figure(self, plot: str = "history") -> go.Figure:
        """A plotly figure: history, curves, importances, parallel, slice, contour, rank, edf or timeline.

        With several objectives it shows the first one, and there is also front.

        Raises:
            ValueError: there is no such plot, or too few trials have finished for it.
        """
        return studies.figure(self.study, plot, [metric for metric, _ in objectives(self.spec)])

    def to_tensorboard(self, folder: str | Path) -> list[Path]:
        """Write each trial as `Run.to_tensorboard` does; its HParams tab compares them. Returns their folders."""
        logs = Path(folder).expanduser()
        written = [tensorboard.write_below(logs, run.name, run.id, run.tracking_data()) for run in self._trial_runs()]
        print(tensorboard.how_to_look(logs))
        return written

    def to_mlflow(self, uri: str, experiment: str | None = None) -> str:
        """Write the search to MLflow as a run with its trials as children; returns MLflow's id. See `Run.to_mlflow`."""
        record = self._folder.record()
        if record is None:
            raise NotInRun(f"{self.name} is not in the store any more.")
        trials = (run.tracking_data() for run in self._trial_runs())
        written = mlflow.Experiment(uri, experiment).write_search(record, trials)
        print(mlflow.how_to_look(uri))
        return written

    def _trial_runs(self) -> Iterator[Run]:
        """The last run of each trial that has one."""
        for _, runs in sorted(self._folder.runs().items()):
            yield Run.stored(runs[-1])

    def wait(self, timeout: float | None = None) -> Search:
        """Block until the search has ended.

        Raises:
            SearchFailed: it failed.
            TimeoutError: it has not ended after `timeout` seconds; it continues.
        """
        if not self.settled(timeout):
            raise TimeoutError(f"{self.name} is {self.state} after {timeout:g} s and continues.")
        if self.state == ev.FAILED:
            raise SearchFailed(f"{self.name}: {self.view.message}")
        return self

    def settled(self, timeout: float | None = None) -> bool:
        """Wait at most `timeout` seconds; returns whether the search has ended."""
        return self._scheduler is None or self._over.wait(timeout)

    def stop(self, timeout: float = STOP_SECONDS) -> Search:
        """Start no further trial, end those that run, and return when they have ended. What they reported is kept.

        Raises:
            TimeoutError: they have not ended after `timeout` seconds.
        """
        self.request_stop()
        if not self.settled(timeout):
            raise TimeoutError(f"{self.name} is still {self.state} {timeout:g} s after it was asked to stop.")
        return self

    def request_stop(self) -> None:
        """Like `stop`, but return at once."""
        if self._scheduler is not None:
            self._scheduler.request_stop()
        elif self.state not in ev.TERMINAL:
            self._folder.request("stop")

    def stop_trial(self, trial: int) -> None:
        """End a trial after its current step, and return at once. It counts as pruned, and the search continues.

        Raises:
            LookupError: there is no such trial, it does not run, or another kernel follows the search.
        """
        row = next((row for row in self.view.rows if row.number == trial), None)
        if self._scheduler is None or row is None or row.state in views.ENDED_STATES:
            raise LookupError(f"trial {trial} of {self.name} does not run, or not in this kernel.")
        self._scheduler.request_stop_trial(trial)

    def abandon(self) -> None:
        """Leave the search as it is, as the kernel exits."""
        if self._scheduler is not None:
            self._scheduler.abandon()

    def listen(self, listener: Callable[[SearchView], None]) -> None:
        """Call `listener` with the search as it is now, and again when it changes: of a search here, in its thread."""
        if self._scheduler is not None:
            self._scheduler.listen(listener)
        else:
            listener(self.view)

    def __repr__(self) -> str:
        return text.summary(self.view)


def ask_to_stop(search: Search) -> Ending:
    """Ask a search to end, also one of another kernel."""
    unasked = why_not_ask_search(search.name, search.state)
    if unasked is None:
        search.request_stop()
    return unasked or search_stop_requested(search.name)


#: Fields of a `TrialRow`, and their columns in `Search.trials`.
_FIELDS = ("number", "state", "value", "epochs", "seconds", "tries", "reason", "run")
_COLUMNS = ("trial", *_FIELDS[1:])
