"""The measurement of one run: how long it trained, and on what its steps spent their time. Pure.

The first epoch of a fit contains the compilation of the model: it is excluded, or if there is no second epoch, each
rank's first bucket of steps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from statistics import fmean

from ddl_magics.runs import tables
from ddl_magics.runtime import events as ev
from ddl_magics.runtime.run_spec import RunSpec

EpochKey = tuple[int, int]  # number of the fit and of the epoch

#: Each rank's steps are divided into at most so many segments, whose differences give the bounds of a mean.
MAX_SEGMENTS = 8
#: The phases of a step.
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
    """The measurement of a run of `%ddl scale`.

    Attributes:
        run: its id.
        strategy, workers, seed: of its options.
        seconds: training time of all its fits, with their compilation.
        rows: that all ranks together train in an epoch.
        rest: seconds of an epoch outside of its steps: validation, callbacks, averaging.
        steps: means over segments of its steps.
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


def measured_run(spec: RunSpec, raw_events: Iterable[ev.RawEvent]) -> MeasuredRun | None:
    """The measurement of a finished run; None if it has no steps."""
    raw_events = list(raw_events)
    buckets = _buckets(raw_events)
    warm = _warm(buckets)
    if not warm:
        return None
    epochs = {(epoch.fit, epoch.epoch): epoch.seconds for epoch in ev.select(ev.Epoch, raw_events)}
    workers = {worker.rank: worker for worker in ev.select(ev.Worker, raw_events)}
    hosts = {worker.host for worker in workers.values()}
    in_epoch: dict[EpochKey, float] = defaultdict(float)
    for steps in (steps for of_rank in buckets.values() for steps in of_rank):
        in_epoch[steps.fit, steps.epoch] += steps.rows
    counted = [rows for epoch, rows in in_epoch.items() if epoch in epochs] or [sum(in_epoch.values())]
    return MeasuredRun(
        run=spec.run,
        strategy=spec.strategy,
        workers=spec.workers,
        seed=spec.seed or 0,
        seconds=_training_seconds(raw_events),
        rows=fmean(counted),
        rest=_outside_steps(buckets.get(0, []), epochs),
        steps=tuple(_segments(warm)),
        parameters=_parameters(raw_events),
        hosts=max(1, len(hosts)),
        cores=max((worker.cores or 0 for worker in workers.values()), default=0),
        busy=_busy(raw_events, warm),
        metrics=_last_metrics(raw_events),
        rule=spec.rule,
    )


def _buckets(raw_events: Iterable[ev.RawEvent]) -> dict[int, list[ev.Steps]]:
    """Rank -> its buckets of steps, in order."""
    buckets: dict[int, list[ev.Steps]] = defaultdict(list)
    for steps in ev.select(ev.Steps, raw_events):
        if steps.count:
            buckets[steps.rank].append(steps)
    return buckets


def _warm(buckets: Mapping[int, Sequence[ev.Steps]]) -> dict[int, list[ev.Steps]]:
    """The buckets without steps that compile the model, unless a rank has no others."""
    warm = {}
    for rank, of_rank in buckets.items():
        warmed_up = [steps for steps in of_rank if steps.epoch > 0 and not steps.earlier]
        compiling = {steps.fit: steps for steps in reversed(of_rank)}
        warm[rank] = warmed_up or [steps for steps in of_rank if steps is not compiling[steps.fit]] or list(of_rank)
    return warm


def _segments(buckets: Mapping[int, Sequence[ev.Steps]]) -> list[Step]:
    """The means over all ranks, one for each of equal segments of the training."""
    count = min(MAX_SEGMENTS, *map(len, buckets.values()))
    return [
        _mean(
            [
                steps
                for of_rank in buckets.values()
                for steps in of_rank[len(of_rank) * i // count : len(of_rank) * (i + 1) // count]
            ]
        )
        for i in range(count)
    ]


def _mean(buckets: Sequence[ev.Steps]) -> Step:
    count = sum(steps.count for steps in buckets)
    rows, seconds = sum(steps.rows for steps in buckets), sum(steps.seconds for steps in buckets)
    compute, wait = sum(steps.compute for steps in buckets), sum(steps.wait for steps in buckets)
    transferred = sum((steps.copy or 0.0) + (steps.wire or 0.0) for steps in buckets)
    # Without a collective in each step, a wait is for the exchange itself.
    exchange = transferred if transferred else wait
    return Step(
        rows=rows / count,
        compute=compute / count,
        exchange=exchange / count,
        waiting=max(0.0, wait - exchange) / count,
        feeding=max(0.0, seconds - compute - wait) / count,
        hidden=sum(steps.hidden or 0.0 for steps in buckets) / count,
    )


def _training_seconds(raw_events: Iterable[ev.RawEvent]) -> float:
    """From the begin of each fit on rank 0 to its end; of a loop of the cell's own, to its last step."""
    total, began, newest = 0.0, None, 0.0
    for event in (event for event in map(ev.parse, raw_events) if event.rank == 0):
        match event:
            case ev.Fit():
                total += max(0.0, newest - began) if began is not None else 0.0
                began = newest = event.time
            case ev.FitEnd() if began is not None:
                total += max(0.0, event.time - began)
                began = None
            case ev.Steps() | ev.Epoch():
                newest = event.time
    return total + (max(0.0, newest - began) if began is not None else 0.0)


def _outside_steps(chief: Sequence[ev.Steps], epochs: Mapping[EpochKey, float]) -> float:
    """The mean seconds of an epoch that are in no step of rank 0."""
    if not epochs:
        return 0.0
    stepping: dict[EpochKey, float] = defaultdict(float)
    for steps in chief:
        if not steps.earlier:
            stepping[steps.fit, steps.epoch] += steps.seconds
    complete = [epoch for epoch in epochs if epoch in stepping]
    counted = [epoch for epoch in complete if epoch[1] > 0] or complete
    return fmean([max(0.0, epochs[epoch] - stepping[epoch]) for epoch in counted] or [0.0])


def _parameters(raw_events: Sequence[ev.RawEvent]) -> int:
    """Of the model, or about as many as its weights' file has, where it was built by its first batch; 0 without one."""
    counts = [fit.parameters for fit in ev.select(ev.Fit, raw_events) if fit.parameters]
    artifacts = ev.select(ev.Artifact, raw_events)
    files = [artifact.size // 4 for artifact in artifacts if artifact.name.endswith(".npz")]
    return [0, *files, *counts][-1]


def _busy(raw_events: Iterable[ev.RawEvent], buckets: Mapping[int, Sequence[ev.Steps]]) -> float:
    """The mean number of cores that a rank kept busy while it trained."""
    spans = {rank: (steps[0].time - steps[0].seconds, steps[-1].time) for rank, steps in buckets.items()}
    cores = [
        sample.cpu / 100
        for sample in ev.select(ev.Sample, raw_events)
        if sample.rank in spans and spans[sample.rank][0] <= sample.time <= spans[sample.rank][1]
    ]
    return fmean(cores) if cores else 0.0


def _last_metrics(raw_events: Sequence[ev.RawEvent]) -> dict[str, float]:
    newest = {name: values[-1] for name, values in tables.last_history(raw_events).items() if values}
    return {name: value for name, value in newest.items() if isfinite(value)}
