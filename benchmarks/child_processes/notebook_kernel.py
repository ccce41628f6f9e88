"""A kernel of memory.py: an IPython shell on a Livy session, in a process of its own.

    python -m benchmarks.child_processes.notebook_kernel URL

A message is a cell's source; the answer is {"success", "printed"}.
"""

from __future__ import annotations

import json
import sys

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output


def main(url: str) -> None:
    shell = InteractiveShell.instance()
    with capture_output():
        shell.run_line_magic("load_ext", "ddl_magics")
        shell.run_line_magic("ddl", f"use livy {url}")
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        with capture_output() as printed:
            done = shell.run_cell(json.loads(line))
        print(json.dumps({"success": done.success, "printed": printed.stdout + printed.stderr}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
