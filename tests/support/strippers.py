"""What is left of a saved notebook where it is shown: from the outputs of a cell to the text that is read.

GitHub has no renderer that can be installed: its rules are those that it documents for user content (html-pipeline's
allow-list: no style, no class, no SVG, no images of data; of what it takes away, the text stays). Nor has VS Code: it
shows HTML as it is, as Colab does.
"""

from collections.abc import Sequence
from copy import deepcopy
from functools import cache
from html.parser import HTMLParser

import nbformat
from nbconvert.exporters import HTMLExporter
from nbconvert.preprocessors.sanitize import SanitizeHTML
from nbformat import NotebookNode
from traitlets.config import Config

_ELEMENTS = ("h1 h2 h3 h4 h5 h6 br b i strong em a pre code img tt div ins del sup sub p ol ul table thead tbody tfoot "
             "blockquote dl dt dd kbd q samp var hr ruby rt rp li tr td th s strike summary details")  # fmt: skip
#: That break a line, or stand in a cell of their own.
_BLOCKS = ("div", "p", "br", "pre", "tr", "td", "th", "table", "summary", "details", "li")


class _Text(HTMLParser):
    """The text of a page: `elements` are known, and of the others all is left but the tag; None: all are known."""

    def __init__(
        self, html: str, elements: Sequence[str] | None = None, dropped: tuple[str, ...] = ("script", "style")
    ):
        super().__init__()
        self.texts: list[str] = []
        self._elements, self._dropped, self._inside = elements, dropped, 0
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside += tag in self._dropped
        if tag in _BLOCKS and (self._elements is None or tag in self._elements):
            self.texts.append(" ")
        if tag == "img" and self._elements is not None:  # an image of data has no source that is allowed
            self.texts.append(f" {dict(attrs).get('alt') or ''} ")

    def handle_endtag(self, tag: str) -> None:
        self._inside -= tag in self._dropped
        if tag in _BLOCKS:
            self.texts.append(" ")

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())


def notebook(outputs: list[NotebookNode]) -> NotebookNode:
    cell = nbformat.v4.new_code_cell("digits", execution_count=1, outputs=outputs)
    return nbformat.v4.new_notebook(cells=[cell])


def _first(output: NotebookNode, order: tuple[str, ...]) -> tuple[str, str]:
    """The richest form of an output that is known: (its type, its content)."""
    if output.output_type == "stream":
        return "text/plain", output.text
    return next(((kind, output.data[kind]) for kind in order if kind in output.data), ("text/plain", ""))


def _read(outputs: list[NotebookNode], elements: Sequence[str] | None, dropped: tuple[str, ...]) -> str:
    order = ("text/html", "image/svg+xml", "image/png", "text/plain")
    forms = [_first(output, order) for output in outputs]
    texts = [_Text(text, elements, dropped).text if kind == "text/html" else text for kind, text in forms]
    return " ".join(" ".join(texts).split())


def github(outputs: list[NotebookNode]) -> str:
    return _read(outputs, _ELEMENTS.split(), ("script",))


def vscode_or_colab(outputs: list[NotebookNode]) -> str:
    return _read(outputs, None, ("script", "style"))


@cache
def _exporter(template: str) -> HTMLExporter:
    return HTMLExporter(template_name=template, config=Config(HTMLExporter={"exclude_input": True}))


def _exported(outputs: list[NotebookNode], template: str) -> str:
    page, _ = _exporter(template).from_notebook_node(notebook(outputs))
    return _Text(page[page.index("<body") :]).text


def nbconvert_lab(outputs: list[NotebookNode]) -> str:
    return _exported(outputs, "lab")


def nbviewer(outputs: list[NotebookNode]) -> str:
    """nbviewer is nbconvert with its classic template."""
    return _exported(outputs, "classic")


def _sanitized(outputs: list[NotebookNode], strip: bool) -> list[NotebookNode]:
    cleaned, _ = SanitizeHTML(strip=strip).preprocess(notebook(deepcopy(outputs)), {})
    sanitized: list[NotebookNode] = cleaned.cells[0].outputs
    return sanitized


def nbconvert_sanitized(outputs: list[NotebookNode]) -> str:
    """`--sanitize-html`, which shows the tags that it does not allow as text."""
    return _exported(_sanitized(outputs, strip=False), "lab")


def nbconvert_stripped(outputs: list[NotebookNode]) -> str:
    """`--sanitize-html --SanitizeHTML.strip=True`."""
    return _exported(_sanitized(outputs, strip=True), "lab")


STRIPPERS = [github, vscode_or_colab, nbconvert_lab, nbviewer, nbconvert_sanitized, nbconvert_stripped]
