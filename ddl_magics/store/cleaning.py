"""Removing old runs from the store: which may go, and their removal.

A run stays in any case while it lives or may live, for a while after its end, if it has a label (a tag, in the panel),
as long as a run that stays continues from it (`--resume`), and as long as the search lives whose trial it is. A search
that has ended goes with its last trial. Folders that this version cannot read are left alone.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddl_magics.runtime import events as ev
from ddl_magics.store.owned_folder import RunInUse
from ddl_magics.store.run_folder import RUN_ID, RunFolder, RunRecord, list_runs, runs_folder
from ddl_magics.store.search_folder import SearchFolder, list_searches, searches_folder

#: A run that has ended less than this ago may still be fetching its model.
RECENT_SECONDS = 600.0
#: The Livy session of a run that was lost may live on, and the run be attached again.
ATTACHABLE_SECONDS = 7 * 86400.0
#: Fields of a spec that hold the id of the run from which a run continues.
REFERENCES = ("resume", "retry")
#: What was interrupted is removed after this time without a change.
LEFT_SECONDS = 3600.0

_HIDDEN = re.compile(rf"[.]{RUN_ID.pattern}[.][0-9a-f]{{6}}")


@dataclass(frozen=True)
class Policy:
    """Which runs stay: those that ended at most `keep` seconds ago, and the `keep_last` newest; with neither, all.

    Of the rest of them, the oldest go until the store takes at most `max_bytes`. None: not given.
    """

    keep: float | None = None
    keep_last: int | None = None
    max_bytes: int | None = None

    @property
    def removes(self) -> bool:
        return (self.keep, self.keep_last, self.max_bytes) != (None, None, None)

    def expires(self, age: float, newer: int) -> bool:
        """Whether neither `keep` nor `keep_last` keeps a run. newer: how many are newer."""
        conditions = [
            *([age <= self.keep] if self.keep is not None else []),
            *([newer < self.keep_last] if self.keep_last is not None else []),
        ]
        return bool(conditions) and not any(conditions)


@dataclass(frozen=True)
class StoredRun:
    """A run and the bytes that its folder takes."""

    record: RunRecord
    bytes: int

    @property
    def ended(self) -> float:
        return self.record.ended or self.record.created

    @property
    def reference(self) -> str | None:
        """The id of the run from which it continues."""
        spec = self.record.spec
        return next((str(spec[name]) for name in REFERENCES if spec.get(name)), None)

    def must_stay(self, now: float) -> bool:
        """Whether it stays whatever the policy: it lives, may live, has just ended, or has a label."""
        record, age = self.record, now - self.ended
        if not record.over or record.labels or age < RECENT_SECONDS or _searching(record.spec.get("parent")):
            return True
        if record.state != ev.LOST:
            return False
        return (bool(record.driver_address) and age < ATTACHABLE_SECONDS) or RunFolder(record.folder).has_live_owner()


def stored_runs() -> list[StoredRun]:
    """All runs of the store, newest first."""
    return [StoredRun(record, _bytes(record.folder)) for record in list_runs()]


def choose(runs: Sequence[StoredRun], policy: Policy, now: float) -> list[StoredRun]:
    """The runs that the policy removes, oldest first. runs: newest first."""
    free = [run for run in runs if not run.must_stay(now)]
    expired = {run.record.id for newer, run in enumerate(runs) if policy.expires(now - run.ended, newer)}
    removable = _unreferenced({run.record.id for run in free} & expired, runs)
    if policy.max_bytes is not None:
        size = sum(run.bytes for run in runs if run.record.id not in removable)
        while size > policy.max_bytes:
            referenced = _references(run for run in runs if run.record.id not in removable)
            oldest = next(
                (r for r in reversed(free) if r.record.id not in removable and r.record.id not in referenced), None
            )
            if oldest is None:
                break
            removable.add(oldest.record.id)
            size -= oldest.bytes
    return [run for run in reversed(runs) if run.record.id in removable]


def remove(runs: Iterable[StoredRun]) -> list[StoredRun]:
    """Remove the runs; returns those that are gone. One that somebody has begun to follow meanwhile stays."""
    removed = []
    for run in runs:
        try:
            RunFolder(run.record.folder).discard()
        except (RunInUse, OSError):
            continue
        removed.append(run)
    _remove_remains()
    if removed:
        _remove_searches()
    return removed


def clean(policy: Policy) -> list[StoredRun]:
    """Remove what the policy removes; returns it."""
    return remove(choose(stored_runs(), policy, time.time())) if policy.removes else []


def _searching(parent: str | None) -> bool:
    """Whether the search with this id has not ended."""
    search = None if parent is None else SearchFolder(searches_folder() / parent).record()
    return search is not None and not search.over


def _remove_searches() -> None:
    """Searches that have ended a while ago, and of which no trial is stored any more."""
    searches = [search for search in list_searches() if search.over]
    if not searches:
        return
    parents = {record.spec.get("parent") for record in list_runs()}
    for search in searches:
        if search.id not in parents and time.time() - (search.ended or search.created) > RECENT_SECONDS:
            shutil.rmtree(search.folder, ignore_errors=True)


def _unreferenced(removable: set[str], runs: Sequence[StoredRun]) -> set[str]:
    """Without those from which a run that stays continues, or one of these."""
    while referenced := removable & _references(run for run in runs if run.record.id not in removable):
        removable = removable - referenced
    return removable


def _references(runs: Iterable[StoredRun]) -> set[str]:
    return {run.reference for run in runs if run.reference is not None}


def _remove_remains() -> None:
    """What was interrupted has left: removals, which rename a folder first, and imports, which may still go on."""
    for parent in (runs_folder(), searches_folder()):
        try:
            paths = [entry.path for entry in os.scandir(parent) if entry.is_dir() and _HIDDEN.fullmatch(entry.name)]
        except OSError:
            continue
        for path in paths:
            if _last_change(Path(path)) < time.time() - LEFT_SECONDS:
                shutil.rmtree(path, ignore_errors=True)


def _last_change(folder: Path) -> float:
    """When a file or folder in it was changed last."""
    newest = 0.0
    for path in (folder, *folder.rglob("*")):
        with contextlib.suppress(OSError):
            newest = max(newest, path.lstat().st_mtime)
    return newest


def _bytes(folder: Path) -> int:
    size = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.lstat(os.path.join(path, name)).st_size
            except OSError:
                continue
    return size
