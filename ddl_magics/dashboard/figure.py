"""The plotly figure of a run, to zoom and to export. Plotly is imported when a figure is made."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from ..runtime.events import RawEvent
from .charts import Chart, Line, charts, history_of
from .svg import FAINT, colour

if TYPE_CHECKING:
    import plotly.graph_objects as go

_ROW_PIXELS = 250
_HEAD_PIXELS = 110
#: Longer lines of the title are broken, and a chart's title is cut: plotly cuts both at the edge of the picture.
_TITLE_CHARACTERS, _CHART_CHARACTERS = 70, 36
_LINE_PIXELS = 20
#: Of a chart; more names would lie on its title.
_MOST_NAMED = 6


def figure(title: str, events: Iterable[RawEvent]) -> go.Figure:
    """The charts of a run: loss, metrics, samples/s and devices.

    A line has at most `series.POINTS` points. The figure of a run without steps is empty.

    Args:
        title: title of the figure.
        events: all events of the run.
    """
    return draw(title, charts(history_of(events)))


def draw(title: str, drawn_charts: list[Chart]) -> go.Figure:
    """The figure with these charts."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    columns = 2 if len(drawn_charts) > 1 else 1
    rows = max(1, -(-len(drawn_charts) // columns))
    titles = [chart.title or " " for chart in drawn_charts]  # an empty title makes no annotation
    plot = make_subplots(rows, columns, subplot_titles=titles, vertical_spacing=0.36 / rows, horizontal_spacing=0.09)
    for i, chart in enumerate(drawn_charts):
        row, column = 1 + i // columns, 1 + i % columns
        for k, line in enumerate(chart.lines):
            trace = go.Scatter(
                x=line.x,
                y=line.y,
                name=escape(line.name),
                mode="lines" if len(line.x) > 1 else "markers",
                connectgaps=True,
                line=_pen(line, k),
                legend=f"legend{i + 1}" if i else "legend",
                showlegend=len(chart.lines) > 1 and line.style not in FAINT and k < _MOST_NAMED,
            )
            plot.add_trace(trace, row, column)
        if all(line.style == "plain" for line in chart.lines):
            plot.update_yaxes(rangemode="tozero", row=row, col=column)
        x_title = {"text": chart.x_title, "standoff": 4, "font": {"size": 11}}
        plot.update_xaxes(title=x_title, rangemode="tozero", row=row, col=column)
        # The title of a chart is at the left, its legend at the right.
        left_edge = plot.layout[f"xaxis{i + 1 if i else ''}"].domain[0]
        plot.layout.annotations[i].update(
            x=left_edge, xanchor="left", yshift=16, text=f"<b>{escape(_cut(chart.title))}</b>", font={"size": 13}
        )
    title_lines = wrap(title, _TITLE_CHARACTERS)
    more_pixels = _LINE_PIXELS * max(1, len(title_lines))
    plot.update_layout(
        title={
            "text": "<br>".join(map(escape, title_lines)),
            "x": 0.01,
            "y": 1,
            "yref": "container",
            "yanchor": "top",
            "pad": {"t": 12},
            "font": {"size": 16},
        },
        height=_HEAD_PIXELS + more_pixels + _ROW_PIXELS * rows,
        margin={"l": 50, "r": 20, "t": 70 + more_pixels, "b": 40},
        hovermode="x unified",
        template="plotly_white",
        **_legends(plot, drawn_charts),
    )
    return plot


def _cut(title: str) -> str:
    return title if len(title) <= _CHART_CHARACTERS else title[: _CHART_CHARACTERS - 1] + "…"


def _pen(line: Line, k: int) -> dict[str, Any]:
    dash = {"dash": "dot"} if line.style in ("ranks", "validation") else {}
    if line.style in FAINT:
        return {"color": "rgba(47,111,222,.35)", "width": 1, **dash}
    return {"color": colour(line, k), "width": 1.5 if line.style == "plain" else 2, **dash}


def _legends(plot: go.Figure, drawn_charts: list[Chart]) -> dict[str, Any]:
    """Each chart has its own legend above its right corner, below the line of its title."""
    legends = {}
    for i in range(len(drawn_charts)):
        suffix = str(i + 1) if i else ""
        x, y = plot.layout[f"xaxis{suffix}"].domain, plot.layout[f"yaxis{suffix}"].domain
        box = {"x": x[1], "y": y[1], "xanchor": "right", "yanchor": "bottom", "orientation": "h", "font": {"size": 10}}
        legends[f"legend{suffix}"] = box
    return legends
