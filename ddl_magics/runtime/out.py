"""--out URI: the run's files and its history are written to the cluster's storage when it is over."""

import json
import os

from .histories import histories
from .storage import Folder, StorageError

OPTION = "--out"
HISTORY = "history.json"


def write(sc, spec, files, events, scratch):
    """Write a run's files and its history to its folder.

    files: name -> path on the driver's disk; events: the run's; scratch: a folder of the driver's. Returns
    ({name: URI}, None or why not all of them are there).
    """
    written = {}
    if not files:  # a run that failed leaves the folder to the next
        return written, None
    try:
        with Folder(sc, OPTION, spec["out"], spec["run"]) as folder:
            for name, path in sorted(files.items()):
                written[name] = folder.put(path, name)
            history = os.path.join(scratch, HISTORY)
            with open(history, "w") as file:
                json.dump({"run": spec["run"], "name": spec["name"], "histories": histories(events)}, file)
            written[HISTORY] = folder.put(history, HISTORY)
    except (StorageError, OSError) as error:
        return written, str(error)
    return written, None
