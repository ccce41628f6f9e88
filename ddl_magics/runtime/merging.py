"""Two events of one kind and rank as one, so that a long run's events take bounded space.

Sums are exact: the steps, rows, seconds and commits of merged events are those of the events that they stand for.
"""

from __future__ import annotations

from typing import Any, Callable

from .events import Event


def merge_steps(first: Event, second: Event) -> Event:
    """Two consecutive buckets of steps of one rank, also of different epochs."""
    merged = dict(second)
    if (first["fit"], first["epoch"]) == (second["fit"], second["epoch"]):
        merged["step"], earlier = first["step"], first.get("earlier", 0)
    else:
        earlier = first["count"] + second.get("earlier", 0)
    if earlier:
        merged["earlier"] = earlier
    for field in ("count", "rows", "seconds", "compute", "wait"):
        merged[field] = _plus(first[field], second[field])
    for field in ("copy", "wire", "data", "hidden"):
        if field in first or field in second:
            merged[field] = _plus(first.get(field, 0.0), second.get(field, 0.0))
    merged["metrics"] = dict(first["metrics"], **second["metrics"])
    return merged


def merge_samples(first: Event, second: Event) -> Event:
    """Two samples of a rank's process: their means, weighted by how many samples each stands for."""
    counts = first.get("count", 1), second.get("count", 1)
    merged = dict(second, count=sum(counts))
    merged["cpu"] = round(_mean(first["cpu"], second["cpu"], counts), 1)
    merged["memory"] = int(_mean(first["memory"], second["memory"], counts))
    before, after = first["gpus"] or [], second["gpus"] or []
    if before and [gpu["index"] for gpu in before] == [gpu["index"] for gpu in after]:
        merged["gpus"] = [_merge_gpus(one, other, counts) for one, other in zip(before, after)]
    return merged


def merge_commits(first: Event, second: Event) -> Event:
    """Two reports of a rank's commits."""
    counts = first["commits"], second["commits"]
    merged = dict(second, commits=sum(counts))
    merged["staleness"] = _mean(first["staleness"], second["staleness"], counts)
    merged["staleness_max"] = max(first["staleness_max"], second["staleness_max"])
    if "seconds" in first and "seconds" in second:
        merged["seconds"] = _plus(first["seconds"], second["seconds"])
    one, other = first.get("histogram"), second.get("histogram")
    if one is not None and other is not None:
        length = max(len(one), len(other))
        padded = ([*each, *[0] * (length - len(each))] for each in (one, other))
        merged["histogram"] = [sum(pair) for pair in zip(*padded)]
    return merged


def merge_values(first: Event, second: Event) -> Event:
    """Two calls of `ddl.log` of one rank: of a name that both have, the newer value."""
    return dict(second, metrics=dict(first["metrics"], **second["metrics"]))


#: Kind -> how two of its events are merged. Events of other kinds are never merged.
MERGES: dict[str, Callable[[Event, Event], Event]] = {
    "steps": merge_steps,
    "sample": merge_samples,
    "commits": merge_commits,
    "values": merge_values,
}


def merge(first: Event, second: Event) -> Event:
    """Two numbered events of one kind of `MERGES` and one rank. `first` of the result is the number of the first."""
    return dict(MERGES[second["kind"]](first, second), first=first.get("first", first["seq"]))


def _merge_gpus(first: Any, second: Any, counts: tuple[int, int]) -> Any:
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
