"""A run on its own page: all that the store has of it but its events; and the names that readers give it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ddl_magics import owner
from ddl_magics.store import RunFolder, RunRecord

#: Files of a run that are named.
MOST_FILES = 100
TITLE_CHARACTERS = 100
MOST_LABELS, LABEL_CHARACTERS = 20, 40


class Refused(Exception):
    """What a reader asks for is wrong; the message says why."""


def details(record: RunRecord) -> dict[str, Any]:
    """What the list does not say of a run: part of `RunDetails` in `openapi.yaml`."""
    folder = RunFolder(record.folder)
    who = _read(record.folder / "owner.json")
    return {
        "spec": dict(record.spec),
        "cause": None if record.failure is None else dict(record.failure),
        "environment": dict(record.environment),
        "versions": dict(record.versions),
        "place": dict(record.place),
        "owner": {**{name: who.get(name) for name in ("host", "pid", "heartbeat")}, "alive": owner.alive(who)},
        "files": _files(record.folder / "files"),
        "size": _size(record.folder / "events.jsonl"),
        "stop_requested": folder.requested("stop"),
    }


def rename(record: RunRecord, changes: dict[str, Any]) -> None:
    """Change title and labels of a run.

    Raises:
        Refused: `changes` holds anything else, or too much of it.
        OSError: it cannot be written.
    """
    unknown = changes.keys() - {"title", "labels"}
    if unknown or not changes:
        raise Refused("title and labels can be changed, and nothing else")
    title, labels = changes.get("title"), changes.get("labels")
    if "title" in changes and not _short(title, TITLE_CHARACTERS):
        raise Refused(f"title is a line of at most {TITLE_CHARACTERS} characters; an empty one takes it away")
    if "labels" in changes and not (isinstance(labels, list) and len(labels) <= MOST_LABELS):
        raise Refused(f"labels is a list of at most {MOST_LABELS}")
    if not all(_short(label, LABEL_CHARACTERS) and label.strip() for label in labels or ()):
        raise Refused(f"a label is a line of 1 to {LABEL_CHARACTERS} characters")
    names = None if labels is None else [label.strip() for label in labels]
    RunFolder(record.folder).label(names, None if title is None else title.strip())


def _short(text: Any, most: int) -> bool:
    return isinstance(text, str) and len(text) <= most and all(c == " " or c.isprintable() for c in text)


def _files(folder: Path) -> list[dict[str, Any]]:
    try:
        with os.scandir(folder) as found:
            files = [(e.name, e.stat(follow_symlinks=False).st_size) for e in found if not e.name.startswith(".")]
    except OSError:
        return []
    return [{"name": name, "size": size} for name, size in sorted(files)[:MOST_FILES]]


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
