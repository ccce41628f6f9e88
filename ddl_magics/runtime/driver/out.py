"""--out URI: at its end a run writes its files and its histories to the cluster's storage."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Iterable, Mapping

from ..events import RawEvent
from ..histories import histories
from ..run_spec import RunSpec
from ..spark.storage import Folder, StorageError

if TYPE_CHECKING:
    from pyspark import SparkContext


OPTION = "--out"
HISTORY = "history.json"


def write(
    sc: SparkContext, spec: RunSpec, files: Mapping[str, str], events: Iterable[RawEvent], scratch: str
) -> tuple[dict[str, str], str | None]:
    """Write a run's files and histories to the folder of its --out.

    files: name -> path on the driver's disk. events: all of the run. scratch: a folder on the driver's disk.

    Returns ({name: URI} of what was written, None or in one line why not all files were).
    """
    written: dict[str, str] = {}
    if not files:  # a failed run leaves the folder empty, for the next one
        return written, None
    uri = spec.out
    assert uri, "without --out nothing is written"
    try:
        with Folder(sc, OPTION, uri, spec.run) as folder:
            for name, path in sorted(files.items()):
                written[name] = folder.upload(path, name)
            history = os.path.join(scratch, HISTORY)
            with open(history, "w") as file:
                json.dump({"run": spec.run, "name": spec.name, "histories": histories(events)}, file)
            written[HISTORY] = folder.upload(history, HISTORY)
    except (StorageError, OSError) as error:
        return written, str(error)
    return written, None
