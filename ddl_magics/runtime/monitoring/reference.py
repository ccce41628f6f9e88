"""The reference of a run: how its data, and what its model made of it, were distributed at training time.

Each rank makes a sketch of a sample of its rows. The driver merges the sketches into the reference, a JSON object.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, Dict, List, Mapping, Sequence, TypedDict

import numpy as np

from .. import events
from . import watched
from .watched import Tensor

VERSION = 1
#: Bins of a number with many values: deciles, as is the custom for the PSI.
BINS = 10
#: A number of at most so many values has a bin for each; of texts, the most frequent have.
MAX_VALUES = 20
#: Points of the quantile function in a sketch: fewer where there are many features.
MAX_POINTS, MIN_POINTS, ALL_POINTS = 401, 101, 40_000


class Sketch(TypedDict):
    """A sample of something watched. nulls: of its `rows`. quantiles: at equal steps from 0 to 1, of the others.

    values: value -> rows, of a number with few values, and of the most frequent texts; None of a number with many.
    """

    rows: int
    nulls: int
    sum: float
    squares: float
    quantiles: List[float]
    values: Dict[str, int] | None


class Feature(TypedDict):
    """The distribution of something watched.

    kind: "number" or "text". edges: bin k has the values from edge k - 1 up to, and without, edge k. A text is the
    number of its value, from 1, or 0 for another. labels: of the bins; None where the edges say it. counts: rows of
    each bin.
    """

    name: str
    kind: str
    edges: List[float]
    labels: List[str] | None
    counts: List[int]
    nulls: int
    mean: float | None
    std: float | None


class Reference(TypedDict):
    """rows: of the sample. inputs, outputs: the model's tensors. features: of all inputs, then of all outputs."""

    v: int
    run: str
    rows: int
    inputs: List[Tensor]
    outputs: List[Tensor]
    features: List[Feature]


def points_for(features: int) -> int:
    """The points of each sketch."""
    return max(MIN_POINTS, min(MAX_POINTS, ALL_POINTS // max(1, features)))


def sketch(values: Any, points: int) -> Sketch:
    """The sketch of numbers (rows,), or of texts, bytes or str."""
    values = np.asarray(values)
    if values.dtype.kind in "OSU":
        return _text_sketch(values)
    present = values[np.isfinite(values)]
    summary: Sketch = {
        "rows": len(values),
        "nulls": len(values) - len(present),
        "sum": float(present.sum()),
        "squares": float(np.square(present).sum()),
        "quantiles": [],
        "values": None,
    }
    if len(present):
        at = np.linspace(0, len(present) - 1, points).astype(np.int64)
        summary["quantiles"] = [_short(value) for value in np.sort(present)[at]]
    distinct, counts = np.unique(present, return_counts=True)
    if len(distinct) <= MAX_VALUES:
        summary["values"] = {repr(float(value)): int(count) for value, count in zip(distinct, counts)}
    return summary


def _text_sketch(values: np.ndarray) -> Sketch:
    texts = [value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in values.tolist()]
    counts = Counter(text for text in texts if text is not None)
    frequent = sorted(counts, key=lambda text: (-counts[text], text))[: 2 * MAX_VALUES]
    return {
        "rows": len(texts),
        "nulls": texts.count(None),
        "sum": 0.0,
        "squares": 0.0,
        "quantiles": [],
        "values": {text: counts[text] for text in frequent},
    }


def merged(name: str, sketches: Sequence[Sketch], text: bool) -> Feature:
    """The distribution of what several sketches are of."""
    rows, nulls = sum(sketch["rows"] for sketch in sketches), sum(sketch["nulls"] for sketch in sketches)
    present = rows - nulls
    feature: Feature = {
        "name": name,
        "kind": "text" if text else "number",
        "edges": [],
        "labels": None,
        "counts": [],
        "nulls": nulls,
        "mean": None,
        "std": None,
    }
    if text:
        _add_text(feature, sketches, present)
        return feature
    if present:
        mean = sum(sketch["sum"] for sketch in sketches) / present
        variance = max(0.0, sum(sketch["squares"] for sketch in sketches) / present - mean * mean)
        feature["mean"], feature["std"] = _short(mean), _short(math.sqrt(variance))
    if all(sketch["values"] is not None for sketch in sketches):
        counts: Counter[float] = Counter()
        for sketch in sketches:
            counts.update({float(value): count for value, count in (sketch["values"] or {}).items()})
        if len(counts) <= MAX_VALUES:
            _add_values(feature, counts)
            return feature
    _add_quantiles(feature, sketches, present)
    return feature


def _add_text(feature: Feature, sketches: Sequence[Sketch], present: int) -> None:
    counts: Counter[str] = Counter()
    for sketch in sketches:
        counts.update(sketch["values"] or {})
    frequent = sorted(counts, key=lambda text: (-counts[text], text))[:MAX_VALUES]
    frequent_counts = [counts[value] for value in frequent]
    feature["labels"] = ["other", *frequent]
    feature["edges"] = [number - 0.5 for number in range(1, len(frequent) + 1)]
    feature["counts"] = [present - sum(frequent_counts), *frequent_counts]


def _add_values(feature: Feature, counts: Mapping[float, int]) -> None:
    """A bin for each value, and one below and one above all of them."""
    distinct = sorted(counts)
    if not distinct:
        return
    steps = [after - before for before, after in zip(distinct, distinct[1:])] or [max(1.0, abs(distinct[0]))]
    middles = [before + (after - before) / 2 for before, after in zip(distinct, distinct[1:])]
    low, high = distinct[0] - steps[0] / 2, distinct[-1] + steps[-1] / 2
    feature["edges"] = [low, *middles, high]
    feature["labels"] = ["lower", *("%g" % value for value in distinct), "higher"]
    feature["counts"] = [0, *(counts[value] for value in distinct), 0]


def _add_quantiles(feature: Feature, sketches: Sequence[Sketch], present: int) -> None:
    points = np.array([value for sketch in sketches for value in sketch["quantiles"]])
    weights = np.array([(s["rows"] - s["nulls"]) / len(s["quantiles"]) for s in sketches for _ in s["quantiles"]])
    order = np.argsort(points, kind="stable")
    points, weights = points[order], weights[order]
    share = np.cumsum(weights) / weights.sum()
    indices = np.searchsorted(share, np.arange(1, BINS) / BINS, side="left")
    edges = np.unique(points[np.minimum(indices, len(points) - 1)])
    edges = edges[edges > points[0]] if len(edges) > 1 else edges
    counts = np.bincount(np.searchsorted(edges, points, side="right"), weights, len(edges) + 1)
    feature["edges"] = [float(edge) for edge in edges]
    upto = np.rint(np.cumsum(counts)).astype(int)  # rounded so, they add up
    feature["counts"] = np.diff(upto, prepend=0).tolist()


def _short(value: Any) -> float:
    return float("%.9g" % float(value))


class Sketches:
    """Of the ranks of a run, until it ends. Each rank's come from a thread of its own."""

    def __init__(self) -> None:
        self._by_rank: Dict[int, Mapping[str, Any]] = {}

    def add(self, event: events.Reference) -> None:
        """The last event of a rank counts."""
        self._by_rank[event.rank] = event.raw

    def reference(self, run: str, made_of: Mapping[str, Any]) -> Reference | None:
        """None where no rank has reported. made_of: the `Inputs` of the run's data, which has the columns' names."""
        if not self._by_rank:
            return None
        reports = [self._by_rank[rank] for rank in sorted(self._by_rank)]
        chief = reports[0]
        inputs = [watched.with_columns(tensor, _columns(tensor["name"], made_of)) for tensor in chief["inputs"]]
        outputs = chief["outputs"]
        names = [(name, tensor["view"] == "text") for tensor in inputs for name in tensor["named"]]
        features = [
            merged(name, [report["sketches"][index] for report in reports], text)
            for index, (name, text) in enumerate(names)
        ]
        output_names = [name for tensor in outputs for name in tensor["named"]]
        features += [merged(name, [sketch], False) for name, sketch in zip(output_names, chief["output_sketches"])]
        rows = sum(report["rows"] for report in reports)
        return {"v": VERSION, "run": run, "rows": rows, "inputs": inputs, "outputs": outputs, "features": features}


def _columns(tensor: str, made_of: Mapping[str, Any]) -> List[str]:
    """The columns of a model's input."""
    features = made_of["features"]
    index = features if isinstance(features, int) else features[tensor]
    return [made_of["columns"][column]["name"] for column in made_of["tensors"][index]]
