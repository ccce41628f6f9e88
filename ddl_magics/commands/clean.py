"""`%ddl clean`: removes stored runs."""

from __future__ import annotations

import time
from typing import Any

from IPython.core.error import UsageError

from ddl_magics.commands.answer import Answer, moment
from ddl_magics.commands.kernel import Kernel
from ddl_magics.store import cleaning
from ddl_magics.store.cleaning import Policy, StoredRun
from ddl_magics.wording import counted

KEYS = {
    "dry_run": "whether nothing was removed",
    "removed": "the runs that were removed, or would be: of each id, name, state, ended, bytes",
    "bytes": "their size",
    "left": "number of the runs that stay",
    "left_bytes": "their size",
}


def clean(kernel: Kernel, keep: float | None, keep_last: int | None, max_size: int | None, dry_run: bool) -> Answer:
    """Remove runs, or list those that would be removed. keep: seconds. max_size: bytes."""
    policy = Policy(keep, keep_last, max_size)
    if not policy.removes:
        raise UsageError("say what to keep: %ddl clean [--keep 30d] [--keep-last N] [--max-size 10GB] [--dry-run]")
    runs = cleaning.stored_runs()
    removable = cleaning.choose(runs, policy, time.time())
    lines = [_line(run) for run in removable] if dry_run else []
    removed = removable if dry_run else cleaning.remove(removable)
    remaining = len(runs) - len(removed), sum(run.bytes for run in runs) - sum(run.bytes for run in removed)
    outcome = "would be removed" if dry_run else "removed"
    lines.append(f"{_summary(len(removed), sum(run.bytes for run in removed))} {outcome}; {_summary(*remaining)} left")
    if policy.max_bytes is not None and remaining[1] > policy.max_bytes:
        lines.append(
            "The store stays larger than --max-size: the other runs live, have just ended, have a tag, or such a run "
            "continues from them."
        )
    value = {
        "dry_run": dry_run,
        "removed": [_value(run) for run in removed],
        "bytes": sum(run.bytes for run in removed),
        "left": remaining[0],
        "left_bytes": remaining[1],
    }
    return Answer("\n".join(lines), value)


def _value(run: StoredRun) -> dict[str, Any]:
    record = run.record
    return {
        "id": record.id,
        "name": record.name,
        "state": record.state,
        "ended": moment(run.ended),
        "bytes": run.bytes,
    }


def _line(run: StoredRun) -> str:
    record = run.record
    end_time = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.ended))
    return f"{record.name}  {record.state}  {end_time}  {_size(run.bytes)}  {record.id}"


def _summary(runs: int, size: int) -> str:
    return f"{counted(runs, 'run')} with {_size(size)}"


def _size(size: int) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size / 1e3:.0f} kB"
