"""Temporary folders of a process. Those of a killed process are removed by the next process that makes one.

A folder belongs to the process that holds the lock on the file `LOCK` in it. A lock ends with its process, and other
containers that share the disk see it too, which is not true of process numbers.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import re
import shutil
import stat
import tempfile
import time
from typing import Iterator, TextIO

PREFIX = "ddl-"
LOCK = ".owner"
#: A younger folder without a lock may be one that its process is about to lock.
YOUNG_SECONDS = 60.0

#: The name of a folder that `make` has made.
_FOLDER_NAME = re.compile(re.escape(PREFIX) + r"[a-z0-9-]+-[a-z0-9_]{8}")

_locks: dict[str, TextIO] = {}  # of this process' folders, by path


def make(purpose: str, parent: str | None = None) -> str:
    """Creates a folder for this process, and returns its path. Removes those of processes that have ended before.

    parent: the folder in which it is made and others are removed, Python's for temporary files by default.
    """
    sweep(parent)
    path = tempfile.mkdtemp(prefix=PREFIX + purpose + "-", dir=parent)
    _locks[path] = _lock(path)
    return path


@contextlib.contextmanager
def folder(purpose: str, parent: str | None = None) -> Iterator[str]:
    """A folder that is removed at the end of the block; as `make`."""
    path = make(purpose, parent)
    try:
        yield path
    finally:
        remove(path)


def remove(path: str) -> None:
    """Removes a folder with all that is in it."""
    _remove_tree(path)
    file = _locks.pop(path, None)
    if file is not None:
        file.close()


def sweep(parent: str | None = None) -> None:
    """Removes the folders of this user's processes that have ended."""
    for folder in glob.glob(os.path.join(glob.escape(parent or tempfile.gettempdir()), PREFIX + "*")):
        with contextlib.suppress(OSError):  # it is locked by its process, or was removed meanwhile
            if _has_ended(folder):
                _remove_tree(folder)


def _remove_tree(path: str) -> None:
    """Remove a folder, also with folders in it that their owner may not enter, as a cell makes them, or an overlay."""
    shutil.rmtree(path, ignore_errors=True)
    if os.path.lexists(path):
        with contextlib.suppress(OSError):
            for folder, names, _ in os.walk(path):
                for name in names:
                    if not os.path.islink(os.path.join(folder, name)):
                        os.chmod(os.path.join(folder, name), 0o700)
        shutil.rmtree(path, ignore_errors=True)


def _has_ended(folder: str) -> bool:
    """Whether the process of a folder has ended. OSError if the folder is locked, or has no lock: only an empty one
    with a name of ours is that of a process that was killed before it could lock it.

    /tmp is everybody's: another user may put anything there, also a FIFO, which would block whoever opens it.
    """
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        return False
    if not os.listdir(folder):
        return bool(_FOLDER_NAME.fullmatch(os.path.basename(folder))) and time.time() - status.st_mtime > YOUNG_SECONDS
    opened = os.open(os.path.join(folder, LOCK), os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        lock = os.fstat(opened)
        if not stat.S_ISREG(lock.st_mode) or time.time() - lock.st_mtime < YOUNG_SECONDS:
            return False
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    finally:
        os.close(opened)


def _lock(path: str) -> TextIO:
    """Locks a folder until the returned file is closed."""
    file = open(os.path.join(path, LOCK), "w")  # noqa: SIM115 - stays open until `remove`
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return file
