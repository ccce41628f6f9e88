"""Makes a rank's view of a notebook's folder, changes one file in it, and looks for what has changed.

The command's arguments: the notebook's folder, a scratch folder, and "overlay" or "mirror". It answers once, with the
milliseconds of each step.
"""

from __future__ import annotations

import json
import sys
import time

from ddl_magics.runtime.files import namespaces
from ddl_magics.runtime.files.working_folder import WorkingFolder


def main(notebook: str, scratch: str, way: str) -> None:
    begun = time.perf_counter()
    if way == "overlay":
        namespaces.separate()
    folder = WorkingFolder(scratch, notebook, is_chief=True)
    folder.enter()
    entered = time.perf_counter()
    if folder.is_mirror != (way == "mirror"):
        raise SystemExit("this machine has no overlay for the temporary folder")
    with open("0/0.csv", "a") as file:
        file.write("1,2\n")
    changed = time.perf_counter()
    names = [file.name for file in folder.written()], folder.removed()
    if names != (["0/0.csv"], []):
        raise SystemExit(f"the folder has changed otherwise: {names}")
    ended = time.perf_counter()
    print(json.dumps([1000 * (b - a) for a, b in ((begun, entered), (entered, changed), (changed, ended))]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
