"""Two events of one kind and rank as one, so that a long run's events take bounded space.

Sums are exact: the steps, rows, seconds and commits of merged events are those of the events that they stand for.
"""

from __future__ import annotations

import itertools
from typing import Any, Callable, Dict

from .events import Commits, RawEvent, Sample, Steps, Values, parse, parse_as


def merge_steps(first: RawEvent, second: RawEvent) -> RawEvent:
    """Two consecutive buckets of steps of one rank, also of different epochs."""
    before, after = parse_as(Steps, first), parse_as(Steps, second)
    merged = dict(second)
    if (before.fit, before.epoch) == (after.fit, after.epoch):
        merged["step"], earlier = before.step, before.earlier
    else:
        earlier = before.count + after.earlier
    if earlier:
        merged["earlier"] = earlier
    for field in ("count", "rows", "seconds", "compute", "wait"):
        merged[field] = _plus(getattr(before, field), getattr(after, field))
    for field in ("copy", "wire", "data", "hidden"):
        if field in first or field in second:
            merged[field] = _plus(getattr(before, field) or 0.0, getattr(after, field) or 0.0)
    merged["metrics"] = dict(before.metrics, **after.metrics)
    return merged


def merge_samples(first: RawEvent, second: RawEvent) -> RawEvent:
    """Two samples of a rank's process: their means, weighted by how many samples each stands for."""
    before, after = parse_as(Sample, first), parse_as(Sample, second)
    counts = before.count, after.count
    merged = dict(second, count=sum(counts))
    merged["cpu"] = round(_mean(before.cpu, after.cpu, counts), 1)
    merged["memory"] = int(_mean(before.memory, after.memory, counts))
    gpus_before, gpus_after = before.gpus or [], after.gpus or []
    if gpus_before and [gpu["index"] for gpu in gpus_before] == [gpu["index"] for gpu in gpus_after]:
        merged["gpus"] = [_merge_gpus(*readings, counts) for readings in zip(gpus_before, gpus_after)]
    return merged


def merge_commits(first: RawEvent, second: RawEvent) -> RawEvent:
    """Two reports of a rank's commits."""
    before, after = parse_as(Commits, first), parse_as(Commits, second)
    counts = before.commits, after.commits
    merged = dict(second, commits=sum(counts))
    merged["staleness"] = _mean(before.staleness, after.staleness, counts)
    merged["staleness_max"] = max(before.staleness_max, after.staleness_max)
    if before.seconds is not None and after.seconds is not None:
        merged["seconds"] = _plus(before.seconds, after.seconds)
    if before.histogram is not None and after.histogram is not None:
        pairs = itertools.zip_longest(before.histogram, after.histogram, fillvalue=0)
        merged["histogram"] = [sum(pair) for pair in pairs]
    return merged


def merge_values(first: RawEvent, second: RawEvent) -> RawEvent:
    """Two calls of `ddl.log` of one rank: of a name that both have, the newer value."""
    return dict(second, metrics=dict(parse_as(Values, first).metrics, **parse_as(Values, second).metrics))


#: Kind -> how two of its events are merged. Events of other kinds are never merged.
MERGES: dict[str, Callable[[RawEvent, RawEvent], RawEvent]] = {
    Steps.kind: merge_steps,
    Sample.kind: merge_samples,
    Commits.kind: merge_commits,
    Values.kind: merge_values,
}


def merge(first: RawEvent, second: RawEvent) -> RawEvent:
    """Two numbered events of one kind of `MERGES` and one rank. `first` of the result is the number of the first."""
    return dict(MERGES[parse(second).kind](first, second), first=parse(first).first_seq)


def _merge_gpus(first: Dict[str, Any], second: Dict[str, Any], counts: tuple[int, int]) -> Dict[str, Any]:
    merged = dict(second)
    for name in ("percent", "memory"):
        if first.get(name) is not None and second.get(name) is not None:
            mean = _mean(first[name], second[name], counts)
            merged[name] = int(mean) if name == "memory" else round(mean, 1)
    return merged


def _mean(first: float, second: float, counts: tuple[int, int]) -> float:
    total = sum(counts) or 1
    return (first * counts[0] + second * counts[1]) / total


def _plus(first: Any, second: Any) -> Any:
    """A sum without the digits that adding seconds makes up."""
    total = first + second
    return total if isinstance(total, int) else round(total, 6)
