"""The list of all runs: what has not changed on disk is not read again, and who asks again gets what changed.

A run is looked at by the stamps of its files; a thousand runs cost a few thousand calls of `stat`. Nothing is written,
so any number of servers can list one store. What cannot be read is listed with the reason.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from ddl_magics import owner, store
from ddl_magics.server import rows
from ddl_magics.server.glance import Glance, glance

MOST_ROWS = 200
#: Names of removed runs that are kept for those who ask what changed; who asks later gets all anew.
REMEMBERED = 1000
#: A folder without `run.json` may be one that is being made.
YOUNG_SECONDS = 10.0

_FILES = ("run.json", "labels.json", "events.jsonl")
_CURSOR = re.compile(r"(?P<created>-?\d+(\.\d+)?([eE][-+]?\d+)?)~(?P<id>[A-Za-z0-9_-]{1,64})")


@dataclass
class Entry:
    """A run as it was last seen. `record` is None where there is a `problem`."""

    id: str
    stamps: list[Any]
    record: store.RunRecord | None
    problem: str
    created: float
    #: A newer version wrote it.
    newer: bool = False
    changed: int = 0
    glanced: tuple[Any, Glance] | None = None

    @property
    def live(self) -> bool:
        return self.record is not None and not self.record.over

    @property
    def text(self) -> str:
        """What words are looked for in."""
        record = self.record
        if record is None:
            return f"{self.id} {self.problem}".lower()
        parts = (record.id, record.name, record.title, *record.labels, record.state, record.notebook, record.cluster)
        return " ".join(parts).lower()

    @property
    def order(self) -> tuple[float, str]:
        return self.created, self.id


@dataclass(frozen=True)
class Page:
    """Rows, newest first; or what changed since a version, with the ids of what is gone."""

    version: str
    total: int
    live: int
    runs: list[dict[str, Any]]
    next: str | None = None
    removed: list[str] = field(default_factory=list)
    more: bool = False


class Listing:
    """The runs of the store as one server knows them. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] = {}
        self._born = secrets.token_hex(3)
        self._count = 0
        self._removed: deque[tuple[int, str]] = deque(maxlen=REMEMBERED)

    def page(self, limit: int = 50, cursor: str | None = None, live: bool = False, words: str = "") -> Page:
        """The newest runs, or those after the `cursor` of a page before.

        Args:
            live: those alone that have not ended.
            words: those alone in whose name, title, labels, notebook, cluster, state or id each of the words is.

        Raises:
            ValueError: it is no cursor.
        """
        before = _position(cursor)
        with self._lock:
            self._refresh()
            chosen = [entry for entry in self._entries.values() if before is None or entry.order < before]
            if live:
                chosen = [entry for entry in chosen if entry.live]
            for word in words.lower().split():
                chosen = [entry for entry in chosen if word in entry.text]
            chosen.sort(key=lambda entry: entry.order, reverse=True)
            last = chosen[limit - 1] if len(chosen) > limit else None
            following = None if last is None else f"{last.created!r}~{last.id}"
            found = [self._row(entry) for entry in chosen[:limit]]
            return Page(self._version, len(self._entries), self._live, found, following)

    def changes(self, since: str, limit: int = 50) -> Page | None:
        """What changed since a page of this `version`, oldest change first; None if nothing did.

        Raises:
            LookupError: this server does not know the version (any more).
        """
        with self._lock:
            self._refresh()
            count = self._known(since)
            if count == self._count:
                return None
            fresh = sorted((e for e in self._entries.values() if e.changed > count), key=lambda entry: entry.changed)
            more = len(fresh) > limit
            found = [self._row(entry) for entry in fresh[:limit]]
            version = f"{self._born}-{fresh[limit - 1].changed}" if more else self._version
            removed = [run for at, run in self._removed if at > count and run not in self._entries]
            return Page(version, len(self._entries), self._live, found, removed=removed, more=more)

    def entry(self, run: str) -> Entry | None:
        """The run of this id as it is now, if the store has one. What is no id never reaches the file system."""
        if not store.RUN_ID.fullmatch(run):
            return None
        folder = store.runs_folder() / run
        if folder.is_symlink() or not folder.is_dir():
            return None
        with self._lock:
            return self._look(str(folder))

    def row(self, entry: Entry) -> dict[str, Any]:
        """What the list says of a run."""
        with self._lock:
            return self._row(entry)

    @property
    def _version(self) -> str:
        return f"{self._born}-{self._count}"

    @property
    def _live(self) -> int:
        return sum(entry.live for entry in self._entries.values())

    def _known(self, since: str) -> int:
        born, _, count = since.partition("-")
        known = int(count) if count.isdecimal() and len(count) < 16 else -1
        forgotten = self._removed[0][0] if len(self._removed) == REMEMBERED else 0
        if born != self._born or not forgotten <= known <= self._count:
            raise LookupError("another server, or too long ago")
        return known

    def _refresh(self) -> None:
        folders = _folders()
        for folder in folders.values():
            self._look(folder)
        for name in self._entries.keys() - folders:
            del self._entries[name]
            self._count += 1
            self._removed.append((self._count, name))

    def _look(self, folder: str) -> Entry | None:
        name = os.path.basename(folder)
        known = self._entries.get(name)
        # Text, as a `Path` takes several times as long as what is asked for it, thousands of times in each answer.
        stamps = [_stamp(f"{folder}/{file}") for file in _FILES]
        # A run may be lost though none of its files has changed.
        if known is not None and known.stamps == stamps and (not known.live or owner.alive(_owner(Path(folder)))):
            return known
        entry = _read(Path(folder))
        if entry is None:
            return None
        entry.stamps = stamps
        entry.glanced = None if known is None else known.glanced
        self._count += 1
        entry.changed = self._count
        self._entries[name] = entry
        return entry

    def _row(self, entry: Entry) -> dict[str, Any]:
        if entry.record is None:
            return rows.unreadable(entry.id, entry.created, entry.problem)
        stamp = entry.stamps[_FILES.index("events.jsonl")]
        if entry.glanced is None or entry.glanced[0] != stamp:
            entry.glanced = (stamp, glance(entry.record.folder / "events.jsonl"))
        return rows.row(entry.record, entry.glanced[1])


def _folders() -> dict[str, str]:
    """The folders of runs by their names."""
    try:
        with os.scandir(store.runs_folder()) as found:
            return {e.name: e.path for e in found if store.RUN_ID.fullmatch(e.name) and e.is_dir(follow_symlinks=False)}
    except OSError:
        return {}


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _owner(folder: Path) -> dict[str, Any]:
    try:
        who = json.loads((folder / "owner.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return who if isinstance(who, dict) else {}


def _read(folder: Path) -> Entry | None:
    """None: it is not there, or not yet."""
    record = store.RunFolder(folder).record()
    if record is not None and record.id == folder.name and isfinite(record.created):
        return Entry(folder.name, [], record, "", record.created)
    try:
        made = folder.stat().st_mtime
    except OSError:
        return None
    if not (folder / "run.json").exists():
        if time.time() - made < YOUNG_SECONDS:
            return None
        return Entry(folder.name, [], None, "there is no run.json: the folder is half written, or not a run", made)
    return Entry(folder.name, [], None, *_problem(folder, made))


def _problem(folder: Path, made: float) -> tuple[str, float, bool]:
    """Why a run cannot be read, when it was made, and whether a newer version can."""
    try:
        stored = json.loads((folder / "run.json").read_bytes())
        newer = stored["format"] > store.FORMAT
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "run.json is damaged", made, False
    if newer:
        number = f"a newer version wrote it (format {str(stored['format'])[:20]})"
        return f"{number}: update ddl_magics where Jupyter Server runs", made, True
    return "run.json is damaged: it holds what no version has written", made, False


def _position(cursor: str | None) -> tuple[float, str] | None:
    if cursor is None:
        return None
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise ValueError("cursor is none that a page has given")
    return float(match["created"]), match["id"]
