"""Selects and removes old runs from the store.

A run is never removed while it trains or may train, shortly after its end, if it has a label (a tag, in the panel), if
a remaining run continues from it (`--resume`), or while its search is running. A search that has ended is removed with
its last trial. Folders that this version cannot read are not touched.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddl_magics.runtime import events as ev
from ddl_magics.store.owned_folder import RunInUse
from ddl_magics.store.run_folder import RUN_ID, RunFolder, RunRecord, list_runs, runs_folder
from ddl_magics.store.search_folder import SearchFolder, list_searches, searches_folder

#: A run that has ended less than this ago may still be fetching its model.
RECENT_SECONDS = 600.0
#: The Livy session of a LOST run may still exist: within this time the run may be attached again.
ATTACHABLE_SECONDS = 7 * 86400.0
#: Fields of a spec with the id of the run from which a run continues.
REFERENCES = ("resume", "retry")
#: Remains of an interrupted removal or import are removed after this time without a change.
LEFT_SECONDS = 3600.0

_HIDDEN = re.compile(rf"[.]{RUN_ID.pattern}[.][0-9a-f]{{6}}")


@dataclass(frozen=True)
class Policy:
    """Keeps the runs that ended at most `keep` seconds ago, and the `keep_last` newest; without either, all.

    Of those, the oldest are removed until the store has at most `max_bytes`. None: the rule is not set.
    """

    keep: float | None = None
    keep_last: int | None = None
    max_bytes: int | None = None

    @property
    def removes(self) -> bool:
        return (self.keep, self.keep_last, self.max_bytes) != (None, None, None)

    def expires(self, age: float, newer: int) -> bool:
        """Whether neither `keep` nor `keep_last` keeps a run. newer: the number of newer runs."""
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
        """Whether no policy may remove it: it trains, may train, has just ended, or has a label."""
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
    """Remove the runs; returns those that were removed. A run that a kernel follows again by now stays."""
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
    """Remove the stored runs that the policy does not keep; returns them."""
    return remove(choose(stored_runs(), policy, time.time())) if policy.removes else []


def _searching(parent: str | None) -> bool:
    """Whether the search with this id has not ended."""
    search = None if parent is None else SearchFolder(searches_folder() / parent).record()
    return search is not None and not search.over


def _remove_searches() -> None:
    """Remove searches that ended more than `RECENT_SECONDS` ago and have no stored trial."""
    searches = [search for search in list_searches() if search.over]
    if not searches:
        return
    parents = {record.spec.get("parent") for record in list_runs()}
    for search in searches:
        if search.id not in parents and time.time() - (search.ended or search.created) > RECENT_SECONDS:
            shutil.rmtree(search.folder, ignore_errors=True)


def _unreferenced(removable: set[str], runs: Sequence[StoredRun]) -> set[str]:
    """The removable runs from which no remaining run continues, directly or through others."""
    while referenced := removable & _references(run for run in runs if run.record.id not in removable):
        removable = removable - referenced
    return removable


def _references(runs: Iterable[StoredRun]) -> set[str]:
    return {run.reference for run in runs if run.reference is not None}


def _remove_remains() -> None:
    """Remove hidden folders of interrupted removals and imports; an import may still be running."""
    for parent in (runs_folder(), searches_folder()):
        try:
            paths = [entry.path for entry in os.scandir(parent) if entry.is_dir() and _HIDDEN.fullmatch(entry.name)]
        except OSError:
            continue
        for path in paths:
            last_change = max((status.st_mtime for status in _statuses(Path(path))), default=0.0)
            if last_change < time.time() - LEFT_SECONDS:
                shutil.rmtree(path, ignore_errors=True)


def _bytes(folder: Path) -> int:
    return sum(status.st_size for status in _statuses(folder) if not stat.S_ISDIR(status.st_mode))


def _statuses(folder: Path) -> Iterator[os.stat_result]:
    """The status of the folder and of all folders and files in it."""
    for path, _, names in os.walk(folder):
        for name in ("", *names):
            with contextlib.suppress(OSError):
                yield os.lstat(os.path.join(path, name))
