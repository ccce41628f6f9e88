"""`%ddl clean` and `python -m ddl_magics clean`: the options, and what is printed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from IPython.core.error import UsageError

from ddl_magics.options.line import split_values
from ddl_magics.options.redaction import as_word, shown
from ddl_magics.options.values import read_age, read_count, read_size
from ddl_magics.store import cleaning
from ddl_magics.store.cleaning import Policy, StoredRun
from ddl_magics.wording import counted, nearest

#: Option -> field of `Policy`, and what reads its value.
OPTIONS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "--keep": ("keep", read_age),
    "--keep-last": ("keep_last", read_count),
    "--max-size": ("max_bytes", read_size),
}
DRY_RUN = "--dry-run"
USAGE = "%ddl clean [--keep 30d] [--keep-last N] [--max-size 10GB] [--dry-run]"


def read(option: str, text: str) -> Any:
    """The value of an option of `OPTIONS`. UsageError where the text is none."""
    try:
        return OPTIONS[option][1](text)
    except ValueError as error:
        raise UsageError(f"{option} must be {error}, not {shown(text)}.") from None


def parse(arguments: Sequence[str]) -> tuple[Policy, bool]:
    """(the policy, whether nothing is to be removed yet).

    Raises:
        UsageError: an option is unknown, or none says what to remove.
    """
    words = split_values(arguments)
    values: dict[str, Any] = {}
    dry = False
    while words:
        option = words.pop(0)
        if option == DRY_RUN:
            dry = True
        elif option not in OPTIONS:
            raise UsageError(
                f"%ddl clean has no option {as_word(option)}.{nearest(option, [*OPTIONS, DRY_RUN])} Write: {USAGE}"
            )
        elif not words:
            raise UsageError(f"{option} needs a value. Write: {USAGE}")
        else:
            values[OPTIONS[option][0]] = read(option, words.pop(0))
    return _policy(values), dry


def policy(given: Mapping[str, str | None]) -> Policy:
    """The policy of {option of `OPTIONS`: its text, or None where it is not given}. UsageError as `parse` raises it."""
    return _policy({OPTIONS[option][0]: read(option, text) for option, text in given.items() if text is not None})


def _policy(values: Mapping[str, Any]) -> Policy:
    if not values:
        raise UsageError(f"say what to keep: {USAGE}")
    return Policy(**values)


def clean(policy: Policy, dry: bool) -> str:
    """Remove runs, or list those that would be removed; returns what to print."""
    runs = cleaning.stored_runs()
    chosen = cleaning.choose(runs, policy, time.time())
    lines = [_line(run) for run in chosen] if dry else []
    gone = chosen if dry else cleaning.remove(chosen)
    left = len(runs) - len(gone), sum(run.bytes for run in runs) - sum(run.bytes for run in gone)
    done = "would be removed" if dry else "removed"
    lines.append(f"{_summary(len(gone), sum(run.bytes for run in gone))} {done}; {_summary(*left)} left")
    if policy.max_bytes is not None and left[1] > policy.max_bytes:
        lines.append(
            "The store stays larger than --max-size: the other runs live, have just ended, have a tag, or such a run "
            "continues from them."
        )
    return "\n".join(lines)


def _line(run: StoredRun) -> str:
    record = run.record
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.ended))
    return f"{record.name}  {record.state}  {when}  {_size(run.bytes)}  {record.id}"


def _summary(runs: int, size: int) -> str:
    return f"{counted(runs, 'run')} with {_size(size)}"


def _size(size: int) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size / 1e3:.0f} kB"
