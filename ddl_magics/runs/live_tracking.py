"""A run that is written to TensorBoard or MLflow while it trains: --tensorboard and --mlflow.

Each place has a thread of its own, because a server may be slow or away: the run never waits for it but at its end, and
there not long.
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
#: How long a run's end waits for what is still to be written; after that it is written in the background.
END_SECONDS = 60.0
#: Pause after a failure, and how long is tried after the run's end.
RETRY_SECONDS = 5.0
LAST_RETRY_SECONDS = 600.0
#: So many values wait for a server that is away, the newest.
MOST_VALUES = 100_000

_log = logging.getLogger(__name__)


class Outlet(Protocol):
    """Where a run is written."""

    def add(self, scalars: Sequence[Scalar]) -> None:
        """Write values. Called again with the same ones if it raised."""

    def end(self, run: TrackingData) -> None:
        """Write the rest."""


class LiveTracker:
    """Writes one run to one place; `feed` listens to its recorder. Exceptions of the place are problems, in a line."""

    def __init__(self, place: str, open_outlet: Callable[[], Outlet], again: str) -> None:
        """
        Args:
            place: for people: "MLflow at http://host:5000".
            open_outlet: begins the run there, or continues it; called again after a failure.
            again: the call that writes all of the run later.
        """
        self.place = place
        self._open, self._again = open_outlet, again
        self._outlet: Outlet | None = None
        self._problems: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = ScalarReader()
        self._values: deque[Scalar] = deque(maxlen=MOST_VALUES)
        self._rest: Callable[[], TrackingData] | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._written = threading.Event()

    def feed(self, events: Sequence[RawEvent]) -> None:
        """Take events in their order. Nothing is written before the driver has taken the run."""
        for event in events:
            self._values.extend(self._reader.read(event))
        if self._thread is None and any(parse(event).attempt != 0 for event in events):
            self._thread = threading.Thread(target=self._work, name=f"ddl_magics {self.place}", daemon=True)
            self._thread.start()

    def end(self, run: Callable[[], TrackingData]) -> None:
        """The run has ended: write the rest, which `run` returns."""
        self._rest = run
        self._ended.set()

    def wait(self, seconds: float) -> bool:
        """Whether all is written, after at most so long."""
        return self._thread is None or self._written.wait(seconds)

    def problems(self) -> Iterator[str]:
        """What has gone wrong since the last call, for the run's notices."""
        while not self._problems.empty():
            yield self._problems.get()

    @property
    def late(self) -> str:
        """What to say of a run that has ended and is not all written."""
        return f"{self.place} has not taken all of the run yet: it is still tried, and {self._again} writes it anew"

    def _work(self) -> None:
        values: deque[Scalar] = deque(maxlen=MOST_VALUES)
        pause, deadline = GATHER_SECONDS, float("inf")
        while time.monotonic() < deadline:
            if self._ended.wait(pause) and deadline == float("inf"):
                deadline = time.monotonic() + LAST_RETRY_SECONDS
            ended = self._ended.is_set()
            while self._values:
                values.append(self._values.popleft())
            try:
                self._write(values, ended)
                if ended:
                    self._written.set()
                    return
                pause = GATHER_SECONDS
            except Exception as error:  # of any kind: it is another library's, and of a server
                self._outlet = None
                if pause == GATHER_SECONDS:
                    self._problems.put(f"{self.place} could not be written, still trying: {_in_a_line(error)}")
                pause = RETRY_SECONDS
                if ended:  # which `wait` no longer waits for
                    time.sleep(pause)

    def _write(self, values: deque[Scalar], ended: bool) -> None:
        if self._outlet is None:
            self._outlet = self._open()
        if values:
            self._outlet.add(list(values))
            values.clear()
        if ended and self._rest is not None:
            self._outlet.end(self._rest())


class LiveTrackers:
    """All places of one run."""

    def __init__(self, spec: RunSpec, folder: RunFolder, timeline: Timeline) -> None:
        self._spec, self._folder, self._timeline = spec, folder, timeline
        again = timeline.last > 0
        self.trackers = []
        if spec.tensorboard is not None:
            logs = tensorboard.run_folder(spec.tensorboard, spec.name, spec.run, spec.folder)
            self.trackers.append(_to_tensorboard(spec, logs, again))
        if spec.mlflow is not None:
            self.trackers.append(_to_mlflow(spec, spec.mlflow, folder))

    def problems(self) -> Iterator[str]:
        """What has gone wrong since the last call."""
        for tracker in self.trackers:
            yield from tracker.problems()

    def end(self) -> Iterator[str]:
        """The run has ended and its files are here: write the rest, for a bounded time. Yields what went wrong."""
        for tracker in self.trackers:
            tracker.end(self._tracking_data)
        deadline = time.monotonic() + END_SECONDS
        for tracker in self.trackers:
            if not tracker.wait(max(deadline - time.monotonic(), 0.0)):
                yield tracker.late
        yield from self.problems()

    def wait(self, seconds: float) -> None:
        """Wait at most so long until all is written."""
        deadline = time.monotonic() + seconds
        for tracker in self.trackers:
            tracker.wait(max(deadline - time.monotonic(), 0.0))

    def _tracking_data(self) -> TrackingData:
        record = self._folder.record()
        if record is None:
            raise OSError("the run has been removed from the store")
        return tracking_data(self._spec, record, self._timeline.events())


def _to_tensorboard(spec: RunSpec, folder: str, again: bool) -> LiveTracker:
    first = [again]  # after a failure, only what is still to be written follows

    def open_outlet() -> Outlet:
        return tensorboard.TensorBoardRun(folder, parameters(spec), restart=first.pop() if first else False)

    return LiveTracker(f"TensorBoard's folder {folder}", open_outlet, f"{spec.name}.to_tensorboard(...)")


def _to_mlflow(spec: RunSpec, uri: str, folder: RunFolder) -> LiveTracker:
    def open_outlet() -> Outlet:
        record = folder.record()
        if record is None:
            raise OSError("the run has been removed from the store")
        parent = store.find_search(spec.parent) if spec.parent else None
        return mlflow.begin(uri, mlflow.default_experiment(), record, parameters(spec), parent)

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
            mlflow.end_search(uri, mlflow.default_experiment(), record)
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
