"""How each rank is doing: the newest of what it reported, and its step times over the last seconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import exp, nan
from typing import Any

#: Time constant over which a rank's step times are averaged: long enough for slow steps, short enough to show a change.
WINDOW_SECONDS = 10.0

#: The same for its samples/s, which a chart shows over time: shorter, for a fall to look like one.
RATE_SECONDS = 3.0

#: A rank that has not reported steps for so long adds nothing to the job's samples/s.
SILENT_SECONDS = 15.0

#: The numbers of a rank as they are sent to the page, in this order. Sizes are bytes; what is unknown is NaN.
COLUMNS = (
    "rank",
    "gpu",
    "gpu_memory",
    "gpu_memory_total",
    "cpu",
    "memory",
    "compute",
    "waiting",
    "network",
    "summing",
    "rate",
    "staleness",
    "staleness_max",
    "commits",
)

#: What is added up of the buckets of steps, for means over time.
_TIMES = ("count", "compute", "wait", "copy", "wire")


@dataclass
class Worker:
    """One rank. `compute` is milliseconds a step, `rate` samples a second; `waiting` for the others or for the server,
    the `network` and `summing` on the host are shares of the step time, 0 to 1."""

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
    cpu: float = nan
    memory: float = nan
    staleness: float = nan
    staleness_max: float = nan
    commits: float = nan
    steps: int = 0
    rows: int = 0
    seen: float = nan
    _times: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_TIMES, 0.0))
    _rates: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("rows", "seconds"), 0.0))

    def describe(self, event: Mapping[str, Any]) -> None:
        """Take over a `worker` event."""
        for name in ("host", "pid", "device", "state", "message", "cores"):
            if event.get(name) is not None:
                setattr(self, name, event[name])

    def add_steps(self, event: Mapping[str, Any]) -> None:
        """Count a bucket of steps; older buckets fade."""
        for sums, window in ((self._times, WINDOW_SECONDS), (self._rates, RATE_SECONDS)):
            fade = exp(-event["seconds"] / window)
            for name in sums:
                sums[name] = sums[name] * fade + event.get(name, 0.0)
        self.steps += event["count"]
        self.rows += event["rows"]
        self.seen = event["time"]

    def add_sample(self, event: Mapping[str, Any]) -> None:
        """Take over what the process uses; several GPUs of one rank are averaged, their memory is added up."""
        self.cpu = event["cpu"]
        self.memory = event["memory"]
        gpus = event["gpus"] or ()
        percents = [gpu["percent"] for gpu in gpus if gpu.get("percent") is not None]
        self.gpu = sum(percents) / len(percents) if percents else nan
        used = [gpu["memory"] for gpu in gpus if gpu.get("memory") is not None]
        totals = [gpu["memory_total"] for gpu in gpus if gpu.get("memory_total") is not None]
        self.gpu_memory = sum(used) if used else nan
        self.gpu_memory_total = sum(totals) if totals else nan

    def add_commits(self, event: Mapping[str, Any]) -> None:
        """Add up the commits of a parameter-server run; the staleness is that of the newest ones."""
        self.commits = event["commits"] + (self.commits if self.commits == self.commits else 0)
        self.staleness = event["staleness"]
        self.staleness_max = max(event["staleness_max"], self.staleness_max if self.commits == self.commits else 0)

    @property
    def compute(self) -> float:
        """Milliseconds that a step computes."""
        return 1000 * self._times["compute"] / self._times["count"] if self._times["count"] else nan

    @property
    def waiting(self) -> float:
        return self._share(self._times["wait"] - self._times["copy"] - self._times["wire"])

    @property
    def network(self) -> float:
        return self._share(self._times["wire"])

    @property
    def summing(self) -> float:
        return self._share(self._times["copy"])

    def _share(self, seconds: float) -> float:
        busy = self._times["compute"] + self._times["wait"]
        return seconds / busy if busy else nan

    @property
    def rate(self) -> float:
        """Rows a second while it trains."""
        return self._rates["rows"] / self._rates["seconds"] if self._rates["seconds"] else nan

    def rate_at(self, time: float) -> float:
        """The rate, or 0 where the rank has been silent."""
        return self.rate if time - self.seen < SILENT_SECONDS else 0.0

    def numbers(self) -> tuple[float, ...]:
        """One value for each of `COLUMNS`."""
        return tuple(getattr(self, name) for name in COLUMNS)

    def facts(self) -> dict[str, Any]:
        """What rarely changes, as it is sent to the page."""
        return {
            "rank": self.rank,
            "host": self.host,
            "pid": self.pid,
            "device": self.device,
            "state": self.state,
            "message": self.message,
            "cores": self.cores,
        }
