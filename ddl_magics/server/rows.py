"""Rows of the list of runs, as JSON. Pure: made from a record and, for a run, a summary of its events."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from ddl_magics.runtime import events as ev
from ddl_magics.server.summary import Summary
from ddl_magics.server.trials import Trial
from ddl_magics.store import RunRecord, SearchRecord

MAX_FAILURE_CHARACTERS = 300


def row(
    record: RunRecord, summary: Summary, trial: Trial | None = None, seconds_left: float | None = None
) -> dict[str, Any]:
    """`RunRow` of `openapi.yaml`.

    Args:
        record, summary: of the run.
        trial: what its search says of it, if it is the run of a trial.
        seconds_left: until its current fit ends, as estimated; None if it is unknown.
    """
    trial = trial or Trial()
    spec, failure = record.spec, record.failure or {}
    return {
        "id": record.id,
        "problem": None,
        "name": record.name,
        "title": record.title,
        "labels": list(record.labels),
        "state": record.state,
        "live": not record.over,
        "created": record.created,
        "ended": record.ended,
        "notebook": record.notebook,
        "cell_id": record.cell_id,
        "cluster": record.cluster,
        "attachable": record.attachable,
        "strategy": spec.get("strategy"),
        "rule": spec.get("rule"),
        "workers": spec.get("workers"),
        "min_workers": spec.get("min_workers"),
        "parent": spec.get("parent"),
        "trial": spec.get("trial"),
        "trial_state": trial.state,
        "trial_value": trial.value,
        "trial_reason": trial.reason[:MAX_FAILURE_CHARACTERS],
        "parameters": {name: str(value) for name, value in (spec.get("set") or {}).items()},
        "cell_hash": hashlib.sha256(str(spec.get("cell", "")).encode()).hexdigest()[:12],
        "message": record.message[:MAX_FAILURE_CHARACTERS],
        "failure": str(failure["message"])[:MAX_FAILURE_CHARACTERS] if failure.get("message") else None,
        **progress(record, summary),
        "remaining": round(seconds_left, 1)
        if seconds_left and seconds_left > 0 and record.state == ev.RUNNING
        else None,
        "loss": summary.loss,
        "sparkline": list(summary.sparkline if trial.value is None else trial.curve),
        "last_seen": summary.last_seen,
    }


def search_row(record: SearchRecord) -> dict[str, Any]:
    """`SearchRow` of `openapi.yaml`."""
    spec, progress = record.spec, record.progress
    seconds_left = _number(progress, "left")
    return {
        "id": record.id,
        "name": record.name,
        "state": record.state,
        "live": not record.over,
        "message": record.message[:MAX_FAILURE_CHARACTERS],
        "created": record.created,
        "ended": record.ended,
        "notebook": record.notebook,
        "cluster": record.cluster,
        "workers": spec.get("workers"),
        "search": spec.get("search"),
        "objective": record.metric,
        "planned": spec.get("trials"),
        "done": _number(progress, "ended") or 0,
        "best": _number(progress, "best"),
        "best_trial": _number(progress, "trial"),
        "remaining": None if seconds_left is None or record.over else round(seconds_left, 1),
    }


def progress(record: RunRecord, summary: Summary) -> dict[str, Any]:
    """The progress of the current fit."""
    stored = record.progress
    epoch, epochs, steps = _number(stored, "epoch") or 0, _number(stored, "epochs"), _number(stored, "steps")
    begun, last_seen = _number(stored, "begun"), summary.last_seen
    # A summary of an earlier fit, or of an epoch that has ended since, says nothing about this one.
    current = last_seen is not None and summary.epoch == epoch and last_seen >= (begun or 0)
    step = summary.step if current else 0
    within = min(step / steps, 1.0) if steps else 0.0
    fraction = min((epoch + within) / epochs, 1.0) if epochs else None
    metrics = stored.get("metrics")
    return {
        "epoch": epoch,
        "epochs": epochs,
        "step": step,
        "steps": steps,
        "fraction": None if fraction is None else round(fraction, 4),
        "metrics": dict(metrics) if isinstance(metrics, dict) else {},
    }


def _number(values: Mapping[str, Any], name: str) -> Any:
    value = values.get(name)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
