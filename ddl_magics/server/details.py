"""One run: everything stored about it except its events, and changes of its title and labels."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ddl_magics.runtime import events as ev
from ddl_magics.store import RunFolder, RunRecord

#: Number of files listed of a run.
MAX_FILES = 100
MAX_TITLE_CHARACTERS = 100
MAX_LABELS, MAX_LABEL_CHARACTERS = 20, 40


class InvalidUpdate(Exception):
    """A requested change of title or labels is invalid; the message says why."""


def details(record: RunRecord) -> dict[str, Any]:
    """The fields of `RunDetails` in `openapi.yaml` that `RunRow` does not have."""
    folder = RunFolder(record.folder)
    who = _read(record.folder / "owner.json")
    return {
        "spec": dict(record.spec),
        "cause": failure(record),
        "environment": dict(record.environment),
        "versions": dict(record.versions),
        "driver_address": dict(record.driver_address),
        "owner": {**{name: who.get(name) for name in ("host", "pid", "heartbeat")}, "alive": folder.owned()},
        "cell_files": [_cell_file(file) for file in record.cell_files[:MAX_FILES]],
        "files": _files(record.folder / "files"),
        "size": _size(record.folder / "events.jsonl"),
        "stop_requested": folder.requested("stop"),
    }


def failure(record: RunRecord) -> dict[str, Any] | None:
    """Why the run failed, with all fields of `Failure` in `openapi.yaml`; None if it did not fail."""
    if record.failure is None:
        return None
    return {"rank": ev.JOB, "host": "", "kind": "error", "message": "", "traceback": "", **record.failure}


def update(record: RunRecord, changes: dict[str, Any]) -> None:
    """Change title and labels of a run.

    Raises:
        InvalidUpdate: `changes` has another key, or an invalid value.
        OSError: the store cannot be written.
    """
    unknown = changes.keys() - {"title", "labels"}
    if unknown or not changes:
        raise InvalidUpdate("only title and labels can be changed")
    title, labels = changes.get("title"), changes.get("labels")
    if "title" in changes and not _is_line(title, MAX_TITLE_CHARACTERS):
        raise InvalidUpdate(
            f"title must be one line of at most {MAX_TITLE_CHARACTERS} characters; an empty one removes the title"
        )
    if "labels" in changes and not (isinstance(labels, list) and len(labels) <= MAX_LABELS):
        raise InvalidUpdate(f"labels must be a list of at most {MAX_LABELS}")
    if not all(_is_line(label, MAX_LABEL_CHARACTERS) and label.strip() for label in labels or ()):
        raise InvalidUpdate(f"a label must be one line of 1 to {MAX_LABEL_CHARACTERS} characters")
    stripped = None if labels is None else [label.strip() for label in labels]
    RunFolder(record.folder).label(stripped, None if title is None else title.strip())


def _is_line(text: Any, limit: int) -> bool:
    return isinstance(text, str) and len(text) <= limit and all(c == " " or c.isprintable() for c in text)


def _cell_file(file: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": str(file.get("name", "")), "size": file.get("size", 0), "path": file.get("path")}


def _files(folder: Path) -> list[dict[str, Any]]:
    try:
        with os.scandir(folder) as found:
            files = [(e.name, e.stat(follow_symlinks=False).st_size) for e in found if not e.name.startswith(".")]
    except OSError:
        return []
    return [{"name": name, "size": size} for name, size in sorted(files)[:MAX_FILES]]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
