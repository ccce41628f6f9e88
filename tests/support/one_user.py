"""Trains a little as the user of this process: `python -m support.one_user`.

Prints a JSON object: the state of the run, its history, and the folder of the runs with its mode.
"""

import json
import os
import stat
import sys
import tempfile

from IPython.core.interactiveshell import InteractiveShell

from support.shells import NO_HISTORY
from support.trainings import cell


def main():
    shell = InteractiveShell.instance(config=NO_HISTORY, colors="nocolor")
    shell.run_cell("%load_ext ddl_magics").raise_error()
    shell.run_cell(cell("--name mine --seed 3", epochs=20)).raise_error()
    from ddl_magics import store

    run, runs = shell.user_ns["mine"], store.runs_folder()
    return {
        "state": run.state,
        "history": run.history,
        "runs": str(runs),
        "mode": stat.S_IMODE(runs.stat().st_mode),
    }


if __name__ == "__main__":
    os.chdir(tempfile.mkdtemp())
    print("\n" + json.dumps(main()))
    sys.stdout.flush()
    os._exit(0)
