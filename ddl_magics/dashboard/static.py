"""The static block of a run, which stays in the notebook: readable without a kernel or a script, and as plain text.

Where a saved notebook is shown, some of its markup is taken away: classes, styles, images (GitHub, a notebook that is
not trusted, `nbconvert --sanitize-html`). So the block has no style sheet and no inline SVG, whose texts would stay
behind; what matters stands first, in paragraphs and tables.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from html import escape
from math import isnan
from pathlib import Path
from typing import Any

from ..runtime.events import FAILED, FINISHED, LOST, TERMINAL, RawEvent
from ..wording import counted, counted_workers
from . import monitor
from .charts import Chart, charts, history_of
from .history import History
from .markup import PRE, TABLE
from .next_step import Reach, next_step
from .state_words import state_word
from .svg import FAINT, colour, image, svg
from .text import duration
from .workers import LEFT

#: MIME type for a renderer of runs: the id, the name and the state.
RUN_TYPE = "application/vnd.ddl-magics.run+json"
#: MIME type for a renderer of searches: the id and the state.
SEARCH_TYPE = "application/vnd.ddl-magics.search+json"

#: Bound of the size that a run adds to the saved notebook.
MAX_BYTES = 300_000

TRACEBACK_CHARACTERS = 20_000
TEXT_CHARACTERS = 300
TABLE_ROWS = 32
#: From this share of the time on, the waiting before the training is told apart: `WORTH_TELLING` of header.ts.
WORTH_TELLING = 0.1

_STATE_COLOURS = {FINISHED: "#18794e", FAILED: "#c92a2a", LOST: "#c92a2a"}
STRATEGY_TITLES = {
    "allreduce": "all-reduce",
    "ps": "parameter server",
    "single": "one process",
    "average": "weights averaged",
    "ensemble": "ensemble",
    "monitor": "monitor",
    "tf-allreduce": "TensorFlow's all-reduce",
    "tf-ps": "TensorFlow's parameter servers",
}

#: Of the block: nothing is lost where it is taken away.
_STYLE = "font:13px/1.45 var(--jp-ui-font-family,system-ui,sans-serif);max-width:1100px"
#: Heading of a worker's column -> its tooltip.
_WORKERS = {
    "rank": "number of the worker; rank 0 is the chief",
    "host": "machine of the worker",
    "device": "what it computes on",
    "steps": "that it has made",
    "rows": "that it has trained",
    "peak memory": "most memory of its process",
}


def static_bundle(run: Mapping[str, Any], events: Iterable[RawEvent]) -> dict[str, Any]:
    """The MIME bundle of a run: `RUN_TYPE`, HTML and plain text; at most `MAX_BYTES`.

    Args:
        run: id, name, strategy, workers, min_workers, cluster, state, created, ended (seconds since the epoch),
            failure, and whether it is attachable; what is missing or None, except the id, is taken from the events.
        events: all events of the run.
    """
    return bundle_of(run, history_of(events))


def bundle_of(run: Mapping[str, Any], history: History) -> dict[str, Any]:
    """`static_bundle` of a history: some 30 kB."""
    info = _info(run, history)
    return {
        RUN_TYPE: {name: info[name] for name in ("id", "name", "state")},
        "text/html": _html(info, history, charts(history)),
        "text/plain": _plain(info, history),
    }


def text_block(run_id: str, text: str) -> dict[str, Any]:
    """The MIME bundle of a text, which is hidden while the live view with this id is drawn in the same output."""
    html = f'<div class="ddl-static" data-run="{escape(run_id)}">{PRE}{escape(text)}</pre></div>'
    return {"text/html": html, "text/plain": text}


def search_block(search: str, state: str, text: str) -> dict[str, Any]:
    """The MIME bundle of a search: `SEARCH_TYPE` and its text."""
    return {SEARCH_TYPE: {"id": search, "state": state}, **text_block(search, text)}


def report_html(run: Mapping[str, Any], history: History) -> str:
    """Only the HTML of `static_bundle`, from a history, with charts as inline SVG: of a page that nobody cleans."""
    return _html(_info(run, history), history, charts(history), svg)


def _info(run: Mapping[str, Any], history: History) -> dict[str, Any]:
    info: dict[str, Any] = {
        "id": str(run["id"]),
        "name": _truncate(str(run.get("name") or run["id"])),
        "state": run.get("state") or history.state["state"],
        "failure": run.get("failure") or history.state["failure"],
        "created": run.get("created") or history.created,
        "ended": run.get("ended") or history.ended,
        "strategy": run.get("strategy"),
    }
    strategy, workers = run.get("strategy"), run.get("workers")
    facts = [STRATEGY_TITLES.get(strategy or "", strategy)]
    if workers and strategy not in ("single", "monitor"):
        facts.append(counted_workers(workers, run.get("min_workers")))
    info["facts"] = " · ".join(_truncate(str(fact)) for fact in (*facts, run.get("cluster")) if fact)
    folder = Path(run["folder"]) if run.get("folder") else None
    info["next"] = next_step(history, info, Reach(bool(run.get("attachable")), folder))
    return info


def _plain(info: Mapping[str, Any], history: History) -> str:
    lines = [f"{info['name']} {state_word(info['state'])} ({info['facts']})"]
    if history.latest:
        lines.append(", ".join(f"{_truncate(name)} {value:.4g}" for name, value in history.latest.items()))
    if info["failure"]:
        lines.append(_failure_line(info["failure"]))
    lines.append(" ".join(_next(info)))
    return "\n".join(filter(None, lines))


def _html(
    info: Mapping[str, Any],
    history: History,
    drawn_charts: list[Chart],
    picture: Callable[[Chart], str] = image,
) -> str:
    facts = escape(" · ".join(filter(None, (info["facts"], _took(info, history)))))
    text, code = map(escape, _next(info))
    sections = [
        f'<div class="ddl-static" data-run="{escape(info["id"])}" style="{_STYLE}">',
        f"<p>{_chip(info['state'])} <b>{escape(info['name'])}</b> {facts}</p>",
        _failure(info["failure"]),
        _metrics(history),
        f"<p>{text} <code>{code}</code></p>" if text else "",
        "" if history.monitor is None else monitor.html(history.monitor),
        _output_files(history),
    ]
    if drawn_charts:
        pictures = "".join(f"<div>{_caption(chart)}<br>{picture(chart)}</div>" for chart in drawn_charts)
        sections.append(f'<div class="charts" style="display:flex;flex-wrap:wrap;gap:4px 18px">{pictures}</div>')
    return "".join([*sections, _workers(history)]) + "</div>"


def _chip(state: str) -> str:
    colour = _STATE_COLOURS.get(state, "#5b6570")
    look = f"border:1px solid {colour};background:{colour}24;border-radius:9px;padding:0 7px;font-size:11px"
    return f'<b style="{look}">{escape(state_word(state))}</b>'


def _next(info: Mapping[str, Any]) -> tuple[str, str]:
    """A sentence and its code: the next step of a run, or where to see one that went on after this was saved."""
    if info["state"] not in TERMINAL:
        return as_it_was(info["name"])
    step = info["next"]
    return (step["text"], step["code"]) if step else ("", "")


def as_it_was(name: str) -> tuple[str, str]:
    """The same of what has not ended: a saved notebook shows it as it was."""
    local_time = time.strftime("%Y-%m-%d %H:%M", time.localtime())
    return f"As it was at {local_time}. To see it as it is now:", f"%ddl show {name}"


def _took(info: Mapping[str, Any], history: History) -> str:
    """ "trained 1:07, 2:41 with waiting", or "took 3:05" of a run that has hardly waited."""
    created, ended = info["created"], info["ended"]
    if created is None or ended is None or info["state"] not in TERMINAL:
        return ""
    took = duration(round(ended - created))
    if history.started is None or history.started - created < WORTH_TELLING * (ended - created):
        return f"took {took}"
    return f"trained {duration(round(ended - history.started))}, {took} with waiting"


def _failure(failure: Mapping[str, Any] | None) -> str:
    if not failure:
        return ""
    traceback = failure["traceback"][-TRACEBACK_CHARACTERS:]
    details = f"<details open><summary>Traceback</summary>{PRE}{escape(traceback)}</pre></details>" if traceback else ""
    return f'<p style="color:#c92a2a"><b>{escape(_failure_line(failure))}</b></p>{details}'


def _failure_line(failure: Mapping[str, Any]) -> str:
    rank_text = "The job" if failure["rank"] < 0 else f"Rank {failure['rank']}"
    location = f" on {_truncate(failure['host'])}" if failure["host"] else ""
    return f"{rank_text}{location} failed: {_truncate(failure['message'], 2000)}"


def _metrics(history: History) -> str:
    if not history.latest:
        return ""
    heads = "".join(f'<th title="newest value">{escape(_truncate(name))}</th>' for name in history.latest)
    cells = "".join(f"<td>{value:.4g}</td>" for value in history.latest.values())
    epochs_done = history.progress.epoch
    head = f"after {counted(epochs_done, 'epoch')}" if epochs_done else "so far"
    return f"{TABLE}<tr><td></td>{heads}</tr><tr><td>{head}</td>{cells}</tr></table>"


def _output_files(history: History) -> str:
    """Where --out has written the model."""
    if not history.written:
        return ""
    folder = next(iter(history.written.values())).rpartition("/")[0]
    return f"<p>{escape(_truncate(', '.join(history.written)))} in <code>{escape(_truncate(folder))}</code></p>"


def _caption(chart: Chart) -> str:
    if len(chart.lines) == 1:
        return f"<b>{escape(_truncate(chart.title))}</b>"
    words = {"train": "training", "validation": "validation"}
    names = " ".join(
        f'<span style="color:{colour(line, k)}">{words.get(line.style) or escape(_truncate(line.name))}</span>'
        for k, line in enumerate(chart.lines)
        if line.style not in FAINT
    )
    return f"<b>{escape(_truncate(chart.title))}</b> {names}"


def _workers(history: History) -> str:
    workers = sorted(history.workers.values(), key=lambda worker: worker.rank)
    if not workers:
        return ""
    rows = "".join(
        f"<tr><td>{worker.rank}{f', {LEFT}' * worker.has_left}</td>"
        f"<td>{escape(_truncate(worker.host))}</td><td>{escape(_truncate(worker.device))}</td>"
        f"<td>{worker.steps:,}</td><td>{worker.rows:,}</td><td>{_gigabytes(worker.memory_peak)}</td></tr>"
        for worker in workers[:TABLE_ROWS]
    )
    omitted = len(workers) - TABLE_ROWS
    omission = f"<p>and {omitted} more</p>" if omitted > 0 else ""
    heads = "".join(f'<th title="{hint}">{name}</th>' for name, hint in _WORKERS.items())
    return f"{TABLE}<tr>{heads}</tr>{rows}</table>{omission}"


def _gigabytes(size: float) -> str:
    return "–" if isnan(size) else f"{size / 1e9:.2f} GB"


def _truncate(text: str, limit: int = TEXT_CHARACTERS) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
