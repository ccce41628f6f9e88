"""Writes a run to TensorBoard or MLflow while it trains: --tensorboard and --mlflow.

Each destination has its own thread, because a server may be slow or away. The run waits for it only at its end, for
`END_SECONDS` at most.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from IPython.core.error import UsageError

from ddl_magics import store
from ddl_magics.errors import NotInstalled
from ddl_magics.history import mlflow, tensorboard
from ddl_magics.history.scalars import Scalar, ScalarReader, parameters
from ddl_magics.history.tracking_data import TrackingData
from ddl_magics.runs.timeline import Timeline
from ddl_magics.runs.tracking import tracking_data
from ddl_magics.runtime.events import RawEvent, parse
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.store import RunFolder, SearchFolder

#: How long values are gathered before they are written.
GATHER_SECONDS = 1.0
#: How long a run's end waits for the remaining values; after that they are written in the background.
END_SECONDS = 60.0
#: Pause after a failure, and how long writing is retried after the run's end.
RETRY_SECONDS = 5.0
LAST_RETRY_SECONDS = 600.0
#: Number of values, the newest, that wait for a server that is away.
MOST_VALUES = 100_000

_log = logging.getLogger(__name__)


class Outlet(Protocol):
    """A run that is open in TensorBoard or MLflow."""

    def add(self, scalars: Sequence[Scalar]) -> None:
        """Write values. Called again with the same values if it raised."""

    def finish(self, run: TrackingData) -> None:
        """Write what the run has besides its scalars, and close it."""


class LiveTracker:
    """Writes one run to one destination; `feed` listens to its recorder. Its errors become `problems`."""

    def __init__(self, destination: str, open_outlet: Callable[[], Outlet], rewrite_call: str) -> None:
        """
        Args:
            destination: for people: "MLflow at http://host:5000".
            open_outlet: begins or continues the run there; called again after a failure.
            rewrite_call: the call that writes the complete run later.
        """
        self.destination = destination
        self._open, self._rewrite_call = open_outlet, rewrite_call
        self._outlet: Outlet | None = None
        self._problems: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = ScalarReader()
        self._values: deque[Scalar] = deque(maxlen=MOST_VALUES)
        self._final_data: Callable[[], TrackingData] | None = None
        self._run_over = threading.Event()
        self._thread: threading.Thread | None = None
        self._written = threading.Event()

    def feed(self, events: Sequence[RawEvent]) -> None:
        """Take events in their order. Nothing is written before the driver has taken the run."""
        for event in events:
            self._values.extend(self._reader.read(event))
        if self._thread is None and any(parse(event).attempt != 0 for event in events):
            self._thread = threading.Thread(target=self._work, name=f"ddl_magics {self.destination}", daemon=True)
            self._thread.start()

    def finish(self, run: Callable[[], TrackingData]) -> None:
        """Write what remains of a run that has ended; `run` returns its data."""
        self._final_data = run
        self._run_over.set()

    def wait(self, seconds: float) -> bool:
        """Wait until the run is written, for at most `seconds`; returns whether it is."""
        return self._thread is None or self._written.wait(seconds)

    def problems(self) -> Iterator[str]:
        """The errors since the previous call, one line each."""
        while not self._problems.empty():
            yield self._problems.get()

    @property
    def late(self) -> str:
        """The notice for a run that has ended and is not completely written."""
        missing = f"{self.destination} has not taken all of the run yet"
        return f"{missing}: it is still tried, and {self._rewrite_call} writes it anew"

    def _work(self) -> None:
        values: deque[Scalar] = deque(maxlen=MOST_VALUES)
        pause, deadline = GATHER_SECONDS, float("inf")
        while time.monotonic() < deadline:
            if self._run_over.wait(pause) and deadline == float("inf"):
                deadline = time.monotonic() + LAST_RETRY_SECONDS
            run_over = self._run_over.is_set()
            while self._values:
                values.append(self._values.popleft())
            try:
                self._write(values, run_over)
                if run_over:
                    self._written.set()
                    return
                pause = GATHER_SECONDS
            except Exception as error:  # of any kind: another library or a server raised it
                self._outlet = None
                if pause == GATHER_SECONDS:
                    self._problems.put(f"{self.destination} could not be written, still trying: {_in_a_line(error)}")
                pause = RETRY_SECONDS
                if run_over:  # which `wait` no longer waits for
                    time.sleep(pause)

    def _write(self, values: deque[Scalar], run_over: bool) -> None:
        if self._outlet is None:
            self._outlet = self._open()
        if values:
            self._outlet.add(list(values))
            values.clear()
        if run_over and self._final_data is not None:
            self._outlet.finish(self._final_data())


class LiveTrackers:
    """All destinations of one run."""

    def __init__(self, spec: RunSpec, folder: RunFolder, timeline: Timeline) -> None:
        self._spec, self._folder, self._timeline = spec, folder, timeline
        resumed = timeline.last_seq > 0
        self.trackers = []
        if spec.tensorboard is not None:
            logs = tensorboard.run_folder(spec.tensorboard, spec.name, spec.run, spec.folder)
            self.trackers.append(_to_tensorboard(spec, logs, resumed))
        if spec.mlflow is not None:
            self.trackers.append(_to_mlflow(spec, spec.mlflow, folder))

    def problems(self) -> Iterator[str]:
        """The errors since the previous call."""
        for tracker in self.trackers:
            yield from tracker.problems()

    def finish(self) -> Iterator[str]:
        """Write what remains of a run that has ended, with its files, for a bounded time. Yields problems."""
        for tracker in self.trackers:
            tracker.finish(self._tracking_data)
        for tracker in self.wait(END_SECONDS):
            yield tracker.late
        yield from self.problems()

    def wait(self, seconds: float) -> list[LiveTracker]:
        """Wait until the run is written everywhere, for at most `seconds`; returns the trackers that are not done."""
        deadline = time.monotonic() + seconds
        return [tracker for tracker in self.trackers if not tracker.wait(max(deadline - time.monotonic(), 0.0))]

    def _tracking_data(self) -> TrackingData:
        record = self._folder.record()
        if record is None:
            raise OSError("the run has been removed from the store")
        return tracking_data(self._spec, record, self._timeline.events())


def _to_tensorboard(spec: RunSpec, folder: str, resumed: bool) -> LiveTracker:
    restart_once = [resumed]  # an outlet that is opened after a failure continues without its earlier values

    def open_outlet() -> Outlet:
        restart = restart_once.pop() if restart_once else False
        return tensorboard.TensorBoardRun(folder, parameters(spec), restart=restart)

    return LiveTracker(f"TensorBoard's folder {folder}", open_outlet, f"{spec.name}.to_tensorboard(...)")


def _to_mlflow(spec: RunSpec, uri: str, folder: RunFolder) -> LiveTracker:
    def open_outlet() -> Outlet:
        record = folder.record()
        if record is None:
            raise OSError("the run has been removed from the store")
        parent = store.find_search(spec.parent) if spec.parent else None
        return mlflow.Experiment(uri).begin(record, parameters(spec), parent)

    return LiveTracker(f"MLflow at {uri}", open_outlet, f"{spec.name}.to_mlflow({uri!r})")


def end_search(spec: RunSpec, folder: SearchFolder, waits: Iterable[Callable[[float], object]]) -> None:
    """A search has ended: wait until its trials are written, and end its run in MLflow, for a bounded time.

    Args:
        spec: of the search.
        folder: of the search.
        waits: for each trial, `Run.settled`.
    """
    if spec.mlflow is None and spec.tensorboard is None:
        return
    deadline = time.monotonic() + END_SECONDS
    for wait in waits:
        wait(max(deadline - time.monotonic(), 0.0))
    if spec.mlflow is not None:
        ending = threading.Thread(target=_end_search, args=(spec.mlflow, folder), daemon=True)
        ending.start()
        ending.join(max(deadline - time.monotonic(), GATHER_SECONDS))


def _end_search(uri: str, folder: SearchFolder) -> None:
    record = folder.record()
    try:
        if record is not None:
            mlflow.Experiment(uri).end_search(record)
    except Exception as error:  # of any kind, as above
        _log.error("MLflow at %s was not told that %s has ended: %s", uri, folder.path.name, _in_a_line(error))


def require(spec: RunSpec) -> None:
    """Check that what writes the run live is installed.

    Raises:
        UsageError: it is not.
    """
    try:
        if spec.tensorboard is not None:
            tensorboard.require(spec.tensorboard)
        if spec.mlflow is not None:
            mlflow.require(spec.mlflow)
    except (NotInstalled, ValueError) as error:
        raise UsageError(str(error)) from None


def _in_a_line(error: Any) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:300]
