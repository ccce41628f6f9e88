"""What has been counted so far: rows per bin of the newest windows, and what they say. Pure.

A batch is added as a whole, by its number. The state after it is a JSON object; where a batch comes again after a
restart, the state knows it.
"""

from __future__ import annotations

import math
from typing import Any, Dict, Iterable, List, Mapping, Tuple

from . import counting, drift
from .reference import Feature, Reference

#: Drift is judged on so many of the newest rows, if there are so many in the windows that are kept.
ROWS = 5_000
#: Windows that are kept.
WINDOWS = 400
#: Points of the lines over time in an event.
POINTS = 90
#: Watched things in an event: those that have moved most.
SHOWN = 40

#: Of the bins of a watched thing: bin -> [rows, sum, sum of squares].
Bins = Dict[str, List[float]]


class Watch:
    """The state of a monitor, which `to_json` stores and `from_json` reads."""

    def __init__(self, reference: Reference, counter: counting.Counter, state: Mapping[str, Any] | None = None) -> None:
        self._reference, self._counter = reference, counter
        state = state or {}
        #: The number of the last batch that was added.
        self.batch: int = state.get("batch", -1)
        self._windows: Dict[float, Dict[str, Bins]] = {float(k): v for k, v in state.get("windows", {}).items()}
        #: Of all batches.
        self.totals: Dict[str, int] = {"rows": 0, "requests": 0, "errors": 0, "unreadable": 0, "late": 0, "double": 0}
        self.totals.update(state.get("totals", {}))
        #: Watched thing -> since when it is in drift without a pause, in seconds since the epoch.
        self.since: Dict[str, float] = dict(state.get("since", {}))
        #: Window -> [labelled rows, sum of the error, sum of its squares].
        self._errors: Dict[float, List[float]] = {float(k): v for k, v in state.get("errors", {}).items()}
        self.label_batch: int = state.get("label_batch", -1)

    def to_json(self) -> Dict[str, Any]:
        return {
            "batch": self.batch,
            "label_batch": self.label_batch,
            "windows": {repr(start): bins for start, bins in self._windows.items()},
            "errors": {repr(start): sums for start, sums in self._errors.items()},
            "totals": self.totals,
            "since": self.since,
        }

    def add(self, batch: int, counts: Iterable[Tuple[float, int, int, int, float, float]]) -> bool:
        """Add the counts of a batch, as `Counter.counts` makes them. False where the batch is here already."""
        if batch <= self.batch:
            return False
        counter = self._counter
        for start, thing, bin, rows, total, squares in counts:
            if thing == counter.latency:
                self.totals["requests"] += rows
            elif thing == counter.error:
                self.totals["errors"] += int(total)
            elif thing == counter.unreadable:
                self.totals["unreadable"] += rows
                continue
            sums = self._windows.setdefault(float(start), {}).setdefault(str(thing), {}).setdefault(str(bin), [0, 0, 0])
            for index, part in enumerate((rows, total or 0.0, squares or 0.0)):
                sums[index] += part
            if thing == self._counted:
                self.totals["rows"] += rows
        for start in sorted(self._windows)[:-WINDOWS]:
            del self._windows[start]
        self.batch = batch
        return True

    def add_errors(self, batch: int, sums: Iterable[Tuple[float, int, float, float]]) -> bool:
        """Add (window, labelled rows, sum of the error, of its squares). False where the batch is here already."""
        if batch <= self.label_batch:
            return False
        for start, rows, total, squares in sums:
            known = self._errors.setdefault(float(start), [0, 0.0, 0.0])
            for index, part in enumerate((rows, total or 0.0, squares or 0.0)):
                known[index] += part
        for start in sorted(self._errors)[:-WINDOWS]:
            del self._errors[start]
        self.label_batch = batch
        return True

    def set_errors(self, sums: Iterable[Tuple[float, int, float, float]]) -> None:
        """Replace the errors: these are of all labelled rows."""
        self._errors = {float(start): [rows, total or 0.0, squares or 0.0] for start, rows, total, squares in sums}

    @property
    def _counted(self) -> int:
        """The watched thing whose rows are counted: the first output, or without one the first input."""
        return self._counter.inputs if self._reference["outputs"] else 0

    def newest(self) -> Tuple[List[float], int]:
        """(the newest windows that together have `ROWS` rows, or all; their rows)."""
        chosen: List[float] = []
        rows = 0
        for start in sorted(self._windows, reverse=True):
            chosen.append(start)
            rows += self._rows(start, self._counted)
            if rows >= ROWS:
                break
        return chosen, rows

    def _rows(self, start: float, thing: int) -> int:
        return int(sum(sums[0] for sums in self._windows[start].get(str(thing), {}).values()))

    def things(self) -> List[Dict[str, Any]]:
        """What is watched, those that have moved most first, over the newest windows. Updates `since`."""
        chosen, _ = self.newest()
        found = [self._thing(index, feature, chosen) for index, feature in enumerate(self._reference["features"])]
        return sorted(found, key=lambda thing: -(thing["psi"] or 0.0))

    def _thing(self, index: int, feature: Feature, chosen: List[float]) -> Dict[str, Any]:
        bins = range(len(feature["counts"]))
        sums = [[0.0, 0.0, 0.0] for _ in bins]
        nulls = 0.0
        for start in chosen:
            for bin, part in self._windows[start].get(str(index), {}).items():
                if int(bin) == counting.NULL:
                    nulls += part[0]
                elif int(bin) < len(sums):
                    sums[int(bin)] = [a + b for a, b in zip(sums[int(bin)], part)]
        counts = [part[0] for part in sums]
        before, now = [*feature["counts"], feature["nulls"]], [*counts, nulls]
        moved = drift.compare(before, now)
        name, output = feature["name"], index >= self._counter.inputs
        if moved is None or moved.level == "none":
            self.since.pop(name, None)
        else:
            self.since.setdefault(name, min(chosen))
        present, rows = sum(counts), sum(now)
        mean = sum(part[1] for part in sums) / present if present and feature["kind"] == "number" else None
        return {
            "name": name,
            "output": output,
            "psi": moved and _short(moved.psi),
            "ks": moved and _short(moved.ks),
            "chi2": moved and _short(moved.chi2),
            "p": moved and _short(moved.p),
            "threshold": moved and _short(moved.threshold),
            "level": moved.level if moved else "none",
            "nulls": _short(nulls / rows) if rows else 0.0,
            "nulls_before": _short(feature["nulls"] / max(1, sum(before))),
            "mean": _short(mean),
            "mean_before": feature["mean"],
            "std_before": feature["std"],
            "labels": feature["labels"],
            "edges": [_short(edge) for edge in feature["edges"]],
            "before": list(feature["counts"]),
            "now": [int(count) for count in counts],
            "since": self.since.get(name),
        }

    def lines(self, seconds: float, now: float) -> Dict[str, List[Any]]:
        """Of the newest windows: when they begin, requests/s, errors, and the latency in seconds.

        seconds: of a window. now: since the epoch, before which the newest window may not be over.
        """
        starts = sorted(self._windows)[-POINTS:]
        found: Dict[str, List[Any]] = {name: [] for name in ("time", "rate", "errors", "p50", "p95", "p99")}
        for start in starts:
            latencies = self._windows[start].get(str(self._counter.latency), {})
            requests = sum(sums[0] for sums in latencies.values())
            found["time"].append(start)
            found["rate"].append(_short(requests / min(seconds, max(now - start, 1.0))))
            failed = self._windows[start].get(str(self._counter.error), {})
            found["errors"].append(int(sum(sums[1] for sums in failed.values())))
            for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
                found[name].append(_short(percentile(latencies, share)))
        return found

    def error(self) -> Dict[str, Any] | None:
        """The mean error of the newest labelled rows, `ROWS` of them at least if there are so many; None without."""
        if not self._errors:
            return None
        rows, total, squares = 0, 0.0, 0.0
        for start in sorted(self._errors, reverse=True):
            count, part, square = self._errors[start]
            rows, total, squares = rows + int(count), total + part, squares + square
            if rows >= ROWS:
                break
        if not rows:
            return None
        mean = total / rows
        spread = math.sqrt(max(0.0, squares / rows - mean * mean))
        starts = sorted(self._errors)[-POINTS:]
        values = [_short(self._errors[start][1] / max(1, self._errors[start][0])) for start in starts]
        return {"rows": rows, "mean": _short(mean), "spread": _short(spread), "time": starts, "values": values}


def percentile(latencies: Mapping[str, List[float]], share: float) -> float | None:
    """Of a histogram of `counting`'s bins, in seconds; None of none."""
    known = {int(bin): sums[0] for bin, sums in latencies.items() if int(bin) != counting.NULL}
    total, before = sum(known.values()), 0.0
    for bin in sorted(known):
        before += known[bin]
        if before >= share * total:
            return counting.latency_of(bin)
    return None


def _short(value: float | None) -> float | None:
    return None if value is None else float("%.5g" % value)
