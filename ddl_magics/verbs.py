"""What `%ddl` and the command line say about runs, as text."""

from __future__ import annotations

import time

from ddl_magics import ending, store
from ddl_magics.dashboard.text import TextProgress, duration, number
from ddl_magics.run import Run
from ddl_magics.wording import counted

SHOWN_RUNS = 30


def runs_table(records: list[store.RunRecord]) -> str:
    """The newest runs, a line each."""
    if not records:
        return "no runs yet"
    rows = [("run", "state", "what", "workers", "epoch", "metrics", "started", "id")]
    for record in records[:SHOWN_RUNS]:
        done = record.progress
        shown = [f"{name} {number(value)}" for name, value in list(done.get("metrics", {}).items())[:2]]
        rows.append(
            (
                record.name,
                record.state,
                str(record.spec.get("strategy", "")),
                str(record.spec.get("workers", "")),
                f"{done['epoch']}/{done['epochs']}" if done.get("epochs") else "",
                ", ".join(shown),
                time.strftime("%Y-%m-%d %H:%M", time.localtime(record.created)),
                record.id,
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    if len(records) > SHOWN_RUNS:
        lines.append(f"... and {len(records) - SHOWN_RUNS} older")
    return "\n".join(lines)


def describe(run: Run) -> str:
    """A run as text: what it was asked, and the lines that a waiting cell prints."""
    spec = run.spec
    events = run.events
    took = f", {duration(events[-1]['time'] - events[0]['time'])}" if events else ""
    rule = f" {spec.rule}, window {spec.window}" if spec.rule else ""
    lines = [
        f"{run.name} {run.state}{took}",
        f"{spec.strategy}{rule}, {counted(spec.workers, 'worker')}, {run.cluster}, seed {spec.seed}, id {run.id}",
        *TextProgress(run.name).feed(event for event in events if event["kind"] != "log"),
    ]
    return "\n".join(lines)


def stop(run: Run) -> str:
    """Ask a run to stop; what was done, in a line."""
    return ending.ask(run).text
