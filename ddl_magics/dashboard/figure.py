"""The plotly figure of a run, to zoom and to export. Plotly is imported when a figure is made."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Any

from ..runtime.events import RawEvent
from .charts import Chart, Line, charts, history_of
from .svg import FAINT, colour

if TYPE_CHECKING:
    import plotly.graph_objects as go

_ROW_PIXELS = 250
_HEAD_PIXELS = 110


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
            has_legend = len(chart.lines) > 1
            trace = go.Scatter(
                x=line.x,
                y=line.y,
                name=escape(line.name),
                mode="lines" if len(line.x) > 1 else "markers",
                connectgaps=True,
                line=_pen(line, k),
                legend=f"legend{i + 1}" if i else "legend",
                showlegend=has_legend,
            )
            plot.add_trace(trace, row, column)
        if all(line.style == "plain" for line in chart.lines):
            plot.update_yaxes(rangemode="tozero", row=row, col=column)
        x_title = {"text": chart.x_title, "standoff": 4, "font": {"size": 11}}
        plot.update_xaxes(title=x_title, rangemode="tozero", row=row, col=column)
        # The title of a chart is at the left, its legend at the right.
        left_edge = plot.layout[f"xaxis{i + 1 if i else ''}"].domain[0]
        plot.layout.annotations[i].update(
            x=left_edge, xanchor="left", text=f"<b>{escape(chart.title)}</b>", font={"size": 13}
        )
    plot.update_layout(
        title={"text": escape(title), "x": 0.01, "font": {"size": 16}},
        height=_HEAD_PIXELS + _ROW_PIXELS * rows,
        margin={"l": 50, "r": 20, "t": 80, "b": 40},
        hovermode="x unified",
        template="plotly_white",
        **_legends(plot, drawn_charts),
    )
    return plot


def _pen(line: Line, k: int) -> dict[str, Any]:
    dash = {"dash": "dot"} if line.style in ("ranks", "validation") else {}
    if line.style in FAINT:
        return {"color": "rgba(47,111,222,.35)", "width": 1, **dash}
    return {"color": colour(line, k), "width": 1.5 if line.style == "plain" else 2, **dash}


def _legends(plot: go.Figure, drawn_charts: list[Chart]) -> dict[str, Any]:
    """Each chart has its own legend in its upper right corner."""
    legends = {}
    for i in range(len(drawn_charts)):
        suffix = str(i + 1) if i else ""
        x, y = plot.layout[f"xaxis{suffix}"].domain, plot.layout[f"yaxis{suffix}"].domain
        box = {"x": x[1], "y": y[1], "xanchor": "right", "yanchor": "bottom", "orientation": "h", "font": {"size": 10}}
        legends[f"legend{suffix}"] = box
    return legends
