"""The thread that takes a run from the queue to its end: turn, launch, events, artifacts, release.

The driver and the notebook both make events of a run. The driver numbers its events from 1; in the run, such an event
has the driver's number plus the number of events that the notebook has made so far (QUEUED, LOST, ...). The notebook's
events have attempt 0, which the driver never uses.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ddl_magics.clusters.base import (
    UNREADABLE,
    Launched,
    NotStarted,
    Polled,
    Postponed,
    Ready,
    Refused,
    Unreachable,
)
from ddl_magics.clusters.cluster import Cluster
from ddl_magics.history.keeper import Keeper
from ddl_magics.runs import cell_files
from ddl_magics.runs.live_tracking import LiveTrackers
from ddl_magics.runs.recorder import Recorder
from ddl_magics.runs.run_queue import RunQueue
from ddl_magics.runs.transfer import Transfer
from ddl_magics.runs.variables import has_variables, told
from ddl_magics.runtime import events as ev
from ddl_magics.runtime.assert_never import assert_never
from ddl_magics.runtime.bounded_log import OLD_EVENTS
from ddl_magics.runtime.files.names import listed
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.store import RunFolder, trained_models
from ddl_magics.store.snapshots import Snapshots
from ddl_magics.wording import counted

#: How long `start` waits for the driver's answer, so that a refusal can be the cell's own error.
LAUNCH_SECONDS = 3.0
#: Longest pause between two polls while nothing happens, and while there is no answer.
IDLE_POLL_SECONDS = 2.0
FAILING_POLL_SECONDS = 10.0
IDLE_POLL_FACTOR = 1.3
#: A run is LOST after this time without an answer. A gateway may be away for minutes while the training continues.
LOST_SECONDS = 600.0
#: After this time without an answer, the run's views show it.
SILENT_SECONDS = 15.0
#: How often a queued run checks whether it may start.
TURN_SECONDS = 0.5
#: Longest time in the queue.
QUEUE_SECONDS = 24 * 3600.0
#: The driver enforces --timeout; if it has not after this grace, the notebook stops the run.
TIMEOUT_GRACE_SECONDS = 30.0

_VALUES_MERGED = (
    f"ddl.log was called more than {OLD_EVENTS['values']:,} times: run.history and run.metrics have one value for "
    "several of the older calls"
)

_UNREADABLE_REPORTS = (
    "some reports of the driver cannot be read and are left out: its ddl_magics is of another version than this one"
)


def own_events(events: Sequence[ev.RawEvent]) -> int:
    """The number of a run's events that the notebook has made."""
    return sum(event.attempt == 0 for event in map(ev.parse, events))


class Follower:
    """Follows one run in a thread, from `start` or `attach` until its timeline is settled."""

    def __init__(
        self,
        spec: RunSpec,
        cluster: Cluster,
        queue: RunQueue,
        folder: RunFolder,
        namespace: Mapping[str, Any],
        events: Sequence[ev.RawEvent] = (),
    ) -> None:
        """`events`: the stored events, if the run is attached again."""
        self.spec = spec
        self.cluster = cluster
        self.recorder = Recorder(spec.run, folder, events)
        self.recorder.listen(Snapshots(folder, spec.workers, ev.parse(events[-1]).seq if events else 0).feed)
        self.recorder.listen(Keeper(spec, folder, attached=bool(events)).feed)
        self.timeline = self.recorder.timeline
        self.trackers = LiveTrackers(spec, folder, self.timeline)
        for tracker in self.trackers.trackers:
            self.recorder.listen(tracker.feed)
        self._folder = folder
        self._queue = queue
        # A copy: a queued cell must not see values that later cells assign.
        self._namespace: dict[str, Any] = dict(namespace)
        # While `start` waits for `_decided`, a refusal is its return value; afterwards it fails the run.
        self._starting = True
        self._decided = threading.Event()
        self._refused: Refused | None = None
        self._refusing = threading.Lock()
        self._wake = threading.Event()
        self._stop_wanted = False
        self._stop_reason = ""
        self._running_since: float | None = None
        self._offset = own_events(events)
        #: When the run began by this machine's clock; approximate for an attached run.
        self._began = min((event.time for event in map(ev.parse, events)), default=0.0)
        #: The notebook's folder when the run began; of an attached run, only when that was.
        self._before = cell_files.FolderState(self._began)
        self._silent = False
        self._noted_unreadable = False
        self._noted_merged = self.timeline.has_merged_values

    def start(self) -> Refused | None:
        """Begin, and wait up to `LAUNCH_SECONDS` for the driver's answer.

        Returns:
            The driver's refusal, if it came in that time: then the run has not begun. A later refusal fails the run.
        """
        self._queue.join(self.spec.run, self.spec.name)
        self._begin_thread(lambda: self._wait_for_turn() and self._launch())
        self._decided.wait(LAUNCH_SECONDS)
        with self._refusing:
            self._starting = False
            return self._refused

    def attach(self, state: str) -> None:
        """Follow a run that the driver holds, from the end of the stored events. `state`: its state at the driver."""
        self._queue.hold(self.spec.run, self.spec.workers, self.spec.name)
        # If the run has ended by now, the driver sends the events of its end.
        if self.timeline.last_seq:
            self._emit("state", state=ev.RUNNING if state in ev.TERMINAL else state, message="attached again")
        self._decided.set()
        self._begin_thread(lambda: True)

    def request_stop(self, reason: str = "") -> None:
        self._stop_reason = reason
        self._stop_wanted = True
        self._wake.set()

    def give_up(self, reason: str) -> None:
        """Mark the run as LOST: the process exits and cannot wait for the run's end."""
        self.recorder.close(ev.LOST, reason)

    def _begin_thread(self, begin: Callable[[], bool]) -> None:
        name = f"ddl_magics {self.spec.name}"
        threading.Thread(target=self._run_to_end, args=(begin,), name=name, daemon=True).start()

    def _run_to_end(self, begin: Callable[[], bool]) -> None:
        try:
            if begin():
                self._follow()
                self._queue.free(self.spec.run)
                complete = self._collect()
                self._queue.leave(self.spec.run)
                self._give_back(complete)
        except Exception as error:  # of any kind: a run without a follower must not appear to be running
            self._end_unfollowed(f"{type(error).__name__}: {error}")
        finally:
            self._namespace = {}  # release the notebook's arrays, also if the run was never launched
            self._queue.leave(self.spec.run)
            for problem in self.trackers.finish():
                self.recorder.emit("notice", level="warning", message=problem)
            self._forget_folder()
            self.timeline.settle()
            self._decided.set()

    def _forget_folder(self) -> None:
        """Release what was in the notebook's folder, which may be megabytes, if no file is left to be placed there."""
        if all(file.path for file in cell_files.cell_files(self.timeline.events()).values()):
            self._before = cell_files.FolderState(self._before.began)

    def _end_unfollowed(self, problem: str) -> None:
        """Mark the run, or its results, as lost. Stop a run that nobody can attach to: it would hold its slots."""
        if self.timeline.over:
            message = f"not all of its results could be fetched ({problem})"
            self.recorder.emit("notice", level="warning", message=message)
            return
        self.recorder.close(ev.LOST, f"the notebook could not follow the run ({problem})")
        if not self.cluster.driver_address:
            with contextlib.suppress(Exception):  # the cluster has raised one already
                self.cluster.stop(self.spec.run, ", as the notebook could not follow it")

    # Turn and launch

    def _wait_for_turn(self) -> bool:
        """False if the run ended before its turn came."""
        if self._take_turn():
            return True
        self.recorder.emit("state", state=ev.QUEUED, message=self._waits_for())
        self._decided.set()
        began = answer_time = time.monotonic()
        while not self._take_turn():
            if self._stop_due():
                self.recorder.close(ev.STOPPED, "stopped before it started")
                return False
            now, status = time.monotonic(), self.cluster.status()
            refused = self.cluster.check(self.spec, self._namespace)
            if isinstance(status, Unreachable) and status.locked_out:
                self._note_silence(status, 0.0)
                answer_time = now
            elif not isinstance(status, Unreachable) or status.busy:
                self._note_answer()
                answer_time = now
            elif status.session_ended or now > answer_time + LOST_SECONDS:
                refused = Refused("spark", status.message)
            if now > began + QUEUE_SECONDS:
                refused = Refused(
                    "slots", f"no {counted(self.spec.min_slots, 'slot')} came free: ask for fewer with --workers."
                )
            if refused is not None:
                self._fail(refused)
                return False
            self._pause(TURN_SECONDS)
        return True

    def _take_turn(self) -> bool:
        run, workers, status = self.spec.run, self.spec.workers, self.cluster.status()
        if isinstance(status, Ready):
            workers = min(workers, max(self.spec.min_slots, status.free))
        if self._restarts(status):
            return self._queue.take_alone(run, workers)
        if isinstance(status, Ready):
            return self._queue.take(run, workers, status.slots, status.free)
        if isinstance(status, NotStarted):
            # The cluster will start for this run, with the slots that it needs.
            return self._queue.take(run, workers, slots=workers, free=workers)
        if isinstance(status, Unreachable):
            return False
        assert_never(status)

    def _restarts(self, status: Ready | NotStarted | Unreachable) -> bool:
        """Whether the launch starts the cluster anew, with the slots that this run needs."""
        return isinstance(status, Ready) and self.spec.min_slots > status.slots and self.cluster.grows(self.spec)

    def _waits_for(self) -> str:
        waits = f"waits for {counted(self.spec.min_slots, 'slot')}"
        ahead = self._queue.ahead(self.spec.run)
        if not ahead:
            return waits
        names = [self._queue.name(run) for run in ahead]
        # A cell that is run again has two runs of one name, which means the newer one.
        first = ahead[0] if names[0] == self.spec.name or names.count(names[0]) > 1 else names[0]
        which = "it" if len(names) == 1 else "the first of them"
        return f"{waits}; before it: {', '.join(names)}. %ddl stop {first} ends {which}"

    def _launch(self) -> bool:
        status = self.cluster.status()
        if isinstance(status, NotStarted):
            self.recorder.emit("state", state=ev.PREFLIGHT, message=status.message)
            self._decided.set()
        elif self._restarts(status):
            message = f"Spark is restarted with {counted(self.spec.workers, 'slot')}; your variables stay"
            self.recorder.emit("state", state=ev.PREFLIGHT, message=message)
            self._decided.set()
        self._began = time.time()
        if self.spec.folder is not None:
            self._before = cell_files.FolderState.of(Path(self.spec.folder, cell_files.subfolder(self.spec)))
        answer = self.cluster.launch(self.spec, self._namespace)
        if isinstance(answer, Postponed):
            self.recorder.emit("state", state=ev.QUEUED, message=answer.message)
            self._decided.set()
        while isinstance(answer, Postponed):
            if self._stop_due():
                self.cluster.stop(self.spec.run, self._stop_reason)  # the previous statement may have begun
                self.recorder.close(ev.STOPPED, "stopped before it started")
                return False
            self._pause(TURN_SECONDS)
            if time.time() > self._began + QUEUE_SECONDS:
                answer = Refused("spark", f"the run {answer.message}: end that cell, and run this one again")
            else:
                answer = self.cluster.launch(self.spec, self._namespace)
        # The launch has sent the values; a reference would keep the notebook's arrays in memory.
        self._namespace = {}
        if isinstance(answer, Refused):
            self._fail(answer)
            return False
        if isinstance(answer, Launched):
            with contextlib.suppress(OSError):  # then Lambda layers of its models are not loaded, which says why
                trained_models.sign_run(self.spec.run)
            self._offset = self.timeline.last_seq
            self._decided.set()
            return True
        assert_never(answer)

    def _fail(self, refused: Refused) -> None:
        """Return the refusal from `start` if that still waits; otherwise fail the run."""
        with self._refusing:
            if self._starting and not self._decided.is_set():
                self._refused = refused
                return
        failure = {"rank": ev.JOB, "host": "", "kind": "spark", "message": refused.message, "traceback": ""}
        self.recorder.close(ev.FAILED, refused.message, failure)

    # Events

    def _follow(self) -> None:
        pause, answer_time, stop_sent = self.cluster.poll_seconds, time.monotonic(), False
        while not self.timeline.over:
            for problem in self.trackers.problems():
                self._emit("notice", level="warning", message=problem)
            if self._stop_due() and not stop_sent:
                stop_sent = self.cluster.stop(self.spec.run, self._stop_reason)
            answer = self.cluster.poll(self.spec.run, self.timeline.last_seq - self._offset)
            if isinstance(answer, Unreachable):
                if answer.locked_out:  # the user may be asleep
                    answer_time = time.monotonic()
                self._note_silence(answer, time.monotonic() - answer_time)
                pause = min(pause * IDLE_POLL_FACTOR, FAILING_POLL_SECONDS)
            elif isinstance(answer, Polled):
                answer_time = time.monotonic()
                self._note_answer()
                self._receive(answer)
                if answer.has_more:
                    continue
                if answer.state == ev.LOST:
                    self.recorder.close(ev.LOST, "the driver does not know the run any more")
                idle = min(pause * IDLE_POLL_FACTOR, IDLE_POLL_SECONDS)
                pause = self.cluster.poll_seconds if answer.events else idle
            else:
                assert_never(answer)
            if not self.timeline.over:
                self._pause(pause)

    def _emit(self, kind: str, **fields: Any) -> None:
        """Record an event of the notebook between those of the driver."""
        self.recorder.emit(kind, **fields)
        self._offset += 1

    def _note_silence(self, answer: Unreachable, seconds: float) -> None:
        """Report that there was no answer for `seconds`; end the run if no answer will come."""
        if answer.session_ended:
            self.recorder.close(ev.LOST, answer.message)
            return
        if (answer.locked_out or seconds > SILENT_SECONDS) and not self._silent:
            self._silent = True
            message = f"no answer for {seconds:.0f} s, still trying: {answer.message}"
            if answer.locked_out:
                message = f"{answer.message}. The run waits for that, and does not fail meanwhile"
            self._emit("notice", level="warning", message=message)
        if seconds > LOST_SECONDS:
            advice = f"; %ddl attach {self.spec.name} follows it again" if self.cluster.driver_address else ""
            self.recorder.close(ev.LOST, f"no answer for {LOST_SECONDS:.0f} s: {answer.message}{advice}")

    def _note_answer(self) -> None:
        if self._silent:
            self._silent = False
            self._emit("notice", level="info", message="the cluster answers again")

    def _receive(self, answer: Polled) -> None:
        newest = self.timeline.last_seq - self._offset
        events = [ev.parse(raw) for raw in answer.events]
        self.recorder.record([self._numbered(event) for event in events if event.seq > newest])
        if not self._noted_unreadable and any(event.kind == UNREADABLE for event in events):
            self._noted_unreadable = True
            self._emit("notice", level="warning", message=_UNREADABLE_REPORTS)
        if self.timeline.has_merged_values and not self._noted_merged:
            self._noted_merged = True
            self._emit("notice", level="warning", message=_VALUES_MERGED)
        if self._running_since is None and self.timeline.state == ev.RUNNING:
            self._running_since = time.monotonic()

    def _numbered(self, event: ev.Event) -> ev.RawEvent:
        """An event of the driver with its numbers in the run."""
        merged_from = {"first": event.first + self._offset} if event.first else {}
        return {**event.raw, "seq": event.seq + self._offset, **merged_from}

    def _stop_due(self) -> bool:
        if self._folder.requested("stop") or self._timed_out():
            self._stop_wanted = True
        return self._stop_wanted

    def _timed_out(self) -> bool:
        if self.spec.timeout is None or self._running_since is None:
            return False
        return time.monotonic() > self._running_since + self.spec.timeout + TIMEOUT_GRACE_SECONDS

    def _give_back(self, complete: bool) -> None:
        """Apply --release, if nothing else runs. complete: all results have been fetched from the driver."""
        release = self.spec.release
        if release in (None, "no") or self.timeline.state == ev.LOST or not self._queue.idle:
            return
        if release == "session" and not complete:
            message = "the session stays, as it has the only copy of what could not be fetched"
        else:
            try:
                answer = self.cluster.give_back(release)
            except Exception as error:  # of Spark or Livy, of any kind
                answer = Refused("spark", f"it failed ({type(error).__name__}: {error})")
            message = f"--release {release}: {answer.message}" if isinstance(answer, Refused) else answer
        self.recorder.emit("notice", level="info", message=message)

    def _collect(self) -> bool:
        """Fetch the results from the driver, then let it forget the run. Returns whether all were fetched."""
        if self.timeline.state == ev.LOST:
            return False
        complete = True
        with contextlib.suppress(OSError):
            trained_models.sign_models(self.spec.run, self.timeline.events())
        for artifact in ev.select(ev.Artifact, self.timeline.events()):
            if artifact.uri is None:
                name = artifact.name
                problem = self._fetch(name, name, self._folder.file(name), LOST_SECONDS)
                if problem:
                    complete = False
                    self.recorder.emit("notice", level="warning", message=f"{name} could not be fetched: {problem}")
        self._place_variables()
        return self._collect_files(complete)

    def _place_variables(self) -> None:
        """Have the driver set the variables of its session. In a kernel the notebook does it itself, between cells."""
        ended_well = self.timeline.state in (ev.FINISHED, ev.STOPPED)
        if self.cluster.in_kernel or not ended_well or not has_variables(self.timeline.events()):
            return
        deadline = time.monotonic() + LOST_SECONDS
        while True:
            try:
                brought = self.cluster.place(self.spec.run, None, (), {})
                break
            except (ConnectionError, TimeoutError, ProcessLookupError) as error:
                # A session that executes another cell sets them after it.
                if not isinstance(error, TimeoutError) or time.monotonic() > deadline:
                    message = f"its variables are not in the session: {error}; {self.spec.name}.variables has them"
                    self.recorder.emit("notice", level="warning", message=message)
                    return
            self._pause(FAILING_POLL_SECONDS)
        unloaded = dict.fromkeys(brought.waiting, "the session has not imported Keras")
        brought = dataclasses.replace(brought, absent={**brought.absent, **unloaded})
        for line in told(self.spec.name, brought, waited=False):
            self.recorder.emit("notice", level="info", message=line.replace("the notebook", "the session"))

    def _fetch(self, name: str, artifact: str, to: Path, patience: float) -> str | None:
        """Write an artifact to the file `to`. Returns None, or the problem in one line.

        Args:
            name: the artifact's name in views.
            artifact: its name at the driver.
            to: path of the file.
            patience: seconds during which temporary errors, such as a full disk, are retried: the driver may hold the
                only copy of the model.
        """
        deadline, pause = time.monotonic() + patience, self.cluster.poll_seconds
        transfer = Transfer(name, lambda event: self.recorder.notify(passing=[event]))
        reported = False
        try:
            while True:
                try:
                    return self.cluster.fetch(self.spec.run, artifact, to, transfer.progress)
                except OSError as error:
                    problem = f"{type(error).__name__}: {error}"
                if time.monotonic() >= deadline:
                    return problem
                if not reported:
                    reported = True
                    self.recorder.emit(
                        "notice", level="warning", message=f"{name} comes later, still trying: {problem}"
                    )
                self._pause(pause)
                pause = min(pause * IDLE_POLL_FACTOR, FAILING_POLL_SECONDS)
        finally:
            transfer.close()

    def _collect_files(self, complete: bool) -> bool:
        """Bring the cell's files to the notebook's folder; release the run at the driver once everything is fetched.

        complete: all artifacts are fetched. Returns whether the files are too.
        """
        files = cell_files.cell_files(self.timeline.events())
        placed, problems = {}, []
        for file in cell_files.fitting(files.values(), self.cluster.files_bytes):
            try:
                placed[file.name] = self.fetch_file(file, patience=LOST_SECONDS)
            except cell_files.CannotPlace as error:
                problems.append(str(error))
        sizes = {name: file.size for name, file in files.items()}
        home = str(Path(self.spec.folder or "", cell_files.subfolder(self.spec)))
        for level, line in cell_files.summary(placed, home, sizes):
            self.recorder.emit("notice", level=level, message=line)
        if problems:
            self.recorder.emit("notice", level="warning", message=f"not brought back: {listed(problems)}")
        missing = [file for name, file in files.items() if file.path is None and name not in placed]
        if missing:
            names = listed([f"{file.name} ({cell_files.in_words(file.size)})" for file in missing])
            message = (
                f"{self.cluster.name} still has {names}: {self.spec.name}.fetch({missing[0].name!r}) brings it here"
            )
            self.recorder.emit("notice", level="info", message=message)
        elif complete:
            self.cluster.release(self.spec.run)
            return True
        return False

    def fetch_file(self, file: cell_files.CellFile, to: Path | None = None, patience: float = 0.0) -> Path:
        """Bring a file of the cell from the driver to the notebook's folder, or to the path `to`; returns its path.

        Raises:
            CannotPlace: it cannot be written, or the driver no longer has it.
        """
        path = cell_files.target(self.spec.folder, file.name, cell_files.subfolder(self.spec)) if to is None else to
        arrived = path.with_name(f".ddl-{self.spec.run}")
        problem = self._fetch(file.name, file.artifact, arrived, patience)
        try:
            if problem:
                raise cell_files.CannotPlace(f"{file.name} could not be fetched: {problem}")
            if to is not None:
                return arrived.replace(to)
            path = cell_files.move_into_place(arrived, path, self.spec.name, self._before)
        except OSError as error:
            raise cell_files.CannotPlace(f"{file.name}: {error}") from None
        finally:
            arrived.unlink(missing_ok=True)
        self.recorder.emit("placed", name=file.name, path=str(path))
        return path

    def _pause(self, seconds: float) -> None:
        self.recorder.pulse()
        self._wake.wait(seconds)
        self._wake.clear()
