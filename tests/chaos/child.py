"""A process of a room's fault: `python -m chaos.child FUNCTION ARGUMENTS`, a function of chaos.rooms by its full name.

$CHAOS_POWER, if it is set, has the arguments of a `power.Recorder`. The function prints what it has done, a line each.
"""

import importlib
import json
import os
import sys

from chaos import power


def main(function, arguments):
    module, _, name = function.rpartition(".")
    call = getattr(importlib.import_module(module), name)
    recorded = os.environ.get("CHAOS_POWER")
    if recorded:
        power.Recorder(*json.loads(recorded)).install()
    call(*json.loads(arguments))


if __name__ == "__main__":
    main(*sys.argv[1:])
