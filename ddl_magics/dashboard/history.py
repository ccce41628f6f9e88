"""Everything that a view shows of a run (state, workers, lines of the charts, log), built from its events.

The size is bounded, however long the run. Pure: no thread, no widget, no clock. Unknown kinds of events are ignored.
"""

from collections.abc import Callable, Iterable, Mapping
from math import isfinite, isnan
from statistics import median
from typing import Any

from ..runtime import events as ev
from . import monitor
from .frames import Frames
from .loglines import NAME_CHARACTERS, LogTail, clean
from .progress import Pace, Progress, steps_per_epoch, transfer_text
from .running_values import RunningValues, Values
from .series import POINTS, Series
from .workers import Worker

#: Number of metrics that get a line; further ones are left out.
MAX_METRICS = 24

#: Number of metrics, in order of appearance, with lines of the ranks, and number of points of such a line.
MAX_RANK_METRICS, RANK_POINTS = 4, 100

#: Up to this number of ranks, each has its own line in the charts; above it, only the lowest, the median and the
#: highest value of the ranks have lines.
MAX_RANK_LINES = 16

#: Interval of the points in charts over time. Long series merge several of them.
TICK_SECONDS = 1.0

#: What is charted for each rank over time. "memory" is bytes, "data" the share of the step time that it waits for data,
#: 0 to 1; the others are percent.
DEVICES = ("gpu", "cpu", "memory", "data")
#: The file of the first model that was trained in the cell.
MODEL = "model-0.keras"

#: Lines that are no means: a merged point has its newest value.
_NEWEST = ("epoch", "seconds", "samples", "workers")

SPREAD: dict[str, Callable[[Iterable[float]], float]] = {"low": min, "median": median, "high": max}


class History:
    """What a view shows of a run.

    Attributes:
        ranks: number of workers, the most where they come and go.
        members: the ranks that train together, where ranks come and go; none before the training, and between attempts.
        series: lines of the charts by key. Over the chief's steps: "metric:NAME" (the job's running values; those of
            rank 0's model in an ensemble), "epochs:NAME" (the job's exact value of each epoch), "epoch" (epochs done),
            "samples" (rows that all ranks have trained) and "seconds" (since `created`); for each of `SPREAD`
            "SPREAD:NAME", and "RANK:NAME": of several ranks' own running values. Over seconds since `created`:
            "rate" (samples/s of the job), "workers" (that train, where ranks come and go), and for each of `DEVICES`
            "DEVICE:RANK", or "DEVICE:" and each of `SPREAD`.
        latest: newest value of each metric.
        fetching: progress of the file that is being fetched from the cluster; empty if there is none.
        executors: how many the session holds, where workers come and go; None otherwise.
        has_model: a trained model is, or will be, among the run's files.
        written: URIs of the files that --out has written, by name.
        created, started, ended: seconds since the epoch; `started` is when the run first was RUNNING.
        rate, peak: newest and highest samples/s of the job.
        monitor: the counts of a monitor, `MonitorView` of `schema.py`; None for a training.
    """

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.state: dict[str, Any] = {"state": ev.QUEUED, "message": "", "failure": None, "ready": None, "needed": None}
        self.fetching = ""
        self.executors: int | None = None
        self.has_model = False
        self.written: dict[str, str] = {}
        self.created: float | None = None
        self.started: float | None = None
        self.ended: float | None = None
        self.members: list[int] | None = None
        self.workers: dict[int, Worker] = {}
        self.series: dict[str, Series] = {}
        self.latest: dict[str, float] = {}
        self.progress = Progress()
        self.pace = Pace()
        self.rate: float | None = None
        self.peak: float | None = None
        self.logs = LogTail(ranks)
        self.frames = Frames(ranks)
        self.monitor: dict[str, Any] | None = None
        self._running = RunningValues()
        self._chief: int | None = None  # the lowest rank that has reported steps
        self._position = 0
        self._epoch_start = 0
        self._epochs_before = 0
        self._longest_epoch = 0  # steps, in this fit
        self._announced: int | None = None
        self._ticked: float | None = None
        self._samples = 0
        self._furthest: dict[int, tuple[int, int, int]] = {}  # rank -> fit, epoch and steps done in it

    def feed(self, raw_events: Iterable[ev.RawEvent]) -> None:
        """Add events, in the order of their sequence numbers."""
        newest = None
        for event in map(ev.parse, raw_events):
            if self.created is None:
                self.created = event.time
            handle = getattr(self, "_on_" + event.kind, None)
            if handle:
                handle(event)
            self._tick(event.time)
            newest = event.time
        if newest is not None:
            self._set_rate(newest)

    def seconds(self, time: float) -> float:
        """Seconds since the run was created."""
        return max(time - (self.created if self.created is not None else time), 0.0)

    @property
    def over(self) -> bool:
        """Whether the run is in a terminal state."""
        return self.state["state"] in ev.TERMINAL

    @property
    def epochs_done(self) -> int:
        """Epochs of all fits."""
        return self._epochs_before + self.progress.epoch

    def metrics(self) -> list[str]:
        """Names of the metrics that have a line, in order of appearance, without those of the validation."""
        names = (key.removeprefix("metric:") for key in self.series if key.startswith("metric:"))
        return list(dict.fromkeys(name.removeprefix("val_") for name in names))

    def _worker(self, event: ev.Event) -> Worker:
        if event.rank not in self.workers:
            self.workers[event.rank] = Worker(event.rank)
        return self.workers[event.rank]

    def _line(self, key: str, points: int = POINTS) -> Series:
        if key not in self.series:
            self.series[key] = Series(points, keep="last" if key in _NEWEST else "mean")
        return self.series[key]

    def _metric(self, name: str, x: float, value: float | None, count: int) -> None:
        name = clean(name, NAME_CHARACTERS)
        key = "metric:" + name
        if key not in self.series and sum(charted.startswith("metric:") for charted in self.series) >= 2 * MAX_METRICS:
            return
        self._line(key).add(x, value, count)
        if value is not None and isfinite(value):
            self.latest[name] = value

    def _on_state(self, event: ev.State) -> None:
        if event.state not in ev.STATES:
            return
        self.state = {name: getattr(event, name) for name in self.state}
        if event.state == ev.RUNNING and self.started is None:
            self.started = event.time
        over = event.state in ev.TERMINAL
        self.ended = event.time if over else None  # a lost run may be attached again
        if over and self._samples:  # includes rows that other ranks reported after the chief
            self._line("samples").add(self._position, self._samples)
        if self.members is not None:
            self._on_state_of_group(event)

    def _on_state_of_group(self, event: ev.State) -> None:
        if event.state == ev.RUNNING:
            self.logs.add(ev.JOB, "info", event.message)  # who has come or gone
        else:
            self.members = []

    def _on_group(self, event: ev.Group) -> None:
        self.members = event.members
        self._chief = min(event.members, default=self._chief)
        for worker in self.workers.values():
            worker.regroup(event.members)

    def _on_held(self, event: ev.Held) -> None:
        self.executors = event.executors

    def _on_artifact(self, event: ev.Artifact) -> None:
        if event.uri is None:
            self.has_model = self.has_model or event.name == MODEL
        else:
            self.written[event.name] = event.uri

    def _on_transfer(self, event: ev.Transfer) -> None:
        self.fetching = transfer_text(event)

    def _on_worker(self, event: ev.Worker) -> None:
        self._worker(event).describe(event)

    def _on_sample(self, event: ev.Sample) -> None:
        self._worker(event).add_sample(event)

    def _on_commits(self, event: ev.Commits) -> None:
        self._worker(event).add_commits(event)

    def _on_log(self, event: ev.Log) -> None:
        self.logs.add(event.rank, "err" if event.stream == "stderr" else "out", event.text)

    def _on_notice(self, event: ev.Notice) -> None:
        self.logs.add(event.rank, event.level, event.message)

    def _on_watch(self, event: ev.Watch) -> None:
        self.monitor = monitor.monitor_view(event)

    def _on_fit(self, event: ev.Fit) -> None:
        self._begin_fit(event.fit, event.epochs, event.steps, event.models, event.time)

    def _begin_fit(self, fit: int, epochs: int, steps: int | None, models: int, time: float) -> None:
        if fit == self.progress.fit:
            return
        if self.progress.fit >= 0:
            self._epochs_before += self.progress.epoch + (self.progress.step > 0)
        self._announced = steps
        self._running.begin(models)
        self._longest_epoch = 0
        self.progress = Progress(fit, epochs, 0, steps, 0, time)
        self.pace.restart()
        self._line("seconds").add(self._position, self.seconds(time))
        self._line("samples").add(self._position, self._samples)
        self._begin_epoch(0)

    def _begin_epoch(self, epoch: int) -> None:
        self._epoch_start = self._position
        self.progress.epoch = epoch
        self.progress.step = 0
        self._line("epoch").add(self._position, self._epochs_before + epoch)

    def _on_steps(self, event: ev.Steps) -> None:
        worker = self._worker(event)
        worker.add_steps(event)
        self._count_samples(event)
        self._running.add(event)
        if worker.steps and not worker.has_left and (self._chief is None or worker.rank < self._chief):
            self._chief = worker.rank
        if event.rank == (self._chief or 0):
            self._advance(event)

    def _count_samples(self, event: ev.Steps) -> None:
        """Count the rows of a bucket, unless it repeats steps of an earlier attempt."""
        position = (event.fit, event.epoch, event.steps_done)
        if position > self._furthest.get(event.rank, (-1, -1, -1)):
            self._furthest[event.rank] = position
            self._samples += event.rows

    def _advance(self, event: ev.Steps) -> None:
        if event.fit != self.progress.fit:  # a training loop in the cell
            self._begin_fit(event.fit, epochs=0, steps=None, models=1, time=event.time)
        if event.epoch < self.progress.epoch:
            return  # a late bucket of an epoch that has ended
        if event.earlier:  # of epochs whose buckets were merged with this one
            self._position += event.earlier
            self._epoch_start = self._position
        if event.epoch > self.progress.epoch:
            self._begin_epoch(event.epoch)
        steps_done = event.steps_done
        self.progress.step = steps_done
        self._position = max(self._position, self._epoch_start + steps_done)
        self._line("seconds").add(self._position, self.seconds(event.time))
        self._line("samples").add(self._position, self._samples)
        for name, value in self._running.job(event):
            self._metric(name, self._position, value, event.count)
        if self.ranks > 1:
            for name, values in self._running.of(event):
                self._add_ranks(clean(name, NAME_CHARACTERS), values, event.count)
        self.pace.add(event.time, self.progress.fraction())

    def _add_ranks(self, name: str, values: Values, count: int) -> None:
        """Add the ranks' own values of a metric."""
        if f"low:{name}" not in self.series and sum(key.startswith("low:") for key in self.series) >= MAX_RANK_METRICS:
            return
        values = {rank: value for rank, value in values.items() if not self.workers[rank].has_left}
        finite = [value for value in values.values() if value is not None]
        lines = {spread: of(finite) if finite else None for spread, of in SPREAD.items()}
        if self.ranks <= MAX_RANK_LINES:
            # A rank that joins has a number beyond those of the first.
            lines |= {str(rank): values.get(rank) for rank in {*range(self.ranks), *values} if rank < MAX_RANK_LINES}
        for line_name, value in lines.items():
            self._line(f"{line_name}:{name}", RANK_POINTS).add(self._position, value, count)

    def _on_epoch(self, event: ev.Epoch) -> None:
        if event.epoch == self.progress.epoch and self.progress.step:
            self._longest_epoch = max(self._longest_epoch, self.progress.step)
        self.progress.steps = steps_per_epoch(self._longest_epoch, self._announced)
        for full_name, value in event.metrics.items():
            name = clean(full_name, NAME_CHARACTERS)
            if name.startswith("val_") or "metric:" + name not in self.series:
                self._metric(name, self._position, value, 1)
            elif value is not None and isfinite(value):
                self._line("epochs:" + name).add(self._position, value)
                self.latest[name] = value
        self.progress.epoch = event.epoch + 1
        self.progress.step = 0
        self._epoch_start = self._position
        self._line("epoch").add(self._position, self._epochs_before + self.progress.epoch)
        self.pace.add(event.time, self.progress.fraction())

    def _on_member(self, event: ev.Member) -> None:
        for name, value in event.metrics.items():
            self._metric(f"{name} of rank {event.rank}", self._position, value, 1)

    def _on_fit_end(self, event: ev.FitEnd) -> None:
        self.progress.fits_done = event.fit + 1

    def _on_values(self, event: ev.Values) -> None:
        step, x = event.step, self._position
        for name, value in event.metrics.items():
            count = len(self.series.get("metric:" + name, ()))
            x = self._position or (count if step is None else step)
            self._metric(name, x, value, 1)
        self._line("seconds").add(x, self.seconds(event.time))

    def _tick(self, time: float) -> None:
        if self._ticked is None:
            self._ticked = time
        # The clocks of the hosts differ a little, so an event may be older than the newest tick.
        if time - self._ticked < TICK_SECONDS:
            return
        self._ticked = time
        seconds = self.seconds(time)
        if self._set_rate(time) > 0:
            self._line("rate").add(seconds, self.rate)
        if self.members:
            self._line("workers").add(seconds, len(self.members))
        present = {rank: worker for rank, worker in sorted(self.workers.items()) if not worker.has_left}
        for name in DEVICES:
            self._devices(name, seconds, present)
        self.frames.add(seconds, present.values())

    def _set_rate(self, time: float) -> float:
        """The sum of what the table of the workers has; the last one stays. Returns that of this time."""
        rate = sum(worker.rate_at(time) for worker in self.workers.values() if worker.steps)
        if rate > 0:
            self.rate = rate
            self.peak = max(self.peak or 0.0, rate)
        return rate

    def _devices(self, name: str, seconds: float, workers: Mapping[int, Worker]) -> None:
        values = {rank: getattr(worker, name) for rank, worker in workers.items()}
        measured = {rank: value for rank, value in values.items() if not isnan(value)}
        if not measured:
            return
        if self.ranks > MAX_RANK_LINES:
            for spread, of in SPREAD.items():
                self._line(f"{name}:{spread}").add(seconds, of(measured.values()))
        else:
            for rank, value in measured.items():
                if rank < MAX_RANK_LINES:
                    self._line(f"{name}:{rank}").add(seconds, value)
