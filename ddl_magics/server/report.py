"""The report of a run: one HTML page without scripts, to keep or send. It needs no network and no Jupyter.

It has the static block of the notebook, with charts as pictures, the options, the cell and the output.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any

from ddl_magics._version import __version__
from ddl_magics.dashboard.history import History
from ddl_magics.dashboard.static import report_html
from ddl_magics.runtime.run_spec import NO_OPTIONS
from ddl_magics.server import details
from ddl_magics.store import RunRecord

#: Number of the newest printed lines that are shown; the JSON export has all of them.
MAX_LOG_LINES = 500

#: Fields of the spec without a row among the options: --name is in the title, and each --conf has its own row.
NOT_LISTED = (*NO_OPTIONS, "name", "set", "conf")

# Nothing may be loaded or executed, whatever a run's name or log contains.
_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title><style>
body{{max-width:1000px;margin:24px auto;padding:0 16px;background:#fff;color:#1b1f24}}
body{{font:13px/1.5 system-ui,sans-serif}}
h1{{font-size:20px}}h2{{font-size:15px;margin:24px 0 6px}}
body .ddl-static .charts{{display:grid!important;grid-template-columns:repeat(auto-fit,minmax(min(280px,100%),1fr))}}
.ddl-static svg{{width:100%;max-width:420px;height:auto}}body .ddl-static table{{font-size:13px}}
.ddl-static,.facts{{overflow-x:auto}}
.facts table{{border-collapse:collapse}}.facts th{{color:#4b5560;font-weight:500;text-align:left;white-space:nowrap}}
.facts th,.facts td{{padding:2px 18px 2px 0;vertical-align:top;overflow-wrap:anywhere}}
pre{{padding:10px;border:1px solid #d0d7de;border-radius:4px;background:#f6f8fa;font-size:12px;white-space:pre-wrap;
overflow-wrap:anywhere}}
summary{{cursor:pointer}}footer{{margin-top:24px;color:#4b5560}}
@media print{{body{{max-width:none;margin:0}}svg,tr{{break-inside:avoid}}}}
</style></head>
<body>
"""


def render(record: RunRecord, history: History) -> str:
    """The page. Values of the run are escaped: text, never markup."""
    title = record.title or record.name
    sections = [
        _HEAD.format(title=escape(title)),
        f"<h1>{escape(title)}</h1>\n",
        report_html(run_info(record), history),
        _table("Run", _identity(record)),
        _table("Options", _options(record.spec)),
        _table("Notebook's machine", record.environment.items()),
        _table("Versions on the cluster", record.versions.items()),
        f"<h2>Cell</h2>\n<pre>{escape(str(record.spec.get('cell', '')))}</pre>\n",
        _log(history),
        f"<footer>Made by ddl_magics {escape(__version__)}, {_local_time(time.time())}</footer>\n</body></html>\n",
    ]
    return "".join(sections)


def run_info(record: RunRecord) -> dict[str, Any]:
    """The `run` of `static_bundle`."""
    return {
        "id": record.id,
        "name": record.name,
        "strategy": record.spec.get("strategy"),
        "workers": record.spec.get("workers"),
        "min_workers": record.spec.get("min_workers"),
        "cluster": record.cluster,
        "state": record.state,
        "created": record.created,
        "ended": record.ended,
        "failure": details.failure(record),
    }


def _identity(record: RunRecord) -> Iterator[tuple[str, Any]]:
    yield "id", record.id
    yield "started", _local_time(record.created)
    yield "ended", record.ended and _local_time(record.ended)
    yield "notebook", record.notebook
    yield "tags", ", ".join(record.labels)


def _options(spec: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The options that are set, as they are written in the cell."""
    least = spec.get("min_workers")
    workers = {} if least is None else {"workers": f"{least}..{spec.get('workers')}"}
    for name, value in {**spec, **workers}.items():
        if name not in NOT_LISTED and value is not None:
            words = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else value
            prefix = "--no-" if value is False else "--"
            yield prefix + name.replace("_", "-"), "✓" if isinstance(value, bool) else words
    for name, value in (spec.get("set") or {}).items():
        yield f"--set {name}", value
    for key, value in (spec.get("conf") or {}).items():
        yield f"--conf {key}", value


def _table(title: str, values: Iterable[tuple[str, Any]]) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(str(value))}</td></tr>\n'
        for name, value in values
        if value not in (None, "")
    )
    return f'<h2>{escape(title)}</h2>\n<div class="facts"><table>\n{rows}</table></div>\n' if rows else ""


def _log(history: History) -> str:
    lines = history.logs.newest(MAX_LOG_LINES)
    if not lines:
        return ""
    text = "\n".join(f"{'job' if line.rank < 0 else line.rank:>4} {line.text}" for line in lines)
    omitted = history.logs.added - len(lines)
    words = f"the newest {len(lines):,} of {history.logs.added:,} lines" if omitted else f"{len(lines):,} lines"
    return f"<h2>Log</h2>\n<details><summary>{words}, by rank</summary><pre>{escape(text)}</pre></details>\n"


def _local_time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(seconds))
