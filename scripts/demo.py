"""Runs the quickstart notebook and shows what it prints while it prints it; `make demo` calls this.

    python scripts/demo.py [NOTEBOOK]

The executed notebook is written to build/, whether it ends well or not.
"""

import os
import re
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

ROOT = Path(__file__).resolve().parent.parent
CELL_TIMEOUT_SECONDS = 600

#: What TensorFlow's C++ side says of itself while it loads, whatever its log level.
GREETING = re.compile(r"(?m)^(?:[IW]\d{4} .*|WARNING: All log messages before absl.*|To enable the following.*)\n?")


class LiveClient(NotebookClient):
    """Executes a notebook as nbclient does, and echoes the cells and their output on the terminal."""

    async def async_execute_cell(self, cell, cell_index, **options):
        if cell.cell_type == "code":
            print(_indented(cell.source, f"[{cell_index}] "), flush=True)
        return await super().async_execute_cell(cell, cell_index, **options)

    def output(self, outs, msg, display_id, cell_index):
        content = msg["content"]
        if msg["msg_type"] == "stream":
            content["text"] = GREETING.sub("", content["text"])
            if not content["text"]:
                return None
            sys.stdout.write(content["text"])
        elif msg["msg_type"] in ("display_data", "execute_result") and not _is_widget(content["data"]):
            sys.stdout.write(content["data"].get("text/plain", "") + "\n")
        elif msg["msg_type"] == "error":
            sys.stdout.write("\n".join(content["traceback"]) + "\n")
        sys.stdout.flush()
        return super().output(outs, msg, display_id, cell_index)


def _is_widget(data):
    return "application/vnd.jupyter.widget-view+json" in data


def _indented(source, first):
    return "\n" + first + source.replace("\n", "\n" + " " * len(first))


def main(notebook):
    started = time.monotonic()
    executed = ROOT / "build" / notebook.name
    executed.parent.mkdir(exist_ok=True)
    document = nbformat.read(notebook, as_version=4)
    client = LiveClient(
        document,
        timeout=CELL_TIMEOUT_SECONDS,
        kernel_name="python3",
        extra_arguments=["--IPKernelApp.log_level=ERROR"],  # its start-up warnings are not the notebook's
        resources={"metadata": {"path": str(notebook.parent)}},
    )
    try:
        with open(executed.with_suffix(".log"), "w") as log:  # what the kernel says beside the notebook
            client.execute(stderr=log)
    except CellExecutionError as failure:
        print(f"\nThe notebook stopped at an error: {failure.ename}: {failure.evalue}")
        return 1
    finally:
        nbformat.write(document, executed)
        print(f"\nThe executed notebook: {os.path.relpath(executed)} (took {time.monotonic() - started:.0f} s)")
    print("To watch it live in JupyterLab: make lab, then open quickstart.ipynb")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "notebooks" / "quickstart.ipynb"))
