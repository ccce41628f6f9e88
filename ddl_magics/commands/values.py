"""Stored runs and searches as values for programs: what `--json` prints of them. Pure.

Neither cells nor `--conf` are among them, which may hold secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ddl_magics.commands.answer import moment
from ddl_magics.options.redaction import masked
from ddl_magics.runtime import events as ev
from ddl_magics.runtime.driver.run_result import why_stopped
from ddl_magics.search.view import SearchView, TrialRow
from ddl_magics.store import RunRecord, SearchRecord

#: Key -> meaning.
RUN: Mapping[str, str] = {
    "id": "of the run; no other one has it",
    "name": "of the run, and of its variable",
    "title": "that was given in the panel, or empty",
    "state": "QUEUED, PREFLIGHT, SUBMITTED, WAITING, RUNNING, STOPPING, STOPPED, FINISHED, FAILED or LOST",
    "reason": "why it failed, was lost or was stopped, or what its state waits for; or empty",
    "cluster": "where it runs",
    "strategy": "of the training",
    "workers": "number of workers",
    "created": "when it was submitted",
    "ended": "when it ended, or null",
    "notebook": "path of the notebook",
    "search": "id of the search that it is a trial of, or null",
    "trial": "number of the trial, or null",
    "epoch": "epochs done of the current fit",
    "epochs": "epochs of the current fit, or null",
    "metrics": "name -> newest value; null for one that is no finite number",
    "parameters": "name -> value of --set",
    "tags": "list of texts",
    "note": "text, or empty",
    "imported": "whether ddl-magics import has brought it",
}
SEARCH: Mapping[str, str] = {
    "id": "of the search",
    "name": "of the search, and of its variable",
    "state": "RUNNING, STOPPING, FINISHED, STOPPED, FAILED or LOST",
    "reason": "why it failed, or empty",
    "cluster": "where its trials run",
    "method": "how values are sampled",
    "objective": "metric that is optimized",
    "workers": "workers of a trial",
    "created": "when it was started",
    "ended": "when it ended, or null",
    "notebook": "path of the notebook",
    "planned": "number of trials",
    "done": "trials that have ended",
    "best": "best value of the objective so far, or null",
    "best_trial": "number of its trial, or null",
    "imported": "whether ddl-magics import has brought it",
}
TRIAL = ("number", "state", "value", "further_values", "params", "epochs", "seconds", "tries", "reason", "run")


def of_run(record: RunRecord) -> dict[str, Any]:
    """A run, with the keys of `RUN`."""
    spec, progress = record.spec, record.progress
    return {
        "id": record.id,
        "name": record.name,
        "title": record.title,
        "state": record.state,
        "reason": _reason(record),
        "cluster": record.cluster,
        "strategy": spec.get("strategy"),
        "workers": spec.get("workers"),
        "created": moment(record.created),
        "ended": moment(record.ended),
        "notebook": record.notebook,
        "search": spec.get("parent"),
        "trial": spec.get("trial"),
        "epoch": progress.get("epoch", 0),
        "epochs": progress.get("epochs"),
        "metrics": progress.get("metrics", {}),
        "parameters": masked(spec.get("set") or {}),
        "tags": record.labels,
        "note": record.note,
        "imported": record.imported,
    }


def _reason(record: RunRecord) -> str:
    if record.state == ev.FINISHED:
        return ""
    if record.state == ev.STOPPED:
        return why_stopped(record.message)
    return str((record.failure or {}).get("message") or record.message)


def of_search(record: SearchRecord) -> dict[str, Any]:
    """A search, with the keys of `SEARCH`."""
    spec, progress = record.spec, record.progress
    return {
        "id": record.id,
        "name": record.name,
        "state": record.state,
        "reason": record.message,
        "cluster": record.cluster,
        "method": spec.get("search"),
        "objective": record.metric,
        "workers": spec.get("workers"),
        "created": moment(record.created),
        "ended": moment(record.ended),
        "notebook": record.notebook,
        "planned": spec.get("trials"),
        "done": progress.get("ended", 0),
        "best": progress.get("best"),
        "best_trial": progress.get("trial"),
        "imported": record.imported,
    }


def of_trials(view: SearchView) -> list[dict[str, Any]]:
    """The trials of a search, with the keys of `TRIAL`."""
    return [_of_trial(row) for row in view.rows]


def _of_trial(row: TrialRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in TRIAL}
