"""Searches as text: the list of them, the summary that a cell shows, a line for each trial that has ended. Pure."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ddl_magics.dashboard.text import duration, number
from ddl_magics.runtime import events as ev
from ddl_magics.search.view import ENDED_STATES, FAILED, FINISHED, PRUNED, SearchView, TrialRow
from ddl_magics.store import SearchRecord
from ddl_magics.wording import aligned, counted, visible

#: Trials in the table, at most: the best ones, and all that are running.
SHOWN_TRIALS = 20
#: Searches in the list of them, at most.
SHOWN_SEARCHES = 10
#: Of a trial that has failed; why one was pruned is shorter.
MAX_REASON = 500


def searches_table(records: Sequence[SearchRecord]) -> list[str]:
    """The lines of a table of the newest searches, after an empty one; none without searches."""
    if not records:
        return []
    rows: list[tuple[str, ...]] = [("search", "state", "what", "workers", "trials", "objective", "started", "id")]
    for record in records[:SHOWN_SEARCHES]:
        columns = [str(record.spec.get(name, "")) for name in ("search", "workers", "trials", "objective")]
        began = time.strftime("%Y-%m-%d %H:%M", time.localtime(record.created))
        rows.append((record.name, record.state, *columns, began, record.id))
    older = len(records) - SHOWN_SEARCHES
    return ["", *map(visible, aligned(rows)), *([f"... and {older} older"] if older > 0 else [])]


def summary(view: SearchView) -> str:
    """Best so far, the trials as a table, the time left."""
    return visible("\n".join([*_heading(view), "", *_table(view), "", _totals(view), *_next(view)]))


def _next(view: SearchView) -> list[str]:
    """The line that gives the best model of a search that has ended."""
    if view.state not in ev.TERMINAL or view.best is None or view.further_objectives:
        return []
    return [f"the best model: model = {view.name}.best.run.model()"]


def _heading(view: SearchView) -> list[str]:
    seconds = view.seconds_left
    remaining = "" if seconds is None else f", about {duration(seconds)} left"
    progress = f"{view.ended_trials} of {counted(view.planned, 'trial')}"
    lines = [f"{view.name} {view.state}  {progress}  {view.description}  {duration(view.seconds)}{remaining}"]
    if view.message:
        lines.append(view.message)
    best = view.best
    if view.further_objectives and view.front:
        lines.append(
            f"{counted(len(view.front), 'trial')} that no other one beats in all objectives: {view.name}.front"
        )
    elif best is None:
        lines.append("no trial has finished yet" if view.state not in ev.TERMINAL else "no trial has finished")
    else:
        values = "  ".join(f"{name}={text}" for name, text in best.values.items())
        lines.append(f"best {view.metric} {number(best.value)}  trial {best.number}  {values}")
    return lines


def _table(view: SearchView) -> list[str]:
    running = [row for row in view.rows if row.state not in ENDED_STATES]
    ended_rows = sorted(
        (row for row in view.rows if row.state in ENDED_STATES),
        key=lambda row: (row.state != FINISHED, *view.rank(row)),
    )
    table_rows = [*ended_rows[: max(SHOWN_TRIALS - len(running), 1)], *running]
    names = list(dict.fromkeys(name for row in view.rows for name in row.params))
    further_metrics = [metric for metric, _ in view.further_objectives]
    front = {row.number for row in view.front}
    rows = [("trial", "state", view.metric, *further_metrics, *names, "epochs", "time", "")]
    for row in table_rows:
        value = "" if row.value is None else number(row.value)
        params = (_short(row, name) for name in names)
        state = "best" if row.number in front else row.state
        further = [number(value) for value in row.further_values] or [""] * len(further_metrics)
        rows.append(
            (str(row.number), state, value, *further, *params, str(row.epochs), duration(row.seconds), _remark(row))
        )
    hidden = len(view.rows) - len(table_rows)
    return [*aligned(rows), *([f"... and {hidden} more, in {view.name}.trials"] if hidden else [])]


def _short(row: TrialRow, name: str) -> str:
    value = row.params.get(name)
    return f"{value:.4g}" if isinstance(value, float) else row.values.get(name, "")


def _remark(row: TrialRow) -> str:
    tries = f"tried {row.tries} times" if row.tries > 1 else ""
    reason = row.reason if len(row.reason) <= MAX_REASON else row.reason[: MAX_REASON - 3] + "..."
    return "; ".join(filter(None, [reason, tries]))


def _totals(view: SearchView) -> str:
    def count(state: str) -> int:
        return sum(row.state == state for row in view.rows)

    counts = [f"{count(FINISHED)} finished", f"{count(PRUNED)} pruned", f"{count(FAILED)} failed"]
    retried = sum(row.tries > 1 for row in view.rows)
    return ", ".join([*counts, *([f"{retried} tried again"] if retried else [])])


class SearchProgress:
    """A line for each trial that has ended since the last call, for cells that wait without a widget."""

    def __init__(self) -> None:
        self._printed: set[int] = set()
        self._state = self._message = ""

    def feed(self, view: SearchView) -> list[str]:
        lines = []
        for row in view.rows:
            if row.state in ENDED_STATES and row.number not in self._printed:
                self._printed.add(row.number)
                lines.append(f"{view.name}  {duration(view.seconds)}  {_line(view, row)}")
        if view.state != self._state and view.state in (ev.STOPPING, *ev.TERMINAL):
            lines.append(
                f"{view.name}  {duration(view.seconds)}  {view.state}{': ' * bool(view.message)}{view.message}"
            )
        elif view.message and view.message != self._message:
            lines.append(f"{view.name}  {duration(view.seconds)}  {view.message}")
        self._state, self._message = view.state, view.message
        return lines


def _line(view: SearchView, row: TrialRow) -> str:
    params = ", ".join(f"{name} {_short(row, name)}" for name in row.params)
    if row.state != FINISHED:
        return f"trial {row.number} {row.state}: {_remark(row)} ({params})"
    best = ", the best so far" if view.best is not None and view.best.number == row.number else ""
    return f"trial {row.number} finished: {view.metric} {number(row.value)}{best} ({params})"
