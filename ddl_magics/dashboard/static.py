"""The block of a run that stays in the notebook: readable without a kernel, without a script, and in plain text."""

import json
import re
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from ..runtime.events import FAILED, FINISHED, LOST, TERMINAL
from .charts import Chart, charts, history_of
from .figure import draw
from .history import History
from .svg import colour, svg

#: The type that the JupyterLab renderer of runs takes; it holds the run's id and what a title needs.
RUN_TYPE = "application/vnd.ddl-magics.run+json"
PLOTLY_TYPE = "application/vnd.plotly.v1+json"

#: The saved notebook grows by no more than this a run.
MAX_BYTES = 300_000

TRACEBACK_CHARACTERS = 20_000
TEXT_CHARACTERS = 300
TABLE_ROWS = 32

_CHIPS = {FINISHED: "#18794e", FAILED: "#c92a2a", LOST: "#c92a2a"}
_STRATEGIES = {
    "allreduce": "all-reduce",
    "ps": "parameter server",
    "single": "one process",
    "average": "weights averaged",
    "ensemble": "ensemble",
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
.ddl-static .chip{color:#fff;border-radius:9px;padding:1px 8px;font-size:11px;font-weight:600}
%s</style>"""

# Where the live view of the same run is drawn in this output, it says all that the block would.
_HIDE = (
    '.jp-OutputArea:has(.ddl-run[data-run="{0}"]) .jp-OutputArea-child:has(.ddl-static[data-run="{0}"]){{display:none}}'
)


def static_bundle(run: Mapping[str, Any], events: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The MIME bundle of a run: its own type, plotly's, HTML and plain text; at most `MAX_BYTES`.

    `run` has id, name, strategy, workers, cluster, state, created, ended (seconds since the epoch) and failure; what is
    missing or None is taken from the events. Plotly's type is left out where it has nothing to say: before the first
    step, and for a failed run, whose cause a figure could not show.
    """
    history = history_of(events)
    about = _about(run, history)
    found = charts(history)
    bundle: dict[str, Any] = {
        RUN_TYPE: {name: about[name] for name in ("id", "name", "state")},
        "text/html": _html(about, history, found),
        "text/plain": _plain(about, history),
    }
    if found and about["state"] != FAILED:
        title = " · ".join(part for part in (about["name"], about["state"], about["facts"]) if part)
        bundle[PLOTLY_TYPE] = json.loads(draw(title, found).to_json())
        if len(json.dumps(bundle)) > MAX_BYTES:
            del bundle[PLOTLY_TYPE]
    return bundle


def report(run: Mapping[str, Any], history: History) -> str:
    """The HTML of `static_bundle` alone, of a history that is there already."""
    return _html(_about(run, history), history, charts(history))


def _about(run: Mapping[str, Any], history: History) -> dict[str, Any]:
    about: dict[str, Any] = {
        "id": str(run["id"]),
        "name": _clip(str(run.get("name") or run["id"])),
        "state": run.get("state") or history.state["state"],
        "failure": run.get("failure") or history.state["failure"],
        "created": run.get("created") or history.created,
        "ended": run.get("ended") or history.ended,
    }
    strategy, workers = run.get("strategy"), run.get("workers")
    facts = [_STRATEGIES.get(strategy or "", strategy)]
    if workers and strategy != "single":
        facts.append(f"{workers} worker{'' if workers == 1 else 's'}")
    about["facts"] = " · ".join(_clip(str(fact)) for fact in (*facts, run.get("cluster")) if fact)
    return about


def _plain(about: Mapping[str, Any], history: History) -> str:
    lines = [f"{about['name']} {about['state']} ({about['facts']})"]
    if history.latest:
        lines.append(", ".join(f"{_clip(name)} {value:.4g}" for name, value in history.latest.items()))
    if about["failure"]:
        lines.append(_cause(about["failure"]))
    return "\n".join(lines)


def _html(about: Mapping[str, Any], history: History, found: list[Chart]) -> str:
    safe = re.fullmatch(r"[\w.-]+", about["id"], re.ASCII)
    chip = (
        f'<span class="chip" style="background:{_CHIPS.get(about["state"], "#5b6570")}">{escape(about["state"])}</span>'
    )
    facts = escape(about["facts"]) + _times(about)
    parts = [
        f'<div class="ddl-static" data-run="{escape(about["id"])}">',
        _STYLE % (_HIDE.format(about["id"]) if safe else ""),
        f'<p>{chip} <b>{escape(about["name"])}</b> <span class="dim">{facts}</span></p>',
        _failure(about["failure"]),
        _metrics(history),
    ]
    if found:
        pictures = "".join(
            f"<figure><figcaption>{_caption(chart)}</figcaption>{svg(chart)}</figure>" for chart in found
        )
        parts.append(f'<div class="charts">{pictures}</div>')
    parts += [_written(history), _workers(history)]
    return "".join(parts) + "</div>"


def _times(about: Mapping[str, Any]) -> str:
    if about["created"] is None or about["ended"] is None or about["state"] not in TERMINAL:
        return ""
    seconds = max(0, round(about["ended"] - about["created"]))
    hours, minutes = seconds // 3600, seconds // 60 % 60
    words = f"{hours}:{minutes:02}:{seconds % 60:02}" if hours else f"{minutes}:{seconds % 60:02}"
    return f" · took {words}"


def _failure(failure: Mapping[str, Any] | None) -> str:
    if not failure:
        return ""
    traceback = failure["traceback"][-TRACEBACK_CHARACTERS:]
    details = f"<details open><summary>Traceback</summary><pre>{escape(traceback)}</pre></details>" if traceback else ""
    return f'<p style="color:#c92a2a"><b>{escape(_cause(failure))}</b></p>{details}'


def _cause(failure: Mapping[str, Any]) -> str:
    who = "The job" if failure["rank"] < 0 else f"Rank {failure['rank']}"
    where = f" on {_clip(failure['host'])}" if failure["host"] else ""
    return f"{who}{where} failed: {_clip(failure['message'], 2000)}"


def _metrics(history: History) -> str:
    if not history.latest:
        return ""
    heads = "".join(f"<th>{escape(_clip(name))}</th>" for name in history.latest)
    cells = "".join(f"<td>{value:.4g}</td>" for value in history.latest.values())
    done = history.progress.epoch
    words = f"after {done} epoch{'' if done == 1 else 's'}" if done else "so far"
    return f"<table><tr><th></th>{heads}</tr><tr><td>{words}</td>{cells}</tr></table>"


def _written(history: History) -> str:
    """Where --out has put the model, for who opens the notebook later."""
    if not history.written:
        return ""
    folder = next(iter(history.written.values())).rpartition("/")[0]
    return f"<p>{escape(_clip(', '.join(history.written)))} in <code>{escape(_clip(folder))}</code></p>"


def _caption(chart: Chart) -> str:
    if len(chart.lines) == 1:
        return f"<b>{escape(_clip(chart.title))}</b>"
    names = " ".join(
        f'<span style="color:{colour(line, k)}">{escape(_clip(line.name))}</span>'
        for k, line in enumerate(chart.lines)
        if line.style != "steps"
    )
    return f"<b>{escape(_clip(chart.title))}</b> {names}"


def _workers(history: History) -> str:
    workers = sorted(history.workers.values(), key=lambda worker: worker.rank)
    if not workers:
        return ""
    rows = "".join(
        f"<tr><td>{worker.rank}</td><td>{escape(_clip(worker.host))}</td><td>{escape(_clip(worker.device))}</td>"
        f"<td>{worker.steps:,}</td><td>{worker.rows:,}</td></tr>"
        for worker in workers[:TABLE_ROWS]
    )
    more = len(workers) - TABLE_ROWS
    rest = f'<p class="dim">and {more} more</p>' if more > 0 else ""
    heads = "".join(f"<th>{name}</th>" for name in ("rank", "host", "device", "steps", "rows"))
    return f"<table><tr>{heads}</tr>{rows}</table>{rest}"


def _clip(text: str, most: int = TEXT_CHARACTERS) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
