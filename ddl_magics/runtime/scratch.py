"""Temporary folders that do not outlive their process for long: one that is killed leaves its folders to the next.

A folder belongs to whoever holds the lock on the file `LOCK` in it. Locks end with their process, also in another
container that shares the disk, where process numbers say nothing.
"""

import fcntl
import glob
import os
import shutil
import tempfile
import time

PREFIX = "ddl-"
LOCK = ".owner"
#: A folder without a lock that is younger than this may be on its way to one.
YOUNG_SECONDS = 60.0

_held = {}


def make(what):
    """A new folder for this process, after folders that others left behind are removed."""
    sweep()
    path = tempfile.mkdtemp(prefix=PREFIX + what + "-")
    _held[path] = hold(path)
    return path


def hold(path):
    """Lock a folder; the lock lasts as long as the returned file."""
    file = open(os.path.join(path, LOCK), "w")  # noqa: SIM115 - open for as long as the folder is ours
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return file


def remove(path):
    shutil.rmtree(path, ignore_errors=True)
    file = _held.pop(path, None)
    if file is not None:
        file.close()


def sweep():
    """Remove folders of ours that nobody holds any more."""
    for path in glob.glob(os.path.join(tempfile.gettempdir(), PREFIX + "*", LOCK)):
        folder = os.path.dirname(path)
        try:
            if time.time() - os.path.getmtime(path) < YOUNG_SECONDS:
                continue
            with open(path) as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # held by its owner, another user's, or gone meanwhile
            continue
