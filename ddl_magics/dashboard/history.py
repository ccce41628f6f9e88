"""A run as it is drawn: the state, the workers, the lines of its charts, all of bounded size, made from events alone.

Pure: no thread, no widget, no clock. Events of kinds that it does not know change nothing.
"""

from collections.abc import Iterable, Mapping
from math import isfinite, isnan
from statistics import median
from typing import Any

from ..runtime.events import QUEUED, RUNNING, TERMINAL
from .frames import Frames
from .loglines import LogTail
from .progress import Pace, Progress, epochs_seen, transferred
from .series import Series
from .workers import Worker

#: Metrics that get a line; a model with more of them shows the first.
METRICS = 24

#: Up to so many ranks each has its own line in the charts of devices; above, the lines are lowest, median and highest.
RANK_LINES = 16

#: The charts over time get a point so often (they thin out as the run gets longer).
TICK_SECONDS = 1.0

Event = Mapping[str, Any]


class History:
    """All that a view shows of a run of `ranks` workers.

    `series` has over the chief's steps "metric:NAME" (the chief's running values; validation's are of the job),
    "epochs:NAME" (the job's exact value of each epoch), "epoch" (steps to epochs) and "seconds" (steps to seconds since
    `created`), and over seconds since `created` "rate" (samples/s of the job) and "gpu:", "cpu:", "memory:" followed by
    the rank, or by low, median and high.
    """

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.state: dict[str, Any] = {"state": QUEUED, "message": "", "failure": None, "ready": None, "needed": None}
        #: The file that is on its way from the cluster, in words; empty when none is.
        self.fetching = ""
        #: URIs of the files that --out has written, by name.
        self.written: dict[str, str] = {}
        self.created: float | None = None
        self.started: float | None = None
        self.ended: float | None = None
        self.workers: dict[int, Worker] = {}
        self.series: dict[str, Series] = {}
        self.latest: dict[str, float] = {}
        self.progress = Progress()
        self.pace = Pace()
        self.rate: float | None = None
        self.peak: float | None = None
        self.logs = LogTail(ranks)
        self.frames = Frames(ranks)
        self._position = 0
        self._epoch_start = 0
        self._epochs_before = 0
        self._epoch_lengths: dict[tuple[int, int], int] = {}
        self._announced: int | None = None
        self._ticked: float | None = None

    def feed(self, events: Iterable[Event]) -> None:
        """Take over events in the order of their sequence numbers."""
        for event in events:
            time = event["time"]
            if self.created is None:
                self.created = time
            take = getattr(self, "_on_" + event["kind"], None)
            if take:
                take(event)
            self._tick(time)

    def seconds(self, time: float) -> float:
        """Seconds since the run was created."""
        return max(time - (self.created if self.created is not None else time), 0.0)

    @property
    def over(self) -> bool:
        """Whether the run is in a terminal state."""
        return self.state["state"] in TERMINAL

    def metrics(self) -> list[str]:
        """Names of the metrics that have a line, validation's left out, in order of appearance."""
        names = (key.removeprefix("metric:") for key in self.series if key.startswith("metric:"))
        return list(dict.fromkeys(name.removeprefix("val_") for name in names))

    def _worker(self, event: Event) -> Worker:
        return self.workers.setdefault(event["rank"], Worker(event["rank"]))

    def _line(self, key: str) -> Series:
        if key not in self.series:
            self.series[key] = Series(keep="last" if key in ("epoch", "seconds") else "mean")
        return self.series[key]

    def _metric(self, name: str, x: float, value: float | None, count: int) -> None:
        key = "metric:" + name
        if key not in self.series and sum(known.startswith("metric:") for known in self.series) >= 2 * METRICS:
            return
        self._line(key).add(x, value, count)
        if value is not None and isfinite(value):
            self.latest[name] = value

    def _on_state(self, event: Event) -> None:
        optional = {name: event.get(name) for name in ("failure", "ready", "needed")}
        self.state = {"state": event["state"], "message": event["message"], **optional}
        if event["state"] == RUNNING and self.started is None:
            self.started = event["time"]
        if event["state"] in TERMINAL:
            self.ended = event["time"]

    def _on_artifact(self, event: Event) -> None:
        if "uri" in event:
            self.written[event["name"]] = event["uri"]

    def _on_transfer(self, event: Event) -> None:
        self.fetching = transferred(event)

    def _on_worker(self, event: Event) -> None:
        self._worker(event).describe(event)

    def _on_sample(self, event: Event) -> None:
        self._worker(event).add_sample(event)

    def _on_commits(self, event: Event) -> None:
        self._worker(event).add_commits(event)

    def _on_log(self, event: Event) -> None:
        self.logs.add(event["rank"], "err" if event["stream"] == "stderr" else "out", event["text"])

    def _on_notice(self, event: Event) -> None:
        self.logs.add(event["rank"], event["level"], event["message"])

    def _on_fit(self, event: Event) -> None:
        if event["fit"] == self.progress.fit:
            return
        if self.progress.fit >= 0:
            self._epochs_before += self.progress.epoch + (self.progress.step > 0)
        self._announced = event["steps"]
        self._epoch_lengths.clear()
        self.progress = Progress(event["fit"], event["epochs"], 0, event["steps"], 0, event["time"])
        self.pace.restart()
        self._line("seconds").add(self._position, self.seconds(event["time"]))
        self._begin_epoch(0)

    def _begin_epoch(self, epoch: int) -> None:
        self._epoch_start = self._position
        self.progress.epoch = epoch
        self.progress.step = 0
        self._line("epoch").add(self._position, self._epochs_before + epoch)

    def _on_steps(self, event: Event) -> None:
        self._worker(event).add_steps(event)
        if event["rank"] == self._chief():
            self._advance(event)

    def _chief(self) -> int:
        return min((rank for rank, worker in self.workers.items() if worker.steps), default=0)

    def _advance(self, event: Event) -> None:
        if event["fit"] != self.progress.fit:
            self._on_fit({**event, "epochs": 0, "steps": None})
        if event["epoch"] < self.progress.epoch:
            return  # a straggling bucket of an epoch that has ended
        if event["epoch"] > self.progress.epoch:
            self._begin_epoch(event["epoch"])
        done = event["step"] + event["count"]
        self.progress.step = done
        self._position = max(self._position, self._epoch_start + done)
        self._line("seconds").add(self._position, self.seconds(event["time"]))
        for name, value in event["metrics"].items():
            self._metric(name, self._position, value, event["count"])
        self.pace.add(event["time"], self.progress.fraction())

    def _on_epoch(self, event: Event) -> None:
        if event["epoch"] == self.progress.epoch and self.progress.step:
            self._epoch_lengths[event["fit"], event["epoch"]] = self.progress.step
        self.progress.steps = epochs_seen(self._epoch_lengths, self._announced)
        for name, value in event["metrics"].items():
            if name.startswith("val_") or "metric:" + name not in self.series:
                self._metric(name, self._position, value, 1)
            elif value is not None and isfinite(value):
                self._line("epochs:" + name).add(self._position, value)
                self.latest[name] = value
        self.progress.epoch = event["epoch"] + 1
        self.progress.step = 0
        self._epoch_start = self._position
        self._line("epoch").add(self._position, self._epochs_before + self.progress.epoch)
        self.pace.add(event["time"], self.progress.fraction())

    def _on_member(self, event: Event) -> None:
        for name, value in event["metrics"].items():
            self._metric(f"{name} of rank {event['rank']}", self._position, value, 1)

    def _on_fit_end(self, event: Event) -> None:
        self.progress.fits_done = event["fit"] + 1

    def _on_values(self, event: Event) -> None:
        step, x = event.get("step"), self._position
        for name, value in event["metrics"].items():
            count = len(self.series.get("metric:" + name, ()))
            x = self._position or (count if step is None else step)
            self._metric(name, x, value, 1)
        self._line("seconds").add(x, self.seconds(event["time"]))

    def _tick(self, time: float) -> None:
        if self._ticked is None:
            self._ticked = time
        # Clocks of different hosts differ a little: what lies before the newest tick makes no point of its own.
        if time - self._ticked < TICK_SECONDS:
            return
        self._ticked = time
        seconds = self.seconds(time)
        rate = sum(worker.rate_at(time) for worker in self.workers.values() if worker.steps)
        if rate > 0:
            self.rate = rate
            self.peak = max(self.peak or 0.0, rate)
            self._line("rate").add(seconds, rate)
        for name in ("gpu", "cpu", "memory"):
            self._devices(name, seconds)
        self.frames.add(seconds, self.workers.values())

    def _devices(self, name: str, seconds: float) -> None:
        values = {rank: getattr(worker, name) for rank, worker in sorted(self.workers.items())}
        known = {rank: value for rank, value in values.items() if not isnan(value)}
        if not known:
            return
        if self.ranks > RANK_LINES:
            spread = {"low": min(known.values()), "median": median(known.values()), "high": max(known.values())}
            for which, value in spread.items():
                self._line(f"{name}:{which}").add(seconds, value)
        else:
            for rank, value in known.items():
                self._line(f"{name}:{rank}").add(seconds, value)
