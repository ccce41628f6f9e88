"""The list of all runs and searches, in pages, and the changes since an earlier answer.

A run is read again only if the `stat` of one of its files has changed, so that a thousand runs cost a few thousand
calls of `stat`. Nothing is written: any number of servers can list one store. A run that cannot be read is listed with
the reason.
"""

from __future__ import annotations

import json
import logging
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

from ddl_magics import store
from ddl_magics.history import query
from ddl_magics.runtime import events as ev
from ddl_magics.server import rows
from ddl_magics.server.run_reader import READ_SECONDS, RunReader
from ddl_magics.server.search_views import stored_view
from ddl_magics.server.summary import Summary, summarize
from ddl_magics.server.trials import Trial, by_run
from ddl_magics.store.files import stamp

MAX_PAGE_SIZE = 200
#: Number of removed ids that are remembered. A client that missed more of them has to read the pages again.
MAX_REMOVED = 1000
#: A folder without `run.json` that is younger than this may be a run that is just being created.
NEW_FOLDER_SECONDS = 10.0

_FILES = ("run.json", "labels.json", "events.jsonl")
_CURSOR = re.compile(r"(?P<created>-?\d+(\.\d+)?([eE][-+]?\d+)?)~(?P<id>[A-Za-z0-9_-]{1,64})")

_log = logging.getLogger(__name__)


@dataclass
class Entry:
    """A run as it was last read.

    Attributes:
        stamps: inode, mtime and size of each of `_FILES`.
        record: None if there is a `problem`.
        created: seconds since the epoch.
        newer: a newer version of ddl_magics wrote the run.
        revision: the revision of the listing in which the run last changed.
        summary: the summary of the events, with the stamp of the file that it was made from.
        reader: of a run that trains, which estimates its end.
    """

    id: str
    stamps: list[Any]
    record: store.RunRecord | None
    problem: str
    created: float
    newer: bool = False
    revision: int = 0
    summary: tuple[Any, Summary] | None = None
    reader: RunReader | None = None

    @property
    def live(self) -> bool:
        return self.record is not None and not self.record.over

    def matches(self, row_filter: query.Query) -> bool:
        """An unreadable run matches only the empty query."""
        return not row_filter.terms if self.record is None else row_filter.matches(self.record)

    @property
    def order(self) -> tuple[float, str]:
        return self.created, self.id


@dataclass
class SearchEntry:
    """A search as it was last read.

    Attributes:
        stamp: inode, mtime and size of its `search.json`.
        revision: the revision of the listing in which the search last changed.
        view_stamp: the same of the view that `trials` were read from.
        trials: its trials, by the ids of their runs.
    """

    record: store.SearchRecord
    stamp: Any
    revision: int
    view_stamp: Any = None
    trials: dict[str, Trial] = field(default_factory=dict)


@dataclass(frozen=True)
class Page:
    """`RunPage` of `openapi.yaml`, without `store`."""

    version: str
    total: int
    live: int
    runs: list[dict[str, Any]]
    searches: list[dict[str, Any]]
    next: str | None = None
    removed: list[str] = field(default_factory=list)
    more: bool = False


class Listing:
    """The runs of the store, as one server has read them. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] = {}
        self._searches: dict[str, SearchEntry] = {}
        # Both make the `version` of a page. Each server has its own instance.
        self._instance = secrets.token_hex(3)
        self._revision = 0
        self._removed: deque[tuple[int, str]] = deque(maxlen=MAX_REMOVED)

    def page(self, limit: int = 50, cursor: str | None = None, live: bool = False, words: str = "") -> Page:
        """The newest runs, or those that follow an earlier page.

        Args:
            limit: number of rows.
            cursor: `next` of the earlier page.
            live: only runs that have not ended.
            words: only runs that match this query.

        Raises:
            ValueError: the cursor or the query is invalid.
        """
        before, row_filter = _parse_cursor(cursor), query.parse(words)
        with self._lock:
            self._refresh()
            entries = [entry for entry in self._entries.values() if before is None or entry.order < before]
            if live:
                entries = [entry for entry in entries if entry.live]
            searches = [search for search in self._searches.values() if not (live and search.record.over)]
            version = self._version()
        # Outside the lock: a query may read files of each run.
        entries = [entry for entry in entries if entry.matches(row_filter)]
        searches = [search for search in searches if row_filter.matches(query.of_search(search.record))]
        entries.sort(key=lambda entry: entry.order, reverse=True)
        last_entry = entries[limit - 1] if len(entries) > limit else None
        next_cursor = None if last_entry is None else f"{last_entry.created!r}~{last_entry.id}"
        search_rows = [] if before else [rows.search_row(search.record) for search in searches]
        with self._lock:
            rows_ = [self._row(entry) for entry in entries[:limit]]
            return Page(version, len(self._entries), self._live, rows_, search_rows, next_cursor)

    def matching(self, words: str) -> list[str]:
        """The ids of all runs and searches that match a query. Raises QueryError, a ValueError."""
        row_filter = query.parse(words)
        with self._lock:
            self._refresh()
            entries, searches = list(self._entries.values()), list(self._searches.values())
        runs = [entry.id for entry in entries if entry.matches(row_filter)]
        return runs + [search.record.id for search in searches if row_filter.matches(query.of_search(search.record))]

    def changes(self, since: str, limit: int = 50) -> Page | None:
        """The changes since the page or answer with the version `since`, oldest first; None if there are none.

        Raises:
            LookupError: the version is of another server, or too old.
        """
        with self._lock:
            self._refresh()
            revision = self._parse_version(since)
            if revision == self._revision:
                return None
            everything: list[Entry | SearchEntry] = [*self._entries.values(), *self._searches.values()]
            changed = [entry for entry in everything if entry.revision > revision]
            changed.sort(key=lambda entry: entry.revision)
            has_more = len(changed) > limit
            version = self._version(changed[limit - 1].revision if has_more else None)
            rows_ = [self._row(entry) for entry in changed[:limit] if isinstance(entry, Entry)]
            searches = [rows.search_row(entry.record) for entry in changed[:limit] if isinstance(entry, SearchEntry)]
            listed = self._entries.keys() | self._searches.keys()
            removed = [name for at, name in self._removed if at > revision and name not in listed]
            return Page(version, len(self._entries), self._live, rows_, searches, removed=removed, more=has_more)

    def entry(self, run: str) -> Entry | None:
        """The run with this id as it is now, or None. A text that is not an id never reaches the file system."""
        if not store.RUN_ID.fullmatch(run):
            return None
        folder = store.runs_folder() / run
        if folder.is_symlink() or not folder.is_dir():
            return None
        with self._lock:
            return self._update(str(folder))

    def search(self, search: str) -> store.SearchRecord | None:
        """The search with this id as it is now, or None."""
        if not store.RUN_ID.fullmatch(search):
            return None
        folder = store.searches_folder() / search
        return None if folder.is_symlink() or not folder.is_dir() else store.SearchFolder(folder).record()

    def row(self, entry: Entry) -> dict[str, Any]:
        """`RunRow` or `UnreadableRun` of `openapi.yaml`."""
        with self._lock:
            return self._row(entry)

    def _version(self, revision: int | None = None) -> str:
        return f"{self._instance}-{self._revision if revision is None else revision}"

    @property
    def _live(self) -> int:
        return sum(entry.live for entry in self._entries.values())

    def _parse_version(self, version: str) -> int:
        instance, _, digits = version.partition("-")
        revision = int(digits) if digits.isdecimal() and len(digits) < 16 else -1
        oldest = self._removed[0][0] if len(self._removed) == MAX_REMOVED else 0
        if instance != self._instance or not oldest <= revision <= self._revision:
            raise LookupError("the version is of another server, or too old")
        return revision

    def _refresh(self) -> None:
        try:
            folders, searches = _folders(store.runs_folder()), _folders(store.searches_folder())
        except OSError as error:  # too many open files, or no network home: the runs still exist
            _log.warning("the stored runs cannot be listed: %s", error)
            return
        for folder in folders.values():
            self._update(folder)
        for folder in searches.values():
            self._update_search(folder)
        for entries, listed in ((self._entries, folders), (self._searches, searches)):
            for name in entries.keys() - listed:
                self._forget(entries, name)

    def _forget(self, entries: dict[str, Any], name: str) -> None:
        del entries[name]
        self._revision += 1
        self._removed.append((self._revision, name))

    def _update_search(self, path: str) -> None:
        """Read a search again if its file has changed. An unreadable search is not listed, but its runs are."""
        name, folder, file_stamp = os.path.basename(path), store.SearchFolder(Path(path)), stamp(f"{path}/search.json")
        cached = self._searches.get(name)
        if cached is None or cached.stamp != file_stamp or not (cached.record.over or folder.has_live_owner()):
            record = folder.record()
            if record is None:
                if cached is not None:
                    self._forget(self._searches, name)
                return
            self._revision += 1
            trials = {} if cached is None else {"view_stamp": cached.view_stamp, "trials": cached.trials}
            cached = self._searches[name] = SearchEntry(record, file_stamp, self._revision, **trials)
        self._update_trials(cached, folder)

    def _update_trials(self, entry: SearchEntry, folder: store.SearchFolder) -> None:
        """Read the trials of a search again if its view has changed; so have the rows of those that differ."""
        view_stamp = stamp(folder.view_path)
        if entry.view_stamp == view_stamp:
            return
        before, view = entry.trials, stored_view(folder)
        entry.view_stamp, entry.trials = view_stamp, {} if view is None else by_run(view)
        for run in before.keys() | entry.trials.keys():
            if run in self._entries and before.get(run) != entry.trials.get(run):
                self._revision += 1
                self._entries[run].revision = self._revision

    def _update(self, folder: str) -> Entry | None:
        """The entry of a folder, read again if one of its files has changed; None if it is not a run yet."""
        name = os.path.basename(folder)
        cached = self._entries.get(name)
        # Strings, because making a `Path` takes several times as long as the `stat`.
        stamps = [stamp(f"{folder}/{file}") for file in _FILES]
        # A kernel may die without changing a file.
        if (
            cached is not None
            and cached.stamps == stamps
            and (not cached.live or store.RunFolder(Path(folder)).has_live_owner())
        ):
            return cached
        entry = _read(Path(folder))
        if entry is None:
            return None
        entry.stamps = stamps
        if cached is not None:
            entry.summary, entry.reader = cached.summary, cached.reader
        self._revision += 1
        entry.revision = self._revision
        self._entries[name] = entry
        return entry

    def _row(self, entry: Entry) -> dict[str, Any]:
        if entry.record is None:
            return {"id": entry.id, "problem": entry.problem, "created": entry.created, "live": False}
        events_stamp = entry.stamps[_FILES.index("events.jsonl")]
        if entry.summary is None or entry.summary[0] != events_stamp:
            entry.summary = (events_stamp, summarize(entry.record.folder / "events.jsonl"))
        search = self._searches.get(str(entry.record.spec.get("parent")))
        trial = None if search is None else search.trials.get(entry.id)
        return rows.row(entry.record, entry.summary[1], trial, _seconds_left(entry))


def _seconds_left(entry: Entry) -> float | None:
    """The seconds until the fit of a run ends, by the estimate that its views have."""
    if entry.record is None or entry.record.state != ev.RUNNING:
        entry.reader = None
        return None
    reader = entry.reader = entry.reader or RunReader(entry.record)
    reader.read_more(READ_SECONDS)
    end = None if reader.behind else reader.history.pace.end()
    return None if end is None else end - time.time()


def _folders(parent: Path) -> dict[str, str]:
    """The folders of the runs, or of the searches: id -> path. Raises OSError if they cannot be read."""
    try:
        with os.scandir(parent) as entries:
            return {
                e.name: e.path for e in entries if store.RUN_ID.fullmatch(e.name) and e.is_dir(follow_symlinks=False)
            }
    except FileNotFoundError:
        return {}


def _read(folder: Path) -> Entry | None:
    """Read a folder; None if it is gone, or not a run yet."""
    record = store.RunFolder(folder).record()
    if record is not None and record.id == folder.name and isfinite(record.created):
        return Entry(folder.name, [], record, "", record.created)
    try:
        changed = folder.stat().st_mtime
    except OSError:
        return None
    if not (folder / "run.json").exists():
        if time.time() - changed < NEW_FOLDER_SECONDS:
            return None
        return Entry(folder.name, [], None, "there is no run.json: the folder is incomplete, or not a run", changed)
    problem, newer = _problem(folder)
    return Entry(folder.name, [], None, problem, changed, newer)


def _problem(folder: Path) -> tuple[str, bool]:
    """Why a run cannot be read, and whether a newer version wrote it."""
    try:
        stored = json.loads((folder / "run.json").read_bytes())
        newer = stored["format"] > store.FORMAT
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "run.json is damaged", False
    if newer:
        format_ = str(stored["format"])[:20]
        return f"a newer version wrote it (format {format_}): update ddl_magics where Jupyter Server runs", True
    return "run.json is damaged: no version writes such a file", False


def _parse_cursor(cursor: str | None) -> tuple[float, str] | None:
    if cursor is None:
        return None
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise ValueError("cursor must be the next of an earlier page")
    return float(match["created"]), match["id"]
