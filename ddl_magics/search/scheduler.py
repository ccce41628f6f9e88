"""Runs the trials of a search, as many at once as the cluster has room for.

One thread does everything: it starts runs, reads their events, reports to the study, prunes and ends. Nothing waits for
a whole generation of trials: a run that ends makes room for the next trial at once.
"""

from __future__ import annotations

import dataclasses
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isnan
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from ddl_magics.runs import Run
from ddl_magics.runtime import events as ev
from ddl_magics.runtime.driver.run_result import DEATHS
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.search import view as views
from ddl_magics.search.deaths import Deaths, Executor
from ddl_magics.search.launcher import Launcher
from ddl_magics.search.plan import Plan, objectives
from ddl_magics.search.scores import Scores
from ddl_magics.search.study import REASON, RUN, Study, texts, why_pruned
from ddl_magics.search.view import SearchView
from ddl_magics.store import RunInUse, SearchFolder
from ddl_magics.store.owner import HEARTBEAT_SECONDS
from ddl_magics.wording import nearest

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

#: Longest delay until a request to stop, the time limit or new room is noticed.
TICK_SECONDS = 0.5
#: Shortest time between two views of the search.
VIEW_SECONDS = 0.5
#: Runs of a trial, at most, and without --attempts the starts of its workers in each run: together as many as in an
#: ordinary run. Values that need too much memory kill every worker.
TRIES = 2
ATTEMPTS = (2, 1)
#: The search ends if so many trials have failed and no other has ended.
FAILURES = 3
#: The search ends when no trial could be started for this time, and none is running.
NO_ROOM_SECONDS = 600.0

#: How long --release waits for the models of the last trials.
FETCH_SECONDS = 600.0

#: Kinds of failures that are not the cell's: the trial is tried again.
_MACHINE = DEATHS | {"spark", "peer"}

_RECORDED_ENDS = (ev.FINISHED, ev.STOPPED, ev.FAILED)
_KINDS = frozenset(("state", "fit", "epoch", "values", "worker"))

_log = logging.getLogger(__name__)


class LiveTrial:
    """A trial that has not ended: its current run, and the values that it has reported."""

    def __init__(self, number: int, values: Mapping[str, str], metrics: Sequence[str], tries: int = 1) -> None:
        """metrics: the objectives."""
        self.number, self.values, self.tries = number, values, tries
        self._metrics = metrics
        #: Why it is being ended early; empty while it is not.
        self.pruned = ""
        self.begin()

    def begin(self, run: Run | None = None) -> None:
        """Begin its next run."""
        self.run = run
        self.scores = Scores(self._metrics[0], self._metrics[1:])
        #: Of the current fit.
        self.epochs = 0
        #: The executor of each rank that has one of its own.
        self.executors: dict[int, Executor] = {}


class Scheduler:
    """The trials of one search. `begin` or `resume`, then `run` in a thread; the other methods may be called from any.

    `view` is replaced as a whole whenever something has changed, and `listen` passes it on.
    """

    def __init__(self, plan: Plan, folder: SearchFolder, launcher: Launcher, begun: float) -> None:
        """begun: when the search began, in seconds since the epoch."""
        self.spec = spec = plan.spec
        self._folder, self._launcher, self._begun = folder, launcher, begun
        self._study = Study(folder.journal, plan)
        self._planned, self._space = spec.trials or 0, plan.space
        self._objectives = objectives(spec)
        self._metrics = [metric for metric, _ in self._objectives]
        self._metric = self._metrics[0]
        self._live: dict[int, LiveTrial] = {}
        self._deaths = Deaths(launcher.replace)
        self._events: queue.SimpleQueue[tuple[int, str, list[ev.RawEvent]]] = queue.SimpleQueue()
        self._state, self._message = ev.RUNNING, ""
        self._stop_reason = ""
        self._abandoned = False
        self._deadline = None if spec.timeout is None else time.monotonic() + spec.timeout
        self._had_room = self._last_heartbeat = time.monotonic()
        self._last_view = 0.0
        self._parallel = 0
        self._listeners: list[Callable[[SearchView], None]] = []
        self._listening = threading.Lock()
        #: The runs of this kernel, by id.
        self.runs: dict[str, Run] = {}
        self.view = self._look()

    # -- for any thread

    def listen(self, listener: Callable[[SearchView], None]) -> None:
        """Call `listener` with the present view, and with new ones in another thread. One that raises is dropped."""
        with self._listening:
            self._listeners.append(listener)
            self._notify(listener)

    def request_stop(self, reason: str = "it was asked to") -> None:
        """Start no further trial, and end those that run."""
        self._stop_reason = self._stop_reason or reason

    def request_stop_trial(self, number: int) -> None:
        """End the run of one trial, which counts as pruned; the search continues. No effect if it does not run."""
        live = self._live.get(number)
        if live is not None and live.run is not None:
            live.run.request_stop(" on request")

    def abandon(self) -> None:
        """Stop following the search, as the kernel exits: `%ddl attach` continues it."""
        self._abandoned = True

    # -- begin

    def begin(self) -> None:
        """Start the first trial.

        Raises:
            UsageError: the cluster refuses it.
        """
        self._start_next()
        self.view = self._look()

    def resume(self) -> None:
        """Continue the search of an earlier kernel: follow its live runs, and record how the others ended.

        Raises:
            UsageError: the cluster refuses a trial that is started again.
        """
        runs = self._folder.runs()
        for trial in self._study.trials:
            if trial.state.is_finished():
                continue
            records = runs.get(trial.number, [])
            deaths = sum(record.state == ev.FAILED for record in records[:-1])
            live = LiveTrial(trial.number, texts(trial.params), self._metrics, tries=1 + deaths)
            live.pruned = str(trial.user_attrs.get(REASON, ""))
            self._live[trial.number] = live
            run = self._launcher.attach(records[-1]) if records else None
            if run is None and live.pruned:
                self._study.prune(live.number, live.pruned)
                del self._live[live.number]
            elif run is None or (run.state == ev.STOPPED and not live.pruned):
                self._start(live)  # stopped but not pruned: the end of its kernel stopped it
            else:
                self._follow(live, run)
                # Without its last event, which may not be stored, the search would wait for the run.
                if records[-1].state in _RECORDED_ENDS:
                    state = ev.LOST if run.state == ev.FAILED else run.state
                    self._enqueue(live.number, run.id, [ev.make("state", ev.JOB, state=state, message=run.state)])
        self.view = self._look()

    # -- the thread of the search

    def run(self) -> None:
        """Run until the search has ended, or the kernel exits."""
        try:
            with self._failing():
                while not self._abandoned and not self._is_done():
                    self._do_housekeeping()
                    self._fill()
                    self._drain(TICK_SECONDS)
            with self._failing():
                self._end_trials()
            self._finish()
            if not self._abandoned:
                self._give_back()
        except RunInUse as error:
            _log.error("%s: this kernel leaves it", error)

    def _give_back(self) -> None:
        """Release what --release names, once the models of the trials have been fetched."""
        if self.spec.release not in (None, "no"):
            deadline = time.monotonic() + FETCH_SECONDS
            for run in list(self.runs.values()):
                run.settled(max(deadline - time.monotonic(), 0.0))
        self._launcher.give_back()

    def _is_done(self) -> bool:
        if self._stop_reason or self._state != ev.RUNNING:
            return True
        return not self._live and len(self._study.trials) >= self._planned

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """End the search at an error, and show it in the state."""
        try:
            yield
        except RunInUse:
            raise
        except UsageError as error:
            self._fail(str(error))
        except Exception as error:  # of any kind: a search without its thread must not look as if it were running
            _log.exception("the search %s cannot continue", self.spec.name)
            self._fail(f"the search cannot continue ({type(error).__name__}: {error})")

    def _fail(self, message: str) -> None:
        self._state, self._message = ev.FAILED, message

    def _do_housekeeping(self) -> None:
        """Write the heartbeat; notice requests to stop and the time limit."""
        if time.monotonic() > self._last_heartbeat + HEARTBEAT_SECONDS:
            self._last_heartbeat = time.monotonic()
            try:
                self._folder.heartbeat()
            except OSError as error:  # a full disk, for example; the trials have their own folders
                _log.error("search %s cannot be stored, and continues: %s", self.spec.name, error)
        if self._folder.requested("stop"):
            self.request_stop()
        if self._deadline is not None and time.monotonic() > self._deadline:
            self.request_stop(f"--timeout is over after {self.spec.timeout:g} s")

    def _fill(self) -> None:
        """Start trials while there is room. Each is sampled when it can start, to learn from all earlier ones."""
        while len(self._study.trials) < self._planned and not self._is_done():
            room = self._launcher.room(self.spec.workers)
            self._parallel = max(room if self.spec.parallel is None else min(room, self.spec.parallel), 0)
            waits = any(live.run is not None and live.run.state == ev.QUEUED for live in self._live.values())
            if self._live or self._parallel:
                self._had_room = time.monotonic()
            if len(self._live) >= self._parallel or waits:
                if time.monotonic() > self._had_room + NO_ROOM_SECONDS:
                    self._fail(f"no trial could be started for {NO_ROOM_SECONDS:.0f} s: the cluster does not answer")
                return
            self._start_next()

    def _start_next(self) -> None:
        trial = self._study.ask()
        live = self._live[trial.number] = LiveTrial(trial.number, trial.values, self._metrics)
        self._start(live)

    def _start(self, live: LiveTrial) -> None:
        live.begin()  # without a run, in case it is refused
        self._follow(live, self._launcher.start(trial_spec(self.spec, live.number, live.values, live.tries)))

    def _follow(self, live: LiveTrial, run: Run) -> None:
        live.begin(run)
        number, trial = live.number, next(t for t in self._study.trials if t.number == live.number)
        run_ids = list(trial.user_attrs.get(RUN, ()))
        if run.id not in run_ids:
            self._study.note(number, RUN, [*run_ids, run.id])
        self.runs[run.id] = run
        run.listen(lambda events: self._enqueue(number, run.id, events))

    def _enqueue(self, number: int, run: str, events: Sequence[ev.RawEvent]) -> None:
        read_here = [event for event in events if event["kind"] in _KINDS]
        if read_here:
            self._events.put((number, run, read_here))

    def _drain(self, seconds: float) -> None:
        """Handle the queued events; wait for the first of them at most so long."""
        try:
            number, run, events = self._events.get(timeout=seconds)
            while True:
                self._receive(number, run, events)
                number, run, events = self._events.get_nowait()
        except queue.Empty:
            pass
        if time.monotonic() > self._last_view + VIEW_SECONDS:
            self._publish()

    def _receive(self, number: int, run: str, raw_events: Sequence[ev.RawEvent]) -> None:
        for event in map(ev.parse, raw_events):
            live = self._live.get(number)
            if live is None or live.run is None or live.run.id != run or self._abandoned:
                return  # the trial has ended or has another run, or the kernel exits
            match event:
                case ev.Fit():
                    live.epochs = event.epochs
                case ev.Worker():
                    if event.executor:
                        live.executors[event.rank] = Executor(event.executor, event.host)
                case ev.State():
                    if event.state in ev.TERMINAL:
                        self._finish_trial(live, event)
                case ev.Epoch() | ev.Values():
                    self._score(live, event)

    def _score(self, live: LiveTrial, event: ev.Epoch | ev.Values) -> None:
        score = live.scores.feed(event)
        if score is None or live.pruned:
            return
        prune = self._study.report(live.number, score.step, score.value)
        is_last_epoch = isinstance(event, ev.Epoch) and event.epoch + 1 == live.epochs
        if prune and not is_last_epoch and live.run is not None and not self._stop_reason:
            live.pruned = why_pruned(self.spec.prune, self._metric, score)
            # Stored before the request to stop: another kernel must not mistake the trial for an interrupted one.
            self._study.note(live.number, REASON, live.pruned)
            live.run.request_stop(f": {live.pruned}")

    # -- the end of a trial

    def _finish_trial(self, live: LiveTrial, event: ev.State) -> None:
        state, failure = event.state, event.failure or {}
        message = str(failure.get("message") or event.message or state)
        executor = live.executors.get(failure.get("rank", ev.JOB)) if failure.get("kind") in DEATHS else None
        excused = executor is not None and self._deaths.excuses(executor)
        if state == ev.FINISHED:
            self._complete(live)
        elif state == ev.STOPPED:
            self._stopped(live)
        elif state == ev.FAILED and failure.get("kind") == "nan":
            # Pruned and not failed, so that the sampler learns to avoid these values.
            self._study.prune(live.number, f"diverged: {message}")
        elif state == ev.LOST or failure.get("kind") in _MACHINE:
            if self._may_try_again(live, excused):
                live.tries += 1
                self._start(live)
                return
            self._died(live, message)
        else:
            self._study.fail(live.number, message)
        del self._live[live.number]
        self._check_failures()

    def _complete(self, live: LiveTrial) -> None:
        missing = live.scores.missing
        if missing is not None:
            reported = ", ".join(live.scores.names) or "nothing"
            hint = nearest(missing, live.scores.names)
            self._study.fail(live.number, f"it reported no {missing}, but {reported}.{hint}".rstrip("."))
            return
        values = live.scores.values
        bad = next((name for name, value in zip(self._metrics, values, strict=True) if isnan(value)), None)
        if bad is not None:
            self._study.prune(live.number, f"diverged: {bad} is not a number")
        else:
            self._study.complete(live.number, values)

    def _stopped(self, live: LiveTrial) -> None:
        if live.pruned:
            self._study.prune(live.number, live.pruned)
        elif self._stop_reason or self._state != ev.RUNNING:
            self._study.fail(live.number, "stopped with the search")
        else:
            self._study.prune(live.number, "stopped on request")

    def _may_try_again(self, live: LiveTrial, excused: bool = False) -> bool:
        if live.pruned or self._stop_reason or self._state != ev.RUNNING:
            return False
        return live.tries < TRIES + int(excused)

    def _died(self, live: LiveTrial, message: str) -> None:
        if live.pruned:
            self._study.prune(live.number, live.pruned)
        else:
            times = f" {live.tries} times" if live.tries > 1 else ""
            self._study.fail(live.number, f"its run died{times}: {message}")

    def _check_failures(self) -> None:
        """End the search early if all trials fail, as with a mistake in the cell."""
        trials = [trial for trial in self._study.trials if trial.state.is_finished()]
        failed = [trial for trial in trials if trial.state.name == "FAIL"]
        if self._stop_reason or self._state != ev.RUNNING or len(failed) < len(trials):
            return
        reason = str(failed[-1].user_attrs.get(REASON, "")) if failed else ""
        if len(failed) >= min(FAILURES, self._planned):
            counted = f"the first {len(failed)} trials" if len(failed) > 1 else "the trial"
            self._fail(f"{counted} failed: {reason}")

    # -- the end of the search

    def _end_trials(self) -> None:
        """Stop the running trials, and wait for their ends, which the runs themselves bound."""
        if not self._live or self._abandoned:
            return
        if self._state == ev.RUNNING:
            self._state = ev.STOPPING
        self._publish()
        for live in list(self._live.values()):
            if live.run is None:
                del self._live[live.number]  # its run was refused; `%ddl attach` tries again
            elif not live.pruned:
                live.run.request_stop(" with its search")
        while self._live and not self._abandoned:
            self._do_housekeeping()
            self._drain(TICK_SECONDS)

    def _finish(self) -> None:
        if self._abandoned:
            return
        if self._state != ev.FAILED:
            self._state = ev.STOPPED if self._stop_reason else ev.FINISHED
            self._message = f"stopped: {self._stop_reason}" if self._stop_reason else ""
        self._publish()
        try:
            self._folder.update({"state": self._state, "message": self._message, "ended": time.time()})
        except OSError as error:
            _log.error("the end of search %s cannot be stored: %s", self.spec.name, error)

    # -- views

    def _publish(self) -> None:
        self._last_view = time.monotonic()
        self.view = self._look()
        with self._listening:
            for listener in list(self._listeners):
                self._notify(listener)

    def _notify(self, listener: Callable[[SearchView], None]) -> None:
        try:
            listener(self.view)
        except Exception:
            self._listeners.remove(listener)
            _log.exception("a view of search %s raised an error and is no longer updated", self.spec.name)

    def _look(self) -> SearchView:
        trials = self._study.trials
        training = {n for n, live in self._live.items() if live.run is not None and live.run.state in _TRAINING}
        return SearchView(
            id=self.spec.run,
            name=self.spec.name,
            state=self._state,
            message=self._message or self._unreported(trials) or "; ".join(self._deaths.lines()),
            metric=self._metric,
            direction=self._objectives[0][1],
            further_objectives=self._objectives[1:],
            planned=self._planned,
            seconds=time.time() - self._begun,
            description=views.description(self.spec, self._parallel),
            rows=tuple(views.row(trial, waiting=trial.number not in training) for trial in trials),
            space=self._space,
        )

    def _unreported(self, trials: Sequence[FrozenTrial]) -> str:
        """A line if trials have reported metrics, but none the objective; else empty."""
        names = next((live.scores.names for live in self._live.values() if live.scores.names), None)
        if names is None or any(trial.intermediate_values for trial in trials):
            return ""
        return f"no {self._metric} so far; the trials report {', '.join(names)}.{nearest(self._metric, names)}"


_TRAINING = frozenset((ev.RUNNING, ev.STOPPING, *ev.TERMINAL))


def trial_spec(spec: RunSpec, number: int, values: Mapping[str, str], tries: int = 1) -> RunSpec:
    """The run of a trial: that of the search, with the values of its parameters. tries: from 1."""
    cleared: dict[str, Any] = dict.fromkeys(
        ("trials", "search", "prune", "objective", "parallel", "warm_start", "timeout", "wait")
    )
    return dataclasses.replace(
        spec,
        **cleared,
        name=f"{spec.name}_{number}{'_again' if tries > 1 else ''}",
        attempts=spec.attempts or ATTEMPTS[min(tries, TRIES) - 1],
        set={**(spec.set or {}), **values},
        parent=spec.run,
        trial=number,
        release=None,  # for the search itself
    )
