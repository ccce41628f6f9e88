"""Runs the notebooks of notebooks/ from top to bottom with papermill: `make notebooks`.

    python scripts/notebooks.py [--full | -p NAME VALUE ...] [--store] [--data FOLDER] [NAME ...]

Without --full or -p, they run with little data: the parameters in SMALL. What was executed is written to
build/notebooks. With --store, it replaces the notebook in notebooks/, and docs/notebooks.md and its pictures are made
from all of them.

Each notebook runs in an empty folder. --data is what it finds there as `data`, by default notebooks/data.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import os
import re
import sys
import tempfile
import time
from base64 import b64decode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import nbformat
import papermill
from nbformat import NotebookNode
from papermill.exceptions import PapermillExecutionError

from ddl_magics.serving.environment import SETTING

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
BUILD = ROOT / "build" / "notebooks"
IMAGES = ROOT / "docs" / "images"
PAGE = ROOT / "docs" / "notebooks.md"
CELL_TIMEOUT_SECONDS = 3 * 3600

#: Notebook -> its parameters for a run of a minute. The defaults in the notebook are those of a full run.
SMALL: dict[str, dict[str, Any]] = {
    "quickstart": {},
    "mnist": {"workers": [2], "images": 3000, "epochs": 2, "ways": "all-reduce,adag"},
    "energy": {"hours": 700, "epochs": 1, "workers": [1, 2], "layers": ["GRU"]},
    "higgs": {"events": 2500, "epochs": 3, "ways": "ensemble,aeasgd", "trials": 3},
    "resnet50": {
        "network": "MobileNet",
        "workers": [1, 2],
        "image": 32,
        "batch": 32,
        "warmup": 2,
        "epochs": 5,
        "batches": 4,
    },
    "pipeline": {"rows": 3000, "epochs": 3, "trials": 3},
    "lifecycle": {"hours": 2400, "epochs": 4},
}

#: Notebook -> what its picture shows.
PICTURES = {
    "mnist": "Loss in the first epoch and test error after each, of each way with 2, 4 and 8 workers",
    "energy": "Forecasts of the last five days beside the actual load",
    "higgs": "ROC curve, and AMS by threshold, of each way",
    "resnet50": "Images per second by number of workers, measured; efficiency with other links, predicted",
    "pipeline": "Demand and its forecast by hour of the day",
    "lifecycle": "The temperature at training and in use; the error of three forecasts",
}

#: The Python that `make serve-env` builds: without it, a notebook that serves a model makes an environment of its own.
SERVE_PYTHON = ROOT / ".venv-serve" / "bin" / "python"

#: The tag of papermill's own cell.
INJECTED = "injected-parameters"

LIVE_TYPE = "application/vnd.jupyter.widget-view+json"

#: MIME types that are stored. Others say the same again in another form.
STORED_TYPES = ("text/html", "text/plain", "text/markdown", "image/png")

#: Lines that TensorFlow's C++ code prints while it loads, at any log level.
TF_NOTES = re.compile(r"(?m)^(?:[IWE]\d{4} .*|WARNING: All log messages before absl.*|To enable the following.*)\n?")


def execute(name: str, parameters: Mapping[str, Any], data: Path) -> NotebookNode:
    """Run a notebook with its data, and return it with its outputs, which are also in build/notebooks.

    Args:
        name: of its file, without .ipynb.
        parameters: those that differ from the notebook's own.
        data: the folder that it finds as `data`.

    Raises:
        PapermillExecutionError: a cell has failed; what was executed so far is in build/notebooks.
    """
    BUILD.mkdir(parents=True, exist_ok=True)
    use_serve_python()
    with tempfile.TemporaryDirectory() as folder:
        if data.is_dir():
            (Path(folder) / "data").symlink_to(data.resolve())
        notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
        notebook.cells = [cell for cell in notebook.cells if INJECTED not in cell.metadata.get("tags", ())]
        nbformat.write(notebook, BUILD / f"{name}.ipynb")
        executed: NotebookNode = papermill.execute_notebook(
            BUILD / f"{name}.ipynb",
            BUILD / f"{name}.ipynb",
            parameters=dict(parameters),
            cwd=folder,
            kernel_name="python3",
            progress_bar=False,
            execution_timeout=CELL_TIMEOUT_SECONDS,
        )
    return executed


def use_serve_python() -> None:
    """Let the kernels serve models with SERVE_PYTHON, if it is there."""
    if SERVE_PYTHON.exists():
        os.environ.setdefault(SETTING, str(SERVE_PYTHON))


def clean(notebook: NotebookNode) -> NotebookNode:
    """The executed notebook as it is stored: without papermill's records, live views and TensorFlow's notes.

    The cell with the parameters that papermill has set becomes a note, because who runs the notebook wants its own.
    """
    notebook.metadata.pop("papermill", None)
    notebook.cells = [_note(cell) if _is_injected(cell) else cell for cell in notebook.cells]
    executed = itertools.count(1)
    for number, cell in enumerate(notebook.cells):
        tags = cell.metadata.get("tags", [])
        kept = {"tags": tags, "livy": cell.metadata.get("livy")}
        cell.metadata = NotebookNode({name: value for name, value in kept.items() if value})
        cell.id = f"cell-{number:02}"
        if cell.cell_type == "code":
            cell.execution_count = next(executed) if cell.execution_count else None
            cell.outputs = list(_stored(cell.outputs))
            for output in cell.outputs:
                if output.output_type == "execute_result":
                    output.execution_count = cell.execution_count
    return notebook


def _is_injected(cell: NotebookNode) -> bool:
    """Whether it is papermill's cell, and no note yet."""
    return cell.cell_type == "code" and INJECTED in cell.metadata.get("tags", ())


def _note(injected: NotebookNode) -> NotebookNode:
    """What the stored outputs were computed with, to be read and not to be run."""
    lines = [line for line in injected.source.splitlines() if not line.startswith("#")]
    said = f"The stored outputs are those of a run with `{'; '.join(lines)}`."
    note: NotebookNode = nbformat.v4.new_markdown_cell(said, metadata={"tags": [INJECTED]})
    return note


def _stored(outputs: list[NotebookNode]) -> Iterator[NotebookNode]:
    for output in outputs:
        if output.output_type == "stream":
            output.text = TF_NOTES.sub("", output.text)
            if output.text:
                yield output
        elif output.output_type == "error":
            yield output
        elif LIVE_TYPE not in output.data:
            output.data = NotebookNode({kind: output.data[kind] for kind in STORED_TYPES if kind in output.data})
            output.metadata = NotebookNode()
            if output.data:
                yield output


def page() -> tuple[str, dict[str, bytes]]:
    """docs/notebooks.md, from the stored notebooks: title, first paragraph, table and picture of each.

    Returns:
        Its text; and the pictures, by their names in docs/images.
    """
    pictures: dict[str, bytes] = {}
    parts = [
        "# Worked examples",
        "<!-- Made by `python scripts/notebooks.py --store` from notebooks/: change them there. -->",
        "Each is a notebook that runs from top to bottom on your machine. Its first cell has parameters, which\n"
        "papermill can set. On HDInsight, EMR or another Livy, use [its twin](hdinsight.md#5-the-notebook). In the\n"
        "clone, this runs one with its own parameters, and writes it to `build/notebooks`:",
        "```bash\nmake notebooks FULL=1 NAMES=energy\n```",
        "Without `FULL=1`, it has little data, and takes a minute or two.",
        "The tables and pictures are those of the stored notebooks. They come from one machine with two cores, and\n"
        "one worker already uses both. So the seconds show what the exchange costs, and no speed-up. A way that\n"
        "exchanges seldom can still be faster: several processes use the cores better than the threads of one do.\n"
        "Where a section names parameters, its notebook ran with these instead of its own, to keep the run short.",
    ]
    for name in SMALL:
        cells = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4).cells
        title, about = cells[0].source.split("\n\n")[:2]
        table, picture = _tagged(cells, "table", "text/html"), _tagged(cells, "picture", "image/png")
        if table is None and picture is None:
            continue
        parts += [f"#{title}", about, f"[The notebook](../notebooks/{name}.ipynb){_stored_with(cells)}"]
        if table is not None:
            parts.append(plain_table(table))
        if picture is not None:
            file = f"notebook-{name}.png"
            pictures[file] = b64decode(picture)
            parts.append(f"![{PICTURES[name]}](images/{file})")
    return "\n\n".join(parts) + "\n", pictures


def _stored_with(cells: list[NotebookNode]) -> str:
    """The parameters that the stored outputs were computed with, where they are not the notebook's own."""
    note = next((cell for cell in cells if INJECTED in cell.metadata.get("tags", ())), None)
    return "" if note is None else f", stored with `{note.source.split('`')[1]}`"


def _tagged(cells: list[NotebookNode], tag: str, kind: str) -> str | None:
    """The last output of this type of the cell with a tag."""
    shown = (
        output.data[kind]
        for cell in cells
        if tag in cell.metadata.get("tags", ())
        for output in cell.get("outputs", ())
        if kind in output.get("data", {})
    )
    return next(reversed([*shown]), None)


def plain_table(html: str) -> str:
    """A table of pandas without its styles and classes."""
    html = re.sub(r"<style.*?</style>", "", html, flags=re.DOTALL)
    html = re.sub(
        r"<(/?\w+)(?: (?!rowspan|colspan)[\w-]+=\"[^\"]*\"| ((?:row|col)span=\"\d+\"))*\s*>", r"<\1 \2>", html
    )
    return re.sub(r" >", ">", html.strip())


def value_of(text: str) -> Any:
    """A parameter of the command line: a Python literal, or text."""
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def main(arguments: list[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(SMALL)}")
    parser.add_argument(
        *("-p", "--parameter"),
        nargs=2,
        action="append",
        default=[],
        metavar=("NAME", "VALUE"),
        help="instead of the small",
    )
    parser.add_argument("--full", action="store_true", help="with the notebooks' own parameters: up to an hour each")
    parser.add_argument("--store", action="store_true", help="replace the notebooks by what was executed")
    parser.add_argument("--data", type=Path, default=NOTEBOOKS / "data", metavar="FOLDER")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - set(SMALL))
    if unknown:
        parser.error(f"there is no notebook {unknown[0]}: choose of {', '.join(SMALL)}")
    given = {name: value_of(text) for name, text in options.parameter}
    for name in options.names or SMALL:
        begun = time.monotonic()
        try:
            executed = execute(name, given or ({} if options.full else SMALL[name]), options.data)
        except PapermillExecutionError as failure:
            print(f"{name}: cell {failure.exec_count} failed: {failure.ename}: {failure.evalue}", file=sys.stderr)
            return 1
        print(f"{name}: {time.monotonic() - begun:.0f} s, build/notebooks/{name}.ipynb", flush=True)
        if options.store and SMALL[name]:
            nbformat.write(clean(executed), NOTEBOOKS / f"{name}.ipynb")
    if options.store:
        text, pictures = page()
        PAGE.write_text(text, encoding="utf-8")
        for name, picture in pictures.items():
            (IMAGES / name).write_bytes(picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
