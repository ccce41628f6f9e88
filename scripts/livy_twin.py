"""Writes the Livy twins of the notebooks: the same cells, for sparkmagic's PySpark kernel.

    python scripts/livy_twin.py [--full | -p NAME VALUE ...] [--run [--url URL]] [--data FOLDER] [NAME ...]

A twin is build/notebooks/NAME-livy.ipynb. Without --full or -p, it has the parameters for little data. With --run, the
twins run with papermill in .venv-notebook, on the Livy at URL, by default that of `make livy`: `make notebooks LIVY=1`.

In that kernel a cell that begins with `%` runs on the notebook's machine, and any other one on the cluster. So

- a cell with the tag `local` begins with `%%local`;
- the parameters are set in both places;
- a cell for the cluster with several statements becomes one statement, for Livy before 0.8;
- a line that ends in `# not through Livy` is left out, and the first cell says so;
- a cell with the metadata `livy` is replaced by these sources: they move a table to the other place.
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from notebooks import BUILD, CELL_TIMEOUT_SECONDS, INJECTED, NOTEBOOKS, ROOT, SMALL, use_serve_python, value_of

sys.path.insert(0, str(ROOT / "tests"))
from support.sparkmagic_kernels import PYTHON, configuration

#: The notebooks that have a twin, with what little data means there. notebooks/hdinsight.ipynb takes the place of the
#: quickstart. lifecycle.ipynb has none: its log grows on the notebook's machine while the cluster reads it.
TWINS: dict[str, dict[str, Any]] = {
    "mnist": SMALL["mnist"],
    "energy": SMALL["energy"],
    "higgs": {**SMALL["higgs"], "ways": "one process,aeasgd"},
    "resnet50": SMALL["resnet50"],
    "pipeline": SMALL["pipeline"],
}

URL = "http://localhost:8998"
#: A session on a busy machine starts in a minute.
STARTUP_SECONDS = 300

NOT_HERE = "# not through Livy"

ABOUT = """\
This is [{name}.ipynb]({source}) for sparkmagic's PySpark kernel, made by `scripts/livy_twin.py`.
A cell that begins with `%` runs on your machine, and any other one in a Livy session of the cluster. Livy before 0.8
takes one statement a cell, so that some cells begin with `if True:`.
[docs/hdinsight.md](../../docs/hdinsight.md) describes the set-up."""

SESSION = """\
%%configure -f
{{
    "numExecutors": {workers},
    "executorCores": 1,
    "executorMemory": "1g",
    "conf": {{
        "spark.executor.memoryOverhead": "3g",
        "spark.dynamicAllocation.enabled": "false"
    }}
}}"""

#: What a twin may need: sparkmagic's own ways between both places take two statements.
HELPERS = {
    "fetch": '''\
%%local
from io import StringIO

import pandas as pd
from IPython.utils.capture import capture_output


def fetch(name):
    """A DataFrame of the cluster, as a table of this machine's pandas."""
    with capture_output(stderr=False) as said:
        get_ipython().run_cell_magic("spark", "", f"print(*{name}.toJSON().collect(), sep='\\\\n')")
    return pd.read_json(StringIO(said.stdout), lines=True)''',
    "send": '''\
%%local
def send(name, table):
    """A table of pandas becomes a DataFrame of the cluster."""
    rows = table.to_json(orient="records", lines=True, date_format="iso").splitlines()
    made = f"spark.read.option('inferTimestamp', True).json(spark.sparkContext.parallelize({rows}))"
    get_ipython().run_cell_magic("spark", "", f"{name} = {made}")''',
}


def twin(name: str, parameters: Mapping[str, Any]) -> NotebookNode:
    """The notebook for sparkmagic's PySpark kernel.

    Args:
        name: of its file, without .ipynb.
        parameters: those that differ from the notebook's own.
    """
    source = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    cells = [cell for cell in source.cells if INJECTED not in cell.metadata.get("tags", ())]
    title, body = cells[0], [cell for original in cells[1:] for cell in _cells(original, parameters)]
    used = [code for helper, code in HELPERS.items() if any(f"{helper}(" in cell.source for cell in body)]
    about = "\n\n".join([title.source, ABOUT.format(name=name, source=f"../../notebooks/{name}.ipynb"), *_left(cells)])
    session = SESSION.format(workers=_workers(cells, parameters))
    body[:0] = [new_markdown_cell(about), *map(new_code_cell, (session, *used))]
    for number, cell in enumerate(body):
        cell.id = f"cell-{number:02}"
    kernel = {"display_name": "PySpark", "language": "python", "name": "pysparkkernel"}
    made: NotebookNode = new_notebook(cells=body, metadata={"kernelspec": kernel})
    return made


def _cells(cell: NotebookNode, parameters: Mapping[str, Any]) -> Iterator[NotebookNode]:
    """What takes the place of a cell, with its tags."""
    if cell.cell_type == "markdown":
        yield new_markdown_cell(cell.source)
        return
    tags = cell.metadata.get("tags", [])
    yield from (new_code_cell(source, metadata={"tags": tags}) for source in _sources(cell, tags, parameters))


def _sources(cell: NotebookNode, tags: list[str], parameters: Mapping[str, Any]) -> Iterator[str]:
    code = "\n".join(line for line in cell.source.splitlines() if not line.endswith(NOT_HERE))
    if "livy" in cell.metadata:
        yield from map(_one_statement, cell.metadata.livy)
    elif "parameters" in tags:
        code = _with(parameters, code)
        yield from (f"%%local\n{code}", _one_statement(code))
    elif "local" in tags:
        yield f"%%local\n{code}"
    else:
        yield _one_statement(code)


def _with(parameters: Mapping[str, Any], code: str) -> str:
    """The cell of parameters with these values in it."""
    lines = code.splitlines()
    for statement in reversed(ast.parse(code).body):
        if isinstance(statement, ast.Assign) and (name := ast.unparse(statement.targets[0])) in parameters:
            lines[statement.lineno - 1 : statement.end_lineno] = [f"{name} = {parameters[name]!r}"]
    return "\n".join(lines)


def _one_statement(code: str) -> str:
    if code.startswith("%") or len(ast.parse(code).body) == 1:
        return code
    return "if True:\n" + textwrap.indent(code, "    ")


def _left(cells: list[NotebookNode]) -> list[str]:
    lines = [line for cell in cells for line in cell.source.splitlines() if line.endswith(NOT_HERE)]
    left = ", ".join(f"`{line.removesuffix(NOT_HERE).strip(' ,')}`" for line in lines)
    return [f"It leaves out what cannot be evaluated through Livy: {left}."] if left else []


def _workers(cells: list[NotebookNode], parameters: Mapping[str, Any]) -> int:
    """The largest number of workers that the parameters name."""
    values: dict[str, Any] = {}
    exec(next(cell.source for cell in cells if "parameters" in cell.metadata.get("tags", ())), values)
    workers = {**values, **parameters}["workers"]
    return max(workers) if isinstance(workers, list) else int(workers)


def run(path: Path, url: str) -> subprocess.CompletedProcess[str]:
    """Run a twin in place with papermill, on the Livy at `url`; what papermill said."""
    settings = {
        "livy_session_startup_timeout_seconds": STARTUP_SECONDS,
        "all_errors_are_fatal": True,
        "use_auto_viz": False,  # its widget for tables waits for somebody who operates it
    }
    command = [str(PYTHON), "-m", "papermill", str(path), str(path), "-k", "pysparkkernel", "--no-progress-bar"]
    command += ["--execution-timeout", str(CELL_TIMEOUT_SECONDS)]
    use_serve_python()
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "PATH": f"{PYTHON.parent}{os.pathsep}{os.environ['PATH']}",  # the kernel's specification says `python`
            **configuration(Path(folder), url, **settings),
        }
        return subprocess.run([*command, "--cwd", folder], env=environment, capture_output=True, text=True)


def main(arguments: list[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(TWINS)}")
    parser.add_argument("-p", "--parameter", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"))
    parser.add_argument("--full", action="store_true", help="with the notebooks' own parameters")
    parser.add_argument("--data", type=Path, default=NOTEBOOKS / "data", metavar="FOLDER")
    parser.add_argument("--run", action="store_true", help="on the Livy, after they are written")
    parser.add_argument("--url", default=URL, help="of the Livy (default: %(default)s)")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - set(TWINS))
    if unknown:
        parser.error(f"there is no twin of {unknown[0]}: choose of {', '.join(TWINS)}")
    given = {name: value_of(text) for name, text in options.parameter}
    BUILD.mkdir(parents=True, exist_ok=True)
    for name in options.names or TWINS:
        parameters = given or ({} if options.full else TWINS[name])
        if options.run and (options.data / name).is_dir():  # Livy's Python works in a folder of its own
            parameters = {"data": str((options.data / name).resolve()), **parameters}
        path = BUILD / f"{name}-livy.ipynb"
        nbformat.write(twin(name, parameters), path)
        begun = time.monotonic()
        if options.run:
            done = run(path, options.url)
            if done.returncode:
                print(f"{name}: {done.stdout[-3000:]}{done.stderr[-3000:]}", file=sys.stderr)
                return 1
        took = f"{time.monotonic() - begun:.0f} s, " if options.run else ""
        print(f"{name}: {took}{path.relative_to(ROOT)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
