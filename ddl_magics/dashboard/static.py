"""The static block of a run, which stays in the notebook: readable without a kernel or a script, and as plain text."""

import json
import re
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from ..runtime.events import FAILED, FINISHED, LOST, PREFLIGHT, SUBMITTED, TERMINAL, WAITING, RawEvent
from ..runtime.wording import counted
from . import monitor
from .charts import Chart, charts, history_of
from .figure import draw
from .history import History
from .svg import FAINT, colour, svg
from .text import duration

#: MIME type for a renderer of runs: the id, the name and the state.
RUN_TYPE = "application/vnd.ddl-magics.run+json"
PLOTLY_TYPE = "application/vnd.plotly.v1+json"

#: Bound of the size that a run adds to the saved notebook.
MAX_BYTES = 300_000

TRACEBACK_CHARACTERS = 20_000
TEXT_CHARACTERS = 300
TABLE_ROWS = 32

_STATE_COLOURS = {FINISHED: "#18794e", FAILED: "#c92a2a", LOST: "#c92a2a"}
#: What a person reads of a state: `stateWord` of phases.ts.
_STARTING = (PREFLIGHT, SUBMITTED, WAITING)
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

_STYLE = """<style>
.ddl-static{font:13px/1.45 var(--jp-ui-font-family,system-ui,sans-serif);max-width:1100px}
.ddl-static p{margin:6px 0}.ddl-static .dim{opacity:.7}.ddl-static .charts{display:flex;flex-wrap:wrap;gap:4px 18px}
.ddl-static figure{margin:6px 0}.ddl-static table{color:inherit;border-collapse:collapse;margin:6px 0;font-size:12px}
.ddl-static th,.ddl-static td{padding:2px 12px 2px 0;text-align:right;border:0}
.ddl-static th:first-child,.ddl-static td:first-child{text-align:left}
.ddl-static pre{white-space:pre-wrap;font-size:12px;max-height:300px;overflow:auto}
.ddl-static .chip{border:1px solid;border-radius:9px;padding:0 7px;font-size:11px;font-weight:600}
%s</style>"""

# Hides the block while the live view of the same run is drawn in the same output; outside of JupyterLab, whose name for
# an output no other front end has, in the same document.
_HIDE = (
    'body:not([data-jp-theme-light]):has(.ddl-run[data-run="{0}"]) .ddl-static[data-run="{0}"]{{display:none}}\n'
    '.jp-OutputArea:has(.ddl-run[data-run="{0}"]) .jp-OutputArea-child:has(.ddl-static[data-run="{0}"]){{display:none}}'
)


def static_bundle(run: Mapping[str, Any], events: Iterable[RawEvent]) -> dict[str, Any]:
    """The MIME bundle of a run: `RUN_TYPE`, plotly, HTML and plain text; at most `MAX_BYTES`.

    There is no plotly figure before the first step, nor for a failed run, because it would not show the failure.

    Args:
        run: id, name, strategy, workers, cluster, state, created, ended (seconds since the epoch) and failure; what is
            missing or None, except the id, is taken from the events.
        events: all events of the run.
    """
    history = history_of(events)
    info = _info(run, history)
    drawn_charts = charts(history)
    bundle = running_bundle(run, history)
    if drawn_charts and info["state"] != FAILED:
        title = " · ".join(fact for fact in (info["name"], info["state"], info["facts"]) if fact)
        bundle[PLOTLY_TYPE] = json.loads(draw(title, drawn_charts).to_json())
        if len(json.dumps(bundle)) > MAX_BYTES:
            del bundle[PLOTLY_TYPE]
    return bundle


def running_bundle(run: Mapping[str, Any], history: History) -> dict[str, Any]:
    """`static_bundle` without the plotly figure, for a run that goes on: some 20 kB."""
    info = _info(run, history)
    return {
        RUN_TYPE: {name: info[name] for name in ("id", "name", "state")},
        "text/html": _html(info, history, charts(history)),
        "text/plain": _plain(info, history),
    }


def text_block(run_id: str, text: str) -> dict[str, Any]:
    """The MIME bundle of a text, which is hidden while the live view with this id is drawn in the same output."""
    html = f'<div class="ddl-static" data-run="{escape(run_id)}">{_style(run_id)}<pre>{escape(text)}</pre></div>'
    return {"text/html": html, "text/plain": text}


def report_html(run: Mapping[str, Any], history: History) -> str:
    """Only the HTML of `static_bundle`, from a history."""
    return _html(_info(run, history), history, charts(history))


def _info(run: Mapping[str, Any], history: History) -> dict[str, Any]:
    info: dict[str, Any] = {
        "id": str(run["id"]),
        "name": _truncate(str(run.get("name") or run["id"])),
        "state": run.get("state") or history.state["state"],
        "failure": run.get("failure") or history.state["failure"],
        "created": run.get("created") or history.created,
        "ended": run.get("ended") or history.ended,
    }
    strategy, workers = run.get("strategy"), run.get("workers")
    facts = [STRATEGY_TITLES.get(strategy or "", strategy)]
    if workers and strategy not in ("single", "monitor"):
        facts.append(counted(workers, "worker"))
    info["facts"] = " · ".join(_truncate(str(fact)) for fact in (*facts, run.get("cluster")) if fact)
    return info


def _plain(info: Mapping[str, Any], history: History) -> str:
    lines = [f"{info['name']} {info['state']} ({info['facts']})"]
    if history.latest:
        lines.append(", ".join(f"{_truncate(name)} {value:.4g}" for name, value in history.latest.items()))
    if info["failure"]:
        lines.append(_failure_line(info["failure"]))
    return "\n".join(lines)


def _html(info: Mapping[str, Any], history: History, drawn_charts: list[Chart]) -> str:
    colour = _STATE_COLOURS.get(info["state"], "#5b6570")
    word = "STARTING" if info["state"] in _STARTING else info["state"]
    chip = f'<span class="chip" style="border-color:{colour};background:{colour}24">{escape(word)}</span>'
    facts = escape(info["facts"]) + _duration(info)
    sections = [
        f'<div class="ddl-static" data-run="{escape(info["id"])}">',
        _style(info["id"]),
        f'<p>{chip} <b>{escape(info["name"])}</b> <span class="dim">{facts}</span></p>',
        _failure(info["failure"]),
        _metrics(history),
        "" if history.monitor is None else monitor.html(history.monitor),
    ]
    if drawn_charts:
        pictures = "".join(
            f"<figure><figcaption>{_caption(chart)}</figcaption>{svg(chart)}</figure>" for chart in drawn_charts
        )
        sections.append(f'<div class="charts">{pictures}</div>')
    sections += [_output_files(history), _workers(history)]
    return "".join(sections) + "</div>"


def _style(run_id: str) -> str:
    safe = re.fullmatch(r"[\w.-]+", run_id, re.ASCII)
    return _STYLE % (_HIDE.format(run_id) if safe else "")


def _duration(info: Mapping[str, Any]) -> str:
    if info["created"] is None or info["ended"] is None or info["state"] not in TERMINAL:
        return ""
    return f" · took {duration(round(info['ended'] - info['created']))}"


def _failure(failure: Mapping[str, Any] | None) -> str:
    if not failure:
        return ""
    traceback = failure["traceback"][-TRACEBACK_CHARACTERS:]
    details = f"<details open><summary>Traceback</summary><pre>{escape(traceback)}</pre></details>" if traceback else ""
    return f'<p style="color:#c92a2a"><b>{escape(_failure_line(failure))}</b></p>{details}'


def _failure_line(failure: Mapping[str, Any]) -> str:
    rank_text = "The job" if failure["rank"] < 0 else f"Rank {failure['rank']}"
    location = f" on {_truncate(failure['host'])}" if failure["host"] else ""
    return f"{rank_text}{location} failed: {_truncate(failure['message'], 2000)}"


def _metrics(history: History) -> str:
    if not history.latest:
        return ""
    heads = "".join(f"<th>{escape(_truncate(name))}</th>" for name in history.latest)
    cells = "".join(f"<td>{value:.4g}</td>" for value in history.latest.values())
    epochs_done = history.progress.epoch
    head = f"after {counted(epochs_done, 'epoch')}" if epochs_done else "so far"
    return f"<table><tr><th></th>{heads}</tr><tr><td>{head}</td>{cells}</tr></table>"


def _output_files(history: History) -> str:
    """Where --out has written the model."""
    if not history.written:
        return ""
    folder = next(iter(history.written.values())).rpartition("/")[0]
    return f"<p>{escape(_truncate(', '.join(history.written)))} in <code>{escape(_truncate(folder))}</code></p>"


def _caption(chart: Chart) -> str:
    if len(chart.lines) == 1:
        return f"<b>{escape(_truncate(chart.title))}</b>"
    names = " ".join(
        f'<span style="color:{colour(line, k)}">{escape(_truncate(line.name))}</span>'
        for k, line in enumerate(chart.lines)
        if line.style not in FAINT
    )
    return f"<b>{escape(_truncate(chart.title))}</b> {names}"


def _workers(history: History) -> str:
    workers = sorted(history.workers.values(), key=lambda worker: worker.rank)
    if not workers:
        return ""
    rows = "".join(
        f"<tr><td>{worker.rank}</td><td>{escape(_truncate(worker.host))}</td><td>{escape(_truncate(worker.device))}</td>"
        f"<td>{worker.steps:,}</td><td>{worker.rows:,}</td></tr>"
        for worker in workers[:TABLE_ROWS]
    )
    omitted = len(workers) - TABLE_ROWS
    omission = f'<p class="dim">and {omitted} more</p>' if omitted > 0 else ""
    heads = "".join(f"<th>{name}</th>" for name in ("rank", "host", "device", "steps", "rows"))
    return f"<table><tr>{heads}</tr>{rows}</table>{omission}"


def _truncate(text: str, limit: int = TEXT_CHARACTERS) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
