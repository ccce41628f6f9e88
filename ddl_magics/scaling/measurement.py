"""What one run has measured: how long it trained, and where the time of its steps went. Pure functions over its events.

The first epoch of a fit contains the compilation of the model: it is left out where there are others, and otherwise
each rank's first bucket of steps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from statistics import fmean
from typing import Any

from ddl_magics.runs import tables
from ddl_magics.runtime.run_spec import RunSpec

Event = Mapping[str, Any]
Fit = tuple[int, int]  # number of the fit and of the epoch

#: Each rank's steps are divided into at most so many parts in a row, whose differences tell how sure a mean is.
PARTS = 8
#: What the time of a step is spent on.
STEP_PARTS = ("compute", "exchange", "waiting", "feeding")


@dataclass(frozen=True)
class Step:
    """The mean of some steps of a run, per rank: rows, and seconds by what they were spent on.

    compute: forward and backward pass, and the update. exchange: to move and add data, here and on the network.
    waiting: for other ranks. feeding: between two steps, for the next batch. hidden: of the exchange, during compute.
    """

    rows: float
    compute: float
    exchange: float
    waiting: float
    feeding: float
    hidden: float = 0.0

    @property
    def seconds(self) -> float:
        return self.compute + self.exchange + self.waiting + self.feeding


@dataclass(frozen=True)
class MeasuredRun:
    """What a run of `%ddl scale` has measured.

    Attributes:
        run: its id.
        strategy, workers, seed: of its options.
        seconds: training time of all its fits, with their compilation.
        rows: that all ranks together train in an epoch.
        rest: seconds of an epoch outside of its steps: validation, callbacks, averaging.
        steps: means over parts of its steps.
        parameters: of the model; 0 where that is not known.
        hosts: of the ranks.
        cores: of a host; 0 where that is not known.
        busy: cores that a rank keeps busy; 0 where that is not known.
        metrics: the last value of each.
        rule: of its options.
    """

    run: str
    strategy: str
    workers: int
    seed: int
    seconds: float
    rows: float
    rest: float
    steps: tuple[Step, ...]
    parameters: int = 0
    hosts: int = 1
    cores: int = 0
    busy: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)
    rule: str | None = None

    @property
    def sums_gradients(self) -> bool:
        """Whether all ranks share a batch in each step, and sum its gradients."""
        return self.strategy == "allreduce" and self.rule is None

    @property
    def step(self) -> Step:
        """The mean of all its steps."""
        return mean_step(self.steps)

    @property
    def steps_in_epoch(self) -> float:
        """Of each rank."""
        return self.rows / (self.workers * self.step.rows)

    @property
    def epoch_seconds(self) -> float:
        return self.steps_in_epoch * self.step.seconds + self.rest

    @property
    def rate(self) -> float:
        """Samples per second of all ranks together, over whole epochs."""
        return self.rows / self.epoch_seconds


def mean_step(steps: Sequence[Step]) -> Step:
    return Step(*(fmean(getattr(step, name) for step in steps) for name in Step.__dataclass_fields__))


def measured_run(spec: RunSpec, events: Iterable[Event]) -> MeasuredRun | None:
    """What a finished run has measured; None where it has no steps."""
    events = list(events)
    buckets = _buckets(events)
    warm = _warm(buckets)
    if not warm:
        return None
    epochs = {(e["fit"], e["epoch"]): e["seconds"] for e in events if e["kind"] == "epoch"}
    workers = {e["rank"]: e for e in events if e["kind"] == "worker"}
    hosts = {e["host"] for e in workers.values()}
    in_epoch: dict[Fit, float] = defaultdict(float)
    for event in (event for bucket in buckets.values() for event in bucket):
        in_epoch[event["fit"], event["epoch"]] += event["rows"]
    counted = [rows for epoch, rows in in_epoch.items() if epoch in epochs] or [sum(in_epoch.values())]
    return MeasuredRun(
        run=spec.run,
        strategy=spec.strategy,
        workers=spec.workers,
        seed=spec.seed or 0,
        seconds=_training_seconds(events),
        rows=fmean(counted),
        rest=_rest(buckets.get(0, []), epochs),
        steps=tuple(_parts(warm)),
        parameters=_parameters(events),
        hosts=max(1, len(hosts)),
        cores=max((e.get("cores", 0) for e in workers.values()), default=0),
        busy=_busy(events, warm),
        metrics=_last_metrics(events),
        rule=spec.rule,
    )


def _buckets(events: Iterable[Event]) -> dict[int, list[Event]]:
    """Rank -> its buckets of steps, in order."""
    found: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        if event["kind"] == "steps" and event["count"]:
            found[event["rank"]].append(event)
    return found


def _warm(buckets: Mapping[int, Sequence[Event]]) -> dict[int, list[Event]]:
    """Without the steps in which the model is compiled, as far as others are left."""
    found = {}
    for rank, mine in buckets.items():
        later = [event for event in mine if event["epoch"] > 0 and not event.get("earlier")]
        begun = {event["fit"]: event for event in reversed(mine)}
        found[rank] = later or [event for event in mine if event is not begun[event["fit"]]] or list(mine)
    return found


def _parts(buckets: Mapping[int, Sequence[Event]]) -> list[Step]:
    """Means over all ranks, of equal parts of the training."""
    parts = min(PARTS, *(len(mine) for mine in buckets.values()))
    found = []
    for part in range(parts):
        events = [
            event
            for mine in buckets.values()
            for event in mine[len(mine) * part // parts : len(mine) * (part + 1) // parts]
        ]
        found.append(_mean(events))
    return found


def _mean(events: Sequence[Event]) -> Step:
    count = sum(event["count"] for event in events)
    total = {name: sum(event.get(name, 0.0) for event in events) for name in ("rows", "seconds", "compute", "wait")}
    moved = sum(event.get("copy", 0.0) + event.get("wire", 0.0) for event in events)
    # Without a collective in each step, a wait is for the exchange itself.
    exchange = moved if moved else total["wait"]
    feeding = max(0.0, total["seconds"] - total["compute"] - total["wait"])
    spent = (total["compute"], exchange, max(0.0, total["wait"] - exchange), feeding)
    hidden = sum(event.get("hidden", 0.0) for event in events) / count
    compute, exchange, waiting, feeding = (seconds / count for seconds in spent)
    return Step(total["rows"] / count, compute, exchange, waiting, feeding, hidden)


def _training_seconds(events: Iterable[Event]) -> float:
    """From the begin of each fit on rank 0 to its end; of a loop of the cell's own, to its last step."""
    total, began, last = 0.0, None, 0.0
    for event in (event for event in events if event["rank"] == 0):
        if event["kind"] == "fit":
            total += max(0.0, last - began) if began is not None else 0.0
            began = last = event["time"]
        elif event["kind"] == "fit_end" and began is not None:
            total += max(0.0, event["time"] - began)
            began = None
        elif event["kind"] in ("steps", "epoch"):
            last = event["time"]
    return total + (max(0.0, last - began) if began is not None else 0.0)


def _rest(chief: Sequence[Event], epochs: Mapping[Fit, float]) -> float:
    """The mean seconds of an epoch that are in no step of rank 0."""
    if not epochs:
        return 0.0
    stepping: dict[Fit, float] = defaultdict(float)
    for event in chief:
        if not event.get("earlier"):
            stepping[event["fit"], event["epoch"]] += event["seconds"]
    later = [epoch for epoch in epochs if epoch[1] > 0 and epoch in stepping]
    found = later or [epoch for epoch in epochs if epoch in stepping]
    return fmean([max(0.0, epochs[epoch] - stepping[epoch]) for epoch in found] or [0.0])


def _parameters(events: Iterable[Event]) -> int:
    """Of the model, or about as many as its weights' file has, where it was built by its first batch; 0 without one."""
    counts = [event["parameters"] for event in events if event["kind"] == "fit" and event.get("parameters")]
    files = [event["size"] // 4 for event in events if event["kind"] == "artifact" and event["name"].endswith(".npz")]
    return int([0, *files, *counts][-1])


def _busy(events: Iterable[Event], buckets: Mapping[int, Sequence[Event]]) -> float:
    """The mean number of cores that a rank kept busy while it trained."""
    spans = {rank: (mine[0]["time"] - mine[0]["seconds"], mine[-1]["time"]) for rank, mine in buckets.items()}
    found = [
        event["cpu"] / 100
        for event in events
        if event["kind"] == "sample"
        and event["rank"] in spans
        and spans[event["rank"]][0] <= event["time"] <= spans[event["rank"]][1]
    ]
    return fmean(found) if found else 0.0


def _last_metrics(events: Sequence[Event]) -> dict[str, float]:
    last = {name: values[-1] for name, values in tables.last_history(events).items() if values}
    return {name: value for name, value in last.items() if isfinite(value)}
