"""The notebook in a file: an .ipynb, a .py with cells in the percent format, or a training script.

In the percent format a line `# %%` begins a cell. So does a line that begins with `%%distributed`; there, and before
`%ddl`, `%config` and `%load_ext`, an editor may have put `# `, which keeps the file valid Python.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from ddl_magics.wording import first_line

if TYPE_CHECKING:
    from nbformat import NotebookNode

#: `# %%`, with or without a title after it.
_MARKER = re.compile(r"# ?%%(?!\S)(?P<title>.*)")
_TRAINING = re.compile(r"(?:# ?)?(?P<magic>%%(?:ddl_)?distributed\b.*)")
_HIDDEN_MAGIC = re.compile(r"(?m)^# ?(?=%(?:ddl|config|load_ext)\b)")


def read(path: Path, options: Sequence[str] = ()) -> NotebookNode:
    """The notebook in a file.

    Args:
        path: of the file.
        options: of `%%distributed`, for a script.

    Raises:
        UsageError: it cannot be read, or is not of these kinds.
    """
    import nbformat

    if path.suffix not in (".ipynb", ".py"):
        raise UsageError(f"{path} is neither a notebook (.ipynb) nor a file of cells (.py).")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is no text in UTF-8.") from None
    if path.suffix == ".py":
        cells = of_script(text, options)
        if cells is None:
            raise UsageError(f"the cells of {path} name their own options: leave out those after --.")
        converted: NotebookNode = nbformat.v4.new_notebook(cells=[_node(*cell) for cell in cells])
        return converted
    if options:
        raise UsageError(f"the cells of {path} name their own options: leave out those after --.")
    try:
        notebook: NotebookNode = nbformat.reads(text, as_version=4)
        return notebook
    except Exception as error:  # nbformat has a class for each reason, and passes on those of json
        raise UsageError(f"{path} is no notebook: {first_line(error)}.") from None


def of_script(text: str, options: Sequence[str]) -> list[tuple[str, str]] | None:
    """(kind, source) of each cell: "code" or "markdown". None if `options` are given and the cells have their own.

    Without a `%%distributed` cell, the whole text is one.
    """
    cells, trains = _cells(text)
    if trains:
        return None if options else cells
    return [("code", "\n".join([" ".join(["%%distributed", *map(shlex.quote, options)]), text]))]


def _cells(text: str) -> tuple[list[tuple[str, str]], bool]:
    """The cells, and whether one of them is a `%%distributed` cell."""
    lines: list[str] = []
    cells, trains = [("code", lines)], False
    for line in text.splitlines():
        marker, training = _MARKER.fullmatch(line), _TRAINING.fullmatch(line)
        if marker:
            kind = "markdown" if marker["title"].strip().startswith(("[markdown]", "[md]")) else "code"
            lines = []
            cells.append((kind, lines))
        elif training:
            trains = True
            if any(written.strip() for written in lines):
                lines = []
                cells.append(("code", lines))
            lines.append(training["magic"])
        else:
            lines.append(line)
    joined = [(kind, "\n".join(lines).strip("\n")) for kind, lines in cells]
    return [(kind, _source(kind, source)) for kind, source in joined if source.strip()], trains


def _source(kind: str, source: str) -> str:
    if kind == "markdown":
        return re.sub(r"(?m)^# ?", "", source)
    return source if source.startswith("%%") else _HIDDEN_MAGIC.sub("", source)


def _node(kind: str, source: str) -> Any:
    import nbformat

    return nbformat.v4.new_code_cell(source) if kind == "code" else nbformat.v4.new_markdown_cell(source)
