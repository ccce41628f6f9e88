"""The file of the best epoch, which a ModelCheckpoint with save_best_only has written, goes with a fit's checkpoints.

The callback remembers in later attempts which epoch was best, and saves no worse one; but what a rank has written ends
with its attempt. Without the file the cell would find none, or that of an epoch that was not the best.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
from typing import Any, Collection

import numpy as np

#: The attribute of the callback that has the best value so far.
BEST = "best"
_FIELD = re.compile(r"\{[^{}]*\}")


def has_best(callback: Any, changed: Collection[str]) -> bool:
    """Whether a callback that writes a file whenever an epoch is the best so far has had such an epoch.

    changed: The names of its attributes that the fit has changed.
    """
    keeps_best = getattr(callback, "save_best_only", False) and isinstance(getattr(callback, "filepath", None), str)
    return bool(keeps_best) and BEST in changed


def is_stored_apart(callback: Any) -> bool:
    """Whether the file is not on this machine, and outlives the rank."""
    return "://" in callback.filepath


def path_of(callback: Any) -> str | None:
    """The newest file that such a callback has written, by the pattern of its filepath; None where there is no file.

    What Keras 2 stores as a folder, or as several files, is none.
    """
    parts = [glob.escape(part) for part in _FIELD.split(callback.filepath)]
    paths = [path for path in glob.glob("*".join(parts)) if os.path.isfile(path)]
    return max(paths, key=os.path.getmtime) if paths else None


def read(path: str, most_bytes: int) -> np.ndarray | None:
    """The bytes of a file; None where it has more, or cannot be read."""
    with contextlib.suppress(OSError):
        if os.path.getsize(path) <= most_bytes:
            return np.fromfile(path, np.uint8)
    return None


def write(callback: Any, path: str, content: np.ndarray) -> bool:
    """Put back the file as it was when the checkpoint was taken. False where that is no path of this callback's.

    The path comes from a checkpoint, which others may have written: only one that the callback could write is used.
    """
    pattern = "[^/]*".join(map(re.escape, _FIELD.split(callback.filepath)))
    leaves = [name.split("/").count("..") for name in (path, callback.filepath)]
    if not re.fullmatch(pattern, path) or leaves[0] != leaves[1]:
        return False
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    content.tofile(path)
    return True
