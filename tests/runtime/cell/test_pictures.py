"""What a cell shows becomes pictures of its rank: images and HTML, within bounds. matplotlib is a stand-in here."""

import base64
import sys
import types

import pytest

from ddl_magics.runtime import events as ev
from ddl_magics.runtime.cell import pictures
from ddl_magics.runtime.cell.pictures import Pictures

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 50


class Shown:
    def __init__(self, shows=True):
        self.events, self.warnings = [], []
        emit = lambda **fields: self.events.append(fields)  # noqa: E731
        self.pictures = Pictures(emit, self.warnings.append, shows=lambda: shows)

    def data(self):
        return [(e["mime"], base64.b64decode(e["data"]) if "image" in e["mime"] else e["data"]) for e in self.events]


class Image:
    def __init__(self, data=PNG):
        self._data = data

    def _repr_png_(self):
        return self._data


class Table:
    def _repr_html_(self):
        return "<table></table>"


class Broken:
    def _repr_png_(self):
        raise RuntimeError

    def _repr_html_(self):
        return None

    def __repr__(self):
        return "broken"


def test_images_and_html_are_shown_and_the_rest_is_printed(capsys):
    shown = Shown()
    shown.pictures.display(Image(), Table(), Broken(), "text", Table, display_id=True)
    assert shown.data() == [("image/png", PNG), ("text/html", "<table></table>")]
    assert capsys.readouterr().out == f"broken\n'text'\n{Table!r}\n"
    for fields in shown.events:
        assert ev.make("picture", 0, **fields)["mime"] in ev.SCHEMA["picture"].required["mime"]["enum"]


def test_ipythons_objects_and_a_plotly_figure(monkeypatch):
    display = pytest.importorskip("IPython.display")
    go = pytest.importorskip("plotly.graph_objects")
    shown = Shown()
    shown.pictures.display(display.HTML("<b>x</b>"), display.Image(PNG), go.Figure(go.Scatter(y=[1, 2])))
    (html, b), (png, image), (_, figure) = shown.data()
    assert (html, b, png, image) == ("text/html", "<b>x</b>", "image/png", PNG)
    assert "plotly" in figure and len(figure) < 20_000, "plotly's script is not in it"

    original = display.display
    for name in ("IPython.display", "IPython.core.display_functions"):
        monkeypatch.setattr(sys.modules[name], "display", original)
    shown.pictures.hook("from IPython.display import display")
    display.display(Image())
    assert len(shown.events) == 4


def test_other_ranks_show_nothing(capsys):
    shown = Shown(shows=False)
    shown.pictures.display(Image(), "text")
    assert shown.events == [] and capsys.readouterr().out == "" and not shown.pictures.show(Image())


def test_size_and_number_are_bounded(monkeypatch):
    monkeypatch.setattr(pictures, "MAX_PICTURES", 2)
    shown = Shown()
    shown.pictures.display(Image(b"0" * (pictures.MAX_BYTES + 1)))
    assert "a picture of 0.3 MB is not shown, only those up to 256 kB" in shown.warnings.pop()
    shown.pictures.display(Image(), Image(), Image())
    assert len(shown.events) == 2 and "2 pictures are shown and no more" in shown.warnings.pop()
    monkeypatch.setattr(pictures, "MAX_TOTAL_BYTES", 100)
    shown = Shown()
    shown.pictures.display(Image(), Image())
    assert len(shown.events) == 1 and shown.warnings


class Figure:
    def __init__(self, number, size=10):
        self.number, self.size, self.drawn = number, size, []

    def savefig(self, file, format, bbox_inches, dpi=100):
        assert (format, bbox_inches) == ("png", "tight")
        self.drawn.append(dpi)
        file.write(b"%d" % self.number + b"0" * int(self.size * dpi**2 / 100**2))


Figure.__module__ = "matplotlib.figure"


@pytest.fixture
def plt(monkeypatch):
    """A stand-in with the functions of matplotlib that this uses; it is not installed here."""
    matplotlib, plt = types.ModuleType("matplotlib"), types.ModuleType("matplotlib.pyplot")
    plt.figures = {1: Figure(1), 2: Figure(2)}
    plt.backends = []
    matplotlib.use, matplotlib.pyplot = plt.backends.append, plt
    plt.get_fignums, plt.figure = lambda: list(plt.figures), plt.figures.get
    plt.close = lambda _all: plt.figures.clear()
    plt.show = None
    monkeypatch.setitem(sys.modules, "matplotlib", matplotlib)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", plt)
    return plt


def test_figures_are_shown_and_closed(plt):
    shown = Shown()
    shown.pictures.hook("import matplotlib.pyplot as plt")
    assert plt.backends == ["Agg"]
    plt.show.__signature__ = None  # as matplotlib.use does
    plt.show()
    plt.show(block=True)
    assert shown.data() == [("image/png", b"1" + b"0" * 10), ("image/png", b"2" + b"0" * 10)]
    plt.figures[3] = Figure(3, 2 * pictures.MAX_BYTES)
    shown.pictures.show_figures()
    assert len(shown.events) == 3 and shown.warnings == [], "drawn again with fewer dots"


def test_nothing_is_imported_for_a_cell_that_shows_nothing(plt):
    shown = Shown()
    shown.pictures.hook("model.fit(x, y)")
    assert plt.show is None and plt.backends == []
    del sys.modules["matplotlib.pyplot"]
    shown.pictures.show_figures()
    assert shown.events == []
