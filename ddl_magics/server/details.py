"""One run: everything stored about it except its events, and changes of its title, labels and note."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ddl_magics.history import provenance
from ddl_magics.history.description import described
from ddl_magics.runtime import events as ev
from ddl_magics.store import RunFolder, RunRecord, labels
from ddl_magics.store.labels import InvalidLabels
from ddl_magics.store.owned_folder import read_object

#: Number of files listed of a run.
MAX_FILES = 100
#: What can be changed.
UPDATES = ("title", "labels", "note")


def details(record: RunRecord) -> dict[str, Any]:
    """The fields of `RunDetails` in `openapi.yaml` that `RunRow` does not have."""
    folder = RunFolder(record.folder)
    owner = read_object(record.folder / "owner.json")
    return {
        "note": record.note,
        "provenance": [asdict(section) for section in described(provenance.read(record.folder))],
        "spec": dict(record.spec),
        "cause": failure(record),
        "environment": dict(record.environment),
        "versions": dict(record.versions),
        "driver_address": dict(record.driver_address),
        "owner": {**{name: owner.get(name) for name in ("host", "pid", "heartbeat")}, "alive": folder.has_live_owner()},
        "cell_files": [_cell_file(file) for file in record.cell_files[:MAX_FILES]],
        "files": _files(record.folder / "files"),
        "size": folder.events_bytes(),
        "stop_requested": folder.requested("stop"),
    }


def failure(record: RunRecord) -> dict[str, Any] | None:
    """Why the run failed, with all fields of `Failure` in `openapi.yaml`; None if it did not fail."""
    if record.failure is None:
        return None
    return {"rank": ev.JOB, "host": "", "kind": "error", "message": "", "traceback": "", **record.failure}


def file_path(record: RunRecord, name: str) -> Path | None:
    """The file of a run in the store by its name; None where it has no such file, or a link or folder of that name."""
    folder = record.folder / "files"
    try:
        with os.scandir(folder) as entries:
            return next((Path(e) for e in entries if e.name == name and e.is_file(follow_symlinks=False)), None)
    except OSError:
        return None


def update(record: RunRecord, changes: dict[str, Any]) -> None:
    """Change title, labels and note of a run.

    Raises:
        InvalidLabels: `changes` has another key, or an invalid value.
        OSError: the store cannot be written.
    """
    if not changes or changes.keys() - UPDATES:
        raise InvalidLabels(f"only {', '.join(UPDATES[:-1])} and {UPDATES[-1]} can be changed")
    if not isinstance(changes.get("labels", []), list):
        raise InvalidLabels("labels must be a list of texts")
    RunFolder(record.folder).label(
        labels.tags(changes["labels"]) if "labels" in changes else None,
        labels.title(changes["title"]) if "title" in changes else None,
        labels.note(changes["note"]) if "note" in changes else None,
    )


def _cell_file(file: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": str(file.get("name", "")), "size": file.get("size", 0), "path": file.get("path")}


def _files(folder: Path) -> list[dict[str, Any]]:
    try:
        with os.scandir(folder) as entries:
            files = [(e.name, e.stat(follow_symlinks=False).st_size) for e in entries if not e.name.startswith(".")]
    except OSError:
        return []
    return [{"name": name, "size": size} for name, size in sorted(files)[:MAX_FILES]]
