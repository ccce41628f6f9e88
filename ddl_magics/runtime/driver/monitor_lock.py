"""One monitor a checkpoint: two would stop each other's streams and add the counts of half of the batches.

On a disk of this machine, or one that it has mounted, the monitor locks a file: the lock ends with the process. On
another storage it touches a file of its own, and a file that nobody has touched for a while is nobody's.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from typing import IO

from .monitor_folder import CountsFolder

#: How often the file on another storage is touched, and after which silence it is nobody's; by the storage's clock.
TOUCH_SECONDS, SILENCE_SECONDS = 10.0, 60.0
_PREFIX = "owner-"

_held: set[str] = set()  # paths that this process has locked: a lock does not keep out the process that has it


class CheckpointInUse(ValueError):
    """Another monitor has the checkpoint: one line."""


class CheckpointLock:
    """Taken by the constructor. The methods are called in one thread.

    Raises:
        CheckpointInUse: another monitor has the checkpoint.
    """

    def __init__(self, folder: CountsFolder, run: str) -> None:
        self._folder, self._name = folder, _PREFIX + run
        self._file: IO[bytes] | None = None
        self._touched_at = time.monotonic()
        path = folder.local_path
        if path is None:
            self._take_on_storage()
        else:
            self._take_here(os.path.join(os.path.realpath(path), "owner.lock"))

    def renew(self) -> None:
        """Say that this monitor lives. RuntimeError where another one has taken the checkpoint meanwhile."""
        if self._file is None and time.monotonic() - self._touched_at >= TOUCH_SECONDS:
            self._touched_at = time.monotonic()
            if self._name not in self._folder.times(_PREFIX):
                raise RuntimeError("another monitor has taken the checkpoint, as nothing had come from this one")
            self._folder.touch(self._name)

    def release(self) -> None:
        """Give the checkpoint back; more than once, too."""
        if self._file is not None:
            _held.discard(self._file.name)
            self._file.close()
        elif self._folder.local_path is None:
            with contextlib.suppress(Exception):  # of Hadoop, of many kinds: the file is nobody's after a minute
                self._folder.delete(self._name)

    def _take_here(self, path: str) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if path in _held:
            raise self._in_use()
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        file = open(path, "r+b", opener=lambda *_: opened)  # noqa: SIM115 - until `release`
        try:
            # Not flock, whose locks the processes that are forked from a notebook have as well, and keep.
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            file.close()
            raise self._in_use() from None
        except OSError:
            pass  # a file system without locks
        _held.add(path)
        self._file = file

    def _take_on_storage(self) -> None:
        self._folder.touch(self._name)
        times = self._folder.times(_PREFIX)
        own = times.pop(self._name)
        for name, touched in times.items():
            if own - touched > SILENCE_SECONDS:
                self._folder.delete(name)
            elif (touched, name) < (own, self._name):
                self._folder.delete(self._name)
                raise self._in_use()

    def _in_use(self) -> CheckpointInUse:
        return CheckpointInUse(
            "another monitor has the checkpoint %s: stop that one first, or name another folder with --checkpoint"
            % self._folder.inside("").rstrip("/")
        )
