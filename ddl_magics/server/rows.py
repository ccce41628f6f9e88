"""What the list says of a run. Pure: a record and a glance at its events in, JSON out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from ddl_magics.runtime import events as ev
from ddl_magics.server.glance import Glance
from ddl_magics.store import RunRecord

FAILURE_CHARACTERS = 300


def row(record: RunRecord, seen: Glance) -> dict[str, Any]:
    """A run that can be read: `Run` in `openapi.yaml`."""
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
        "attachable": bool(record.place),
        "strategy": spec.get("strategy"),
        "rule": spec.get("rule"),
        "workers": spec.get("workers"),
        "cell": hashlib.sha256(str(spec.get("cell", "")).encode()).hexdigest()[:12],
        "failure": str(failure["message"])[:FAILURE_CHARACTERS] if failure.get("message") else None,
        **progress(record, seen),
        "loss": seen.loss,
        "spark": list(seen.spark),
        "heard": seen.heard,
    }


def unreadable(run: str, created: float, problem: str) -> dict[str, Any]:
    """A folder that this version cannot read: `UnreadableRun` in `openapi.yaml`."""
    return {"id": run, "problem": problem, "created": created, "live": False}


def progress(record: RunRecord, seen: Glance) -> dict[str, Any]:
    """Of the current fit: epochs done and to do, the share that is done, the seconds that it will still take."""
    known = record.progress
    epoch, epochs, steps = _number(known, "epoch") or 0, _number(known, "epochs"), _number(known, "steps")
    begun = _number(known, "begun")
    current = seen.heard is not None and seen.epoch == epoch and seen.heard >= (begun or 0)
    step = seen.step if current else 0
    within = min(step / steps, 1.0) if steps else 0.0
    share = min((epoch + within) / epochs, 1.0) if epochs else None
    remaining = None
    if share and begun and seen.heard and seen.heard > begun and record.state == ev.RUNNING:
        remaining = (1 - share) / share * (seen.heard - begun)
    metrics = known.get("metrics")
    return {
        "epoch": epoch,
        "epochs": epochs,
        "step": step,
        "steps": steps,
        "fraction": None if share is None else round(share, 4),
        "remaining": None if remaining is None else round(remaining, 1),
        "metrics": dict(metrics) if isinstance(metrics, dict) else {},
    }


def _number(values: Mapping[str, Any], name: str) -> Any:
    value = values.get(name)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
