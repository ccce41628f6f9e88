"""A chart as a picture that needs no script and is readable in a light and in a dark theme.

It is an image with its text beside it, and no inline SVG: what cleans the HTML of notebooks (GitHub, an untrusted
notebook in JupyterLab) takes SVG away and leaves the numbers of its axes in the page.
"""

from base64 import b64encode
from html import escape
from math import floor, isfinite, log10

from .charts import Chart, Line

WIDTH, HEIGHT = 260, 130
#: Larger values are left out, and smaller ones are drawn as 0.
LARGEST, SMALLEST = 1e300, 1e-300
#: Styles of lines that stand back behind the others, and have no name in a caption.
FAINT = ("ranks", "steps")
#: Colours of lines in the order of their charts: of the training, of the validation, and further ones.
COLOURS = ("#2f6fde", "#d9730d", "#1f9d68", "#8b5cf6", "#d6336c", "#0c8599", "#7a6a00", "#66707a")
#: Ranks begin here: `RANK_COLOUR` of charts.ts.
RANK_COLOUR = 2
_LEFT, _RIGHT, _TOP, _BOTTOM = 40, 8, 8, 18
#: Of axes and their numbers: an image does not know whether the page is light or dark.
_GREY = "#737b85"
#: Lines of a chart whose values its text has.
MOST_NAMED = 6


def image(chart: Chart) -> str:
    """The chart as an element of HTML, whose text says where its lines begin and end."""
    data = b64encode(svg(chart).encode()).decode()
    lines = (line for line in chart.lines if line.style not in FAINT)
    ends = [f"{line.name} {_number(line.y[0])} to {_number(line.y[-1])}" for line in lines if line.y]
    alt = escape(": ".join(filter(None, [chart.title, ", ".join(ends[:MOST_NAMED])])))
    return f'<img width="{WIDTH}" height="{HEIGHT}" alt="{alt}" src="data:image/svg+xml;base64,{data}">'


def svg(chart: Chart) -> str:
    """The chart as SVG; for an empty chart only the axes."""
    xs = [x for line in chart.lines for x in line.x if isfinite(x)]
    ys = [y for line in chart.lines for _, y in _points(line)]
    x_low, x_high = (0.0, max(xs)) if xs and max(xs) > 0 else (0.0, 1.0)
    y_low, y_high = _range(ys, from_zero=all(line.style == "plain" for line in chart.lines))
    x_scale = (WIDTH - _LEFT - _RIGHT) / (x_high - x_low)
    y_scale = (HEIGHT - _TOP - _BOTTOM) / (y_high - y_low)

    def position(x: float, y: float) -> str:
        return f"{_LEFT + (x - x_low) * x_scale:.1f} {HEIGHT - _BOTTOM - (y - y_low) * y_scale:.1f}"

    elements = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'fill="{_GREY}" font-size="9" font-family="sans-serif">'
    ]
    for tick in _ticks(y_low, y_high):
        y = HEIGHT - _BOTTOM - (tick - y_low) * y_scale
        elements.append(
            f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{_GREY}" opacity=".25"/>'
            f'<text x="{_LEFT - 4}" y="{y + 3:.1f}" text-anchor="end">{tick:,.6g}</text>'
        )
    labels = ((_LEFT, "start", "0"), (WIDTH - _RIGHT, "end", f"{x_high:,.3g} {chart.x_title}"))
    for x_text, anchor, label in labels:
        elements.append(f'<text x="{x_text}" y="{HEIGHT - 5}" text-anchor="{anchor}">{label}</text>')
    for k, line in enumerate(chart.lines):
        dash = ' stroke-dasharray="4 3"' if line.style == "validation" else ""
        path = "".join(("L" if i else "M") + position(x, y) for i, (x, y) in enumerate(_points(line)))
        faint = ' opacity=".35"' if line.style in FAINT else ""
        elements.append(f'<path d="{path}" fill="none" stroke="{colour(line, k)}" stroke-width="1.5"{dash}{faint}/>')
    return "".join(elements) + "</svg>"


def colour(line: Line, k: int) -> str:
    """The colour of the k-th line of a chart."""
    by_style = {"ranks": 0, "steps": 0, "train": 0, "validation": 1}
    # What is no metric, such as a rank's CPU, has none of the colours of training and validation.
    return COLOURS[by_style.get(line.style, RANK_COLOUR + k % (len(COLOURS) - RANK_COLOUR))]


def _number(value: float | None) -> str:
    return "nan" if value is None else f"{value:.4g}"


def _points(line: Line) -> list[tuple[float, float]]:
    """The points that can be drawn: scaling must neither overflow nor divide by a difference that is too small."""
    finite = ((x, y) for x, y in zip(line.x, line.y, strict=True) if y is not None and isfinite(x) and isfinite(y))
    return [(x, 0.0 if abs(y) < SMALLEST else y) for x, y in finite if abs(y) < LARGEST]


def _range(ys: list[float], from_zero: bool) -> tuple[float, float]:
    if not ys:
        return 0.0, 1.0
    low, high = min(ys), max(ys)
    if low == high:
        return (0.0, low * 1.25) if low > 0 else (low * 1.25, 0.0) if low < 0 else (0.0, 1.0)
    if 0 <= low < 0.5 * high or (from_zero and low > 0):
        low = 0.0
    return low, high


def _ticks(low: float, high: float) -> list[float]:
    least = (high - low) / 4
    power = 10.0 ** floor(log10(least))
    step = next(factor * power for factor in (1, 2, 5, 10, 20) if factor * power >= least)
    lowest = -(-low // step)
    return [k * step for k in range(int(lowest), int(high // step) + 1)]
