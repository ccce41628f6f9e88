"""The index of the file of a run's variables, which may be damaged, or a stranger's: what names it has, and how."""

from __future__ import annotations

import json
import zipfile
import zlib
from typing import Any

from .. import random_streams
from .decoding import Damaged
from .left import INDEX, MAX_BYTES

#: A file whose parts are larger than this is none of ours: arrays have headers, and JSON is longer than its values.
MAX_UNPACKED_BYTES = 8 * MAX_BYTES
#: The errors of reading an entry of an archive, or its JSON. RuntimeError: it is encrypted, or nested too deeply.
UNREADABLE = (
    *(zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError),
    *(KeyError, ValueError, TypeError, AttributeError),
)


def checked(archive: zipfile.ZipFile) -> dict[str, Any]:
    """The file's JSON, whose parts have their types. Raises Damaged."""
    if sum(member.file_size for member in archive.infolist()) > MAX_UNPACKED_BYTES:
        raise Damaged("it is too large")
    try:
        index = json.loads(archive.read(INDEX))
        objects = ("values", "changed", "trained", "absent", "of_keras")
        sound = all(type(index[section]) is dict for section in objects)
        sound = sound and all(type(index[section]) is list for section in ("deleted", "defined", "objects"))
        sound = sound and all(type(name) is str for name in index["deleted"] + index["defined"])
        sound = sound and all(
            type(reason) is str for section in ("absent", "of_keras") for reason in index[section].values()
        )
        sound = sound and all(type(entry) is dict for entry in index["changed"].values())
        sound = sound and random_streams.are_sound(index["streams"])
        for entry in index["trained"].values():
            sound = sound and type(entry["model"]) is int and {"history", "metric_shapes"} <= entry.keys()
            sound = sound and type(entry["optimizer"]) in (str, type(None))
            sound = sound and type(entry["metrics"]) is list
    except UNREADABLE as error:
        raise Damaged(str(error)) from error
    if not sound:
        raise Damaged("it has another form")
    return dict(index)
