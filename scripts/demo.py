"""Runs the quickstart notebook and shows its output while it runs; `make demo` calls this.

    python scripts/demo.py [NOTEBOOK]

The executed notebook is written to build/, also if a cell fails.
"""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
CELL_TIMEOUT_SECONDS = 600

#: Lines that TensorFlow's C++ code prints while it loads, at any log level.
TF_NOTES = re.compile(r"(?m)^(?:[IW]\d{4} .*|WARNING: All log messages before absl.*|To enable the following.*)\n?")


class LiveClient(NotebookClient):
    """Executes a notebook as nbclient does, and prints the cells and their output."""

    async def async_execute_cell(self, cell: NotebookNode, cell_index: int, *args: Any, **kwargs: Any) -> NotebookNode:
        if cell.cell_type == "code":
            print(_indented(cell.source, f"[{cell_index}] "), flush=True)
        return await super().async_execute_cell(cell, cell_index, *args, **kwargs)

    def output(
        self, outs: list[NotebookNode], msg: dict[str, Any], display_id: str | None, cell_index: int
    ) -> NotebookNode | None:
        content = msg["content"]
        if msg["msg_type"] == "stream":
            content["text"] = TF_NOTES.sub("", content["text"])
            if not content["text"]:
                return None
            sys.stdout.write(content["text"])
        elif msg["msg_type"] in ("display_data", "execute_result") and not _is_widget(content["data"]):
            sys.stdout.write(content["data"].get("text/plain", "") + "\n")
        elif msg["msg_type"] == "error":
            sys.stdout.write("\n".join(content["traceback"]) + "\n")
        sys.stdout.flush()
        return super().output(outs, msg, display_id, cell_index)


def _is_widget(data: dict[str, Any]) -> bool:
    return "application/vnd.jupyter.widget-view+json" in data


def _indented(source: str, first: str) -> str:
    return "\n" + first + source.replace("\n", "\n" + " " * len(first))


def main(notebook: Path) -> int:
    """Run a notebook; the exit status."""
    started = time.monotonic()
    executed = ROOT / "build" / notebook.name
    executed.parent.mkdir(exist_ok=True)
    document = nbformat.read(notebook, as_version=4)
    client = LiveClient(
        document,
        timeout=CELL_TIMEOUT_SECONDS,
        kernel_name="python3",
        extra_arguments=["--IPKernelApp.log_level=ERROR"],  # hides warnings of the kernel's start
        resources={"metadata": {"path": str(notebook.parent)}},
    )
    try:
        with open(executed.with_suffix(".log"), "w") as log:  # the standard error of the kernel
            client.execute(stderr=log)
    except CellExecutionError as failure:
        print(f"\nA cell failed: {failure.ename}: {failure.evalue}")
        return 1
    finally:
        nbformat.write(document, executed)
        print(f"\nThe executed notebook: {os.path.relpath(executed)} (took {time.monotonic() - started:.0f} s)")
    print("To watch it live in JupyterLab: make lab, then open quickstart.ipynb")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "notebooks" / "quickstart.ipynb"))
