"""The counts so far: rows per bin of the newest windows, and the drift that they show. Pure.

A batch is added once, by its number: the state, a JSON object, detects a batch that comes again after a restart.
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
#: Features in an event: those with the largest drift.
MAX_REPORTED = 40

#: Counts of a metric: bin -> [rows, sum, sum of squares].
Bins = Dict[str, List[float]]


class Watch:
    """The state of a monitor, which `to_json` stores and `from_json` reads."""

    def __init__(self, reference: Reference, counter: counting.Counter, state: Mapping[str, Any] | None = None) -> None:
        """Raises ValueError for a state that is damaged."""
        self._reference, self._counter = reference, counter
        state = _checked(state or {})
        #: The number of the last batch that was added.
        self.batch: int = state.get("batch", -1)
        self._windows: Dict[float, Dict[str, Bins]] = {float(k): v for k, v in state.get("windows", {}).items()}
        #: Of all batches.
        self.totals: Dict[str, int] = {"rows": 0, "requests": 0, "errors": 0, "unreadable": 0, "late": 0, "double": 0}
        self.totals.update(state.get("totals", {}))
        #: Feature -> since when it is in drift without a pause, in seconds since the epoch.
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

    def add(self, batch: int, counts: Iterable[Tuple[Any, int, int, int, float, float]]) -> None:
        """Add the counts of a batch, as `Counter.counts` makes them, unless the batch is here already."""
        if batch <= self.batch:
            return
        counter = self._counter
        for start, metric, bin, rows, total, squares in counts:
            if metric == counter.latency:
                self.totals["requests"] += rows
            elif metric == counter.error:
                self.totals["errors"] += int(total)
            elif metric == counter.unreadable:
                self.totals["unreadable"] += rows
                continue
            bins = self._windows.setdefault(float(start), {}).setdefault(str(metric), {})
            sums = bins.setdefault(str(bin), [0, 0, 0])
            for index, addend in enumerate((rows, total or 0.0, squares or 0.0)):
                sums[index] += addend
            if metric == self._counted:
                self.totals["rows"] += rows
        for start in sorted(self._windows)[:-WINDOWS]:
            del self._windows[start]
        self.batch = batch

    def add_errors(self, batch: int, sums: Iterable[Tuple[float, int, float, float]]) -> None:
        """Add (window, labelled rows, sum of the error, of its squares), unless the batch is here already."""
        if batch <= self.label_batch:
            return
        for start, rows, total, squares in sums:
            window_errors = self._errors.setdefault(float(start), [0, 0.0, 0.0])
            for index, addend in enumerate((rows, total or 0.0, squares or 0.0)):
                window_errors[index] += addend
        for start in sorted(self._errors)[:-WINDOWS]:
            del self._errors[start]
        self.label_batch = batch

    def set_errors(self, sums: Iterable[Tuple[float, int, float, float]]) -> None:
        """Replace the errors: these are of all labelled rows."""
        self._errors = {float(start): [rows, total or 0.0, squares or 0.0] for start, rows, total, squares in sums}

    @property
    def _counted(self) -> int:
        """The metric whose rows are counted: the first output, or without one the first input."""
        return self._counter.inputs if self._reference["outputs"] else 0

    def newest(self) -> Tuple[List[float], int]:
        """(the newest windows that together have `ROWS` rows, or all; their rows)."""
        starts: List[float] = []
        rows = 0
        for start in sorted(self._windows, reverse=True):
            starts.append(start)
            rows += self._rows(start, self._counted)
            if rows >= ROWS:
                break
        return starts, rows

    def _rows(self, start: float, metric: int) -> int:
        return int(sum(sums[0] for sums in self._windows[start].get(str(metric), {}).values()))

    def feature_drifts(self) -> List[Dict[str, Any]]:
        """The drift of each feature over the newest windows, largest PSI first. Updates `since`."""
        starts, _ = self.newest()
        drifts = [self._drift(index, feature, starts) for index, feature in enumerate(self._reference["features"])]
        return sorted(drifts, key=lambda feature: -(feature["psi"] or 0.0))

    def _drift(self, index: int, feature: Feature, starts: List[float]) -> Dict[str, Any]:
        bins = range(len(feature["counts"]))
        sums = [[0.0, 0.0, 0.0] for _ in bins]
        nulls = 0.0
        for start in starts:
            for bin, bin_sums in self._windows[start].get(str(index), {}).items():
                if int(bin) == counting.NULL:
                    nulls += bin_sums[0]
                elif int(bin) < len(sums):
                    sums[int(bin)] = [a + b for a, b in zip(sums[int(bin)], bin_sums)]
        counts = [bin_sums[0] for bin_sums in sums]
        reference_counts, window_counts = [*feature["counts"], feature["nulls"]], [*counts, nulls]
        comparison = drift.compare(reference_counts, window_counts)
        name, output = feature["name"], index >= self._counter.inputs
        if comparison is None or comparison.level == "none":
            self.since.pop(name, None)
        else:
            self.since.setdefault(name, min(starts))
        present, rows = sum(counts), sum(window_counts)
        mean = sum(bin_sums[1] for bin_sums in sums) / present if present and feature["kind"] == "number" else None
        return {
            "name": name,
            "output": output,
            "psi": comparison and _short(comparison.psi),
            "ks": comparison and _short(comparison.ks),
            "chi2": comparison and _short(comparison.chi2),
            "p": comparison and _short(comparison.p),
            "threshold": comparison and _short(comparison.threshold),
            "level": comparison.level if comparison else "none",
            "nulls": _short(nulls / rows) if rows else 0.0,
            "nulls_before": _short(feature["nulls"] / max(1, sum(reference_counts))),
            "mean": _short(mean),
            "mean_before": feature["mean"],
            "std_before": feature["std"],
            "labels": feature["labels"],
            "edges": [_short(edge) for edge in feature["edges"]],
            "before": list(feature["counts"]),
            "now": [int(count) for count in counts],
            "since": self.since.get(name),
        }

    def lines(self, seconds: float, timestamp: float) -> Dict[str, List[Any]]:
        """Of the newest windows: when they begin, requests/s, errors, and the latency in seconds.

        seconds: of a window. timestamp: the current time since the epoch; the newest window may not be over yet.
        """
        starts = sorted(self._windows)[-POINTS:]
        series: Dict[str, List[Any]] = {name: [] for name in ("time", "rate", "errors", "p50", "p95", "p99")}
        for start in starts:
            latencies = self._windows[start].get(str(self._counter.latency), {})
            requests = sum(sums[0] for sums in latencies.values())
            series["time"].append(start)
            series["rate"].append(_short(requests / min(seconds, max(timestamp - start, 1.0))))
            failed = self._windows[start].get(str(self._counter.error), {})
            series["errors"].append(sum(int(sums[1]) for sums in failed.values() if math.isfinite(sums[1])))
            for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
                series[name].append(_short(percentile(latencies, share)))
        return series

    def error(self) -> Dict[str, Any] | None:
        """The mean error of the newest labelled rows, `ROWS` of them at least if there are so many; None without."""
        if not self._errors:
            return None
        rows, total, squares = 0, 0.0, 0.0
        for start in sorted(self._errors, reverse=True):
            count, error_sum, square = self._errors[start]
            rows, total, squares = rows + int(count), total + error_sum, squares + square
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
    rows_by_bin = {int(bin): sums[0] for bin, sums in latencies.items() if int(bin) != counting.NULL}
    total, before = sum(rows_by_bin.values()), 0.0
    for bin in sorted(rows_by_bin):
        before += rows_by_bin[bin]
        if before >= share * total:
            return counting.latency_of(bin)
    return None


def _short(value: float | None) -> float | None:
    return None if value is None else float("%.5g" % value)


def _checked(state: Any) -> Mapping[str, Any]:
    """A stored state whose parts have their types. Raises ValueError."""
    try:
        sound = all(_is_count(state.get(name, -1), least=-1) for name in ("batch", "label_batch"))
        sound = sound and all(map(_is_count, state.get("totals", {}).values()))
        sound = sound and all(map(_is_number, state.get("since", {}).values()))
        sound = sound and all(map(_is_sums, state.get("errors", {}).values()))
        starts = [*state.get("errors", {}), *state.get("windows", {})]
        sound = sound and all(math.isfinite(float(start)) for start in starts)
        for metrics in state.get("windows", {}).values():
            for metric, bins in metrics.items():
                sound = sound and int(metric) >= 0 and all(int(bin) >= counting.NULL for bin in bins)
                sound = sound and all(map(_is_sums, bins.values()))
    except (AttributeError, TypeError, OverflowError):
        sound = False
    if not sound:
        raise ValueError("it has another form")
    checked: Mapping[str, Any] = state
    return checked


def _is_sums(value: Any) -> bool:
    """Rows, and two sums, which may be infinite."""
    return type(value) is list and len(value) == 3 and all(map(_is_number, value)) and 0 <= value[0] < 2**53


def _is_count(value: Any, least: int = 0) -> bool:
    return type(value) is int and least <= value < 2**53


def _is_number(value: Any) -> bool:
    return type(value) is float or _is_count(value, -(2**53))
