"""The state of each rank: its newest reports, and its step times over the last seconds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, isnan, nan
from typing import Any

from ..runtime import events as ev
from .loglines import NAME_CHARACTERS, clean

#: Time constant of the mean of a rank's step times: long enough for slow steps, short enough to show a change.
WINDOW_SECONDS = 10.0

#: The same for its samples/s: shorter, so that a drop is visible in the chart over time.
RATE_SECONDS = 3.0

#: A rank that has not reported steps for this long counts as 0 in the job's samples/s.
SILENT_SECONDS = 15.0

#: The state of a rank that has trained with others, which train on without it.
LEFT = "left"

#: Attributes of `Worker` that are sent to the page, in this order. Sizes are bytes, unknown values NaN.
COLUMNS = (
    "rank",
    "gpu",
    "gpu_memory",
    "gpu_memory_total",
    "gpu_power",
    "gpu_power_limit",
    "cpu",
    "memory",
    "memory_peak",
    "compute",
    "waiting",
    "data",
    "network",
    "summing",
    "rate",
    "staleness",
    "staleness_max",
    "commits",
)

#: Fields of the event `worker`, which rarely change.
_FACTS = ("host", "pid", "device", "state", "message", "cores")

#: Fields of `Steps` that are averaged over time.
_TIMES = ("count", "compute", "wait", "copy", "wire", "data")


@dataclass
class Worker:
    """One rank.

    Attributes:
        cpu: percent of one core.
        gpu: percent, the mean of the rank's GPUs.
        memory, memory_peak, gpu_memory, gpu_memory_total: bytes.
        gpu_power, gpu_power_limit: watts, of all its GPUs.
        staleness, staleness_max: of the newest commits to the parameter server; `commits` counts all.
        steps, rows: totals so far.
        last_seen: time of the newest steps, in seconds since the epoch.
        member: whether it trains with the others, where ranks come and go; None: it has not begun, or no rank does.
    """

    rank: int
    host: str = ""
    pid: int = 0
    device: str = ""
    state: str = ""
    message: str = ""
    cores: int = 0
    gpu: float = nan
    gpu_memory: float = nan
    gpu_memory_total: float = nan
    gpu_power: float = nan
    gpu_power_limit: float = nan
    cpu: float = nan
    memory: float = nan
    memory_peak: float = nan
    staleness: float = nan
    staleness_max: float = nan
    commits: float = nan
    steps: int = 0
    rows: int = 0
    last_seen: float = nan
    member: bool | None = None
    _knows_data: bool = False
    _times: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_TIMES, 0.0))
    _rates: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("rows", "seconds"), 0.0))

    def describe(self, event: ev.Worker) -> None:
        """Update what rarely changes."""
        if event.state == ev.WORKER_STARTING:  # also in another attempt
            self.member = None
        for name in _FACTS:
            value = getattr(event, name)
            if value is not None:
                setattr(self, name, clean(value, NAME_CHARACTERS) if isinstance(value, str) else value)

    def add_steps(self, event: ev.Steps) -> None:
        """Add a bucket of steps; the weight of older ones decays exponentially."""
        for sums, window in ((self._times, WINDOW_SECONDS), (self._rates, RATE_SECONDS)):
            decay = exp(-event.seconds / window)
            for name in sums:
                sums[name] = sums[name] * decay + (getattr(event, name) or 0.0)
        self._knows_data = self._knows_data or event.data is not None
        self.steps += event.count
        self.rows += event.rows
        self.last_seen = event.time

    def add_sample(self, event: ev.Sample) -> None:
        """Update from a sample: mean utilization, and total memory and power of the rank's GPUs."""
        if not event.memory:
            return  # of a process that is ending: what it had before says more
        self.cpu = event.cpu
        self.memory = event.memory
        self.memory_peak = max(event.memory, 0 if isnan(self.memory_peak) else self.memory_peak)
        gpus = event.gpus or ()
        percents = _known(gpus, "percent")
        self.gpu = sum(percents) / len(percents) if percents else nan
        self.gpu_memory = sum(_known(gpus, "memory") or [nan])
        self.gpu_memory_total = sum(_known(gpus, "memory_total") or [nan])
        self.gpu_power = sum(_known(gpus, "power") or [nan])
        self.gpu_power_limit = sum(_known(gpus, "power_limit") or [nan])

    def add_commits(self, event: ev.Commits) -> None:
        """Add commits to the parameter server."""
        self.commits = event.commits + (0 if isnan(self.commits) else self.commits)
        self.staleness = event.staleness
        self.staleness_max = max(event.staleness_max, 0 if isnan(self.staleness_max) else self.staleness_max)

    def regroup(self, members: Sequence[int]) -> None:
        """These ranks train together from now on."""
        if self.rank in members:
            self.member = True
        elif self.member is not None:
            self.member = False

    @property
    def has_left(self) -> bool:
        """Whether the others train on without it."""
        return self.member is False

    @property
    def compute(self) -> float:
        """Milliseconds of computation per step."""
        return 1000 * self._times["compute"] / self._times["count"] if self._times["count"] else nan

    @property
    def waiting(self) -> float:
        """Share of the step time spent waiting for other ranks or for the server, 0 to 1."""
        return self._share(self._times["wait"] - self._times["copy"] - self._times["wire"])

    @property
    def data(self) -> float:
        """Share of the step time spent waiting for the next batch of the data, 0 to 1; NaN where it is not known."""
        return self._share(self._times["data"]) if self._knows_data else nan

    @property
    def network(self) -> float:
        """Share of the step time spent in network transfers, 0 to 1."""
        return self._share(self._times["wire"])

    @property
    def summing(self) -> float:
        """Share of the step time spent moving and adding data on the host, 0 to 1."""
        return self._share(self._times["copy"])

    def _share(self, seconds: float) -> float:
        busy = self._times["compute"] + self._times["wait"] + self._times["data"]
        return seconds / busy if busy else nan

    @property
    def rate(self) -> float:
        """Samples per second of training."""
        return self._rates["rows"] / self._rates["seconds"] if self._rates["seconds"] else nan

    def rate_at(self, time: float) -> float:
        """The rate, or 0 if the rank has left, or has reported no steps for `SILENT_SECONDS`."""
        return self.rate if time - self.last_seen < SILENT_SECONDS and not self.has_left else 0.0

    def numbers(self) -> tuple[float, ...]:
        """The values of `COLUMNS`."""
        return tuple(getattr(self, name) for name in COLUMNS)

    def info(self) -> dict[str, Any]:
        """`WorkerInfo` of `schema.py`: what rarely changes."""
        facts = {name: getattr(self, name) for name in ("rank", *_FACTS)}
        return {**facts, "state": LEFT} if self.has_left else facts


def _known(gpus: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [gpu[name] for gpu in gpus if gpu.get(name) is not None]
