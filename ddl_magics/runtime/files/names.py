"""Names of the cell's files, for the cluster and the notebook: which are accepted, and how they are listed."""

from __future__ import annotations

import os
from typing import Sequence

#: What stands before their names among the files that the driver holds.
FILES = "files/"
#: So many names are listed in a message.
LISTED = 3


def is_below(path: str, folder: str) -> bool:
    """Whether a path is a folder, or in it. Both are absolute and normalized; the folder is not the root."""
    return path == folder or path.startswith(folder + os.sep)


def is_inside(name: str) -> bool:
    """Whether a name, with slashes, can be shown, and stays within the folder that it is relative to."""
    components = name.split("/")
    return (
        name.isprintable()
        and bool(name)
        and not os.path.isabs(name)
        and ".." not in components
        and "" not in components[:-1]
    )


def listed(names: Sequence[str]) -> str:
    """Names in words: the first few, and how many more."""
    unlisted = len(names) - LISTED
    return ", ".join(names[:LISTED]) + (" and %d more" % unlisted if unlisted > 0 else "")
