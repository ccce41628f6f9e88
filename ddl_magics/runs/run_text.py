"""Text about runs, for `%ddl` and the command line."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ddl_magics import store
from ddl_magics.dashboard.state_words import state_word
from ddl_magics.dashboard.text import TextProgress, duration, number
from ddl_magics.history.description import in_words
from ddl_magics.history.provenance import Provenance
from ddl_magics.runs.run import Run
from ddl_magics.runtime import events as ev
from ddl_magics.wording import aligned, counted, counted_workers, visible

SHOWN_RUNS = 30
#: Number of the cell's variables in the line "ran with".
SHOWN_VARIABLES = 5
#: Number of a run's epochs that `describe` shows.
SHOWN_EPOCHS = 40


def runs_table(records: list[store.RunRecord]) -> str:
    """The newest runs, one line each."""
    if not records:
        return "no runs yet"
    tagged = any(record.labels for record in records[:SHOWN_RUNS])
    rows = [("run", "state", "what", "workers", "epoch", "metrics", *(["tags"] if tagged else []), "started", "id")]
    for record in records[:SHOWN_RUNS]:
        progress = record.progress
        metrics = [f"{name} {number(value)}" for name, value in list(progress.get("metrics", {}).items())[:2]]
        rows.append(
            (
                record.name,
                state_word(record.state),
                str(record.spec.get("strategy", "")),
                _workers(record.spec),
                f"{progress.get('epoch', 0)}/{progress['epochs']}" if progress.get("epochs") else "",
                ", ".join(metrics),
                *([", ".join(record.labels)] if tagged else []),
                time.strftime("%Y-%m-%d %H:%M", time.localtime(record.created)),
                record.id,
            )
        )
    lines = aligned(rows)
    if len(records) > SHOWN_RUNS:
        lines.append(f"... and {len(records) - SHOWN_RUNS} older")
    return visible("\n".join(lines))


def _workers(spec: Mapping[str, Any]) -> str:
    least, most = spec.get("min_workers"), spec.get("workers", "")
    return str(most) if least is None else f"{least}..{most}"


def describe(run: Run) -> str:
    """A run as text: its options, and the lines that a waiting cell prints."""
    spec = run.spec
    events = run.events
    duration_text = f", {duration(ev.parse(events[-1]).time - ev.parse(events[0]).time)}" if events else ""
    rule = f" {spec.rule}, window {spec.window}" if spec.rule else ""
    workers = counted_workers(spec.workers, spec.min_workers)
    lines = [
        f"{run.name} {state_word(run.state)}{duration_text}",
        f"{spec.strategy}{rule}, {workers}, {run.cluster}, seed {spec.seed}, id {run.id}",
        *([run.damage] if run.damage else []),
        *(["imported: it was trained elsewhere, and its cell and model may be a stranger's"] if run.imported else []),
        *([f"tags: {', '.join(run.tags)}"] if run.tags else []),
        *([f"note: {run.note}"] if run.note else []),
        *_ran_with(run.provenance),
        *TextProgress(run.name).feed(_thinned([event for event in events if event["kind"] != ev.Log.kind])),
    ]
    failure = next((state.failure for state in ev.select(ev.State, reversed(events)) if state.failure), None)
    return visible("\n".join([*lines, *([failure["traceback"].rstrip()] if failure and failure["traceback"] else [])]))


def _ran_with(provenance: Provenance) -> list[str]:
    """The packages, commit and variables of a run, in one line."""
    if provenance.problem:
        return [provenance.problem]
    facts = [counted(len(provenance.packages), "package")] if provenance.packages else []
    if provenance.git.get("commit"):
        facts.append(f"git {provenance.git['commit'][:10]}{' with changes' if provenance.git.get('changed') else ''}")
    facts += [f"{name} {in_words(value)}" for name, value in list(provenance.sent.items())[:SHOWN_VARIABLES]]
    return [f"ran with {'; '.join(facts)}"] if facts else []


def _thinned(events: list[ev.RawEvent]) -> list[ev.RawEvent]:
    """The events with only the first and the last `SHOWN_EPOCHS` / 2 epochs, if there are more."""
    epochs = [i for i, event in enumerate(events) if event["kind"] == ev.Epoch.kind]
    dropped = set(epochs[SHOWN_EPOCHS // 2 : -SHOWN_EPOCHS // 2]) if len(epochs) > SHOWN_EPOCHS else set()
    return [event for i, event in enumerate(events) if i not in dropped]


def logs(run: Run, rank: int | None = None) -> str:
    """What a run or one of its ranks printed, or one line that says that it printed nothing.

    Raises:
        LookupError: the run has no such rank.
    """
    text = run.logs(rank)
    if text:
        return text
    subject = run.name if rank is None else f"rank {rank} of {run.name}"
    return f"{subject} has printed nothing{'' if run.state in ev.TERMINAL else ' so far'}.\n"


def next_steps(run: Run | None) -> str:
    """The commands that may be useful next, for the newest run of this kernel, if any."""
    if run is None:
        steps = {
            "%ddl check": "whether runs can be executed here, and on what",
            "%%distributed": "in the first line of the cell that trains; --dry-run shows what would happen",
            "%%distributed --help": "all options",
        }
        return _steps("no runs in this kernel yet", steps)
    name = run.name
    if run.state == ev.FINISHED or run.state == ev.STOPPED:
        model = {f"{name}.model()": "the trained model", f"{name}.history": "its metrics per epoch"}
        resume = {f"--resume {name}": "continue it in another cell"} if run.state == ev.STOPPED else {}
        return _steps(repr(run), {**model, **resume, f"%ddl show {name}": "its figures"})
    if run.state in ev.TERMINAL:
        attach = {f"%ddl attach {name}": "follow it again"} if run.attachable else {}
        details = {f"%ddl show {name}": "what happened, with the traceback", f"%ddl logs {name}": "what it printed"}
        return _steps(repr(run), {**attach, **details, f"--resume {name}": "continue from its last checkpoint"})
    live = {f"%ddl show {name}": "its live view", f"%ddl logs {name}": "what it has printed"}
    return _steps(repr(run), {**live, f"{name}.wait()": "wait for its end", f"%ddl stop {name}": "end it"})


def _steps(head: str, steps: dict[str, str]) -> str:
    width = max(map(len, steps))
    return "\n".join([head, *(f"  {command:<{width}}  {purpose}" for command, purpose in steps.items())])
