"""A process that ends at a moment of its writing, and a power cut: what had not been synchronized may be lost.

In the process, `Recorder` notes each change of a file or a folder, and kills it before the one with a given number.
Afterwards `cut` takes back what a disk may forget: the newest changes of folders, back to the last one that a
synchronization has brought there, and what files have got since they were synchronized.
"""

import json
import os
import shutil
import signal
import sys

CREATED, MADE, RENAMED, REMOVED, OPENED, SYNCHRONIZED = (
    "created",
    "made",
    "renamed",
    "removed",
    "opened",
    "synchronized",
)
_WRITES = os.O_WRONLY | os.O_RDWR


class Recorder:
    """Notes what this process changes below the folder `base`, a line of JSON each in the file `log`.

    end_at: the process is killed before its change of this number, from 1; 0 for none. What is removed or replaced is
    kept in a folder beside the log.
    """

    def __init__(self, base, log, end_at):
        self._base, self._end_at, self._count = os.path.realpath(base), end_at, 0
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._kept, self._within = log + ".kept", False
        os.makedirs(self._kept, exist_ok=True)

    def install(self):
        synchronize = os.fsync

        def fsync(descriptor):
            number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
            self._change(SYNCHRONIZED, os.readlink(f"/proc/self/fd/{number}"), os.fstat(number).st_size)
            synchronize(descriptor)

        os.fsync = fsync
        sys.addaudithook(self._hear)

    def _hear(self, event, arguments):
        if self._within or event not in _EVENTS:
            return
        self._within = True
        try:
            _EVENTS[event](self, *arguments)
        finally:
            self._within = False

    def _open(self, path, mode, flags):
        if not isinstance(path, (str, bytes)) or not flags & _WRITES:
            return
        path = os.path.realpath(os.fsdecode(path))
        self._change(OPENED if os.path.lexists(path) else CREATED, path, bool(flags & os.O_TRUNC))

    def _make(self, path, mode, folder=-1):
        if not os.path.lexists(path := _full(path, folder)):
            self._change(MADE, path)

    def _rename(self, old, new, of_old=-1, of_new=-1):
        old, new = _full(old, of_old), _full(new, of_new)
        self._change(RENAMED, new, old, self._keep(new))

    def _remove(self, path, folder=-1):
        path = _full(path, folder)
        self._change(REMOVED, path, self._keep(path))

    def _keep(self, path):
        if not os.path.isfile(path) or not self._is_below(path):
            return None
        kept = os.path.join(self._kept, str(self._count))
        os.link(path, kept)
        return kept

    def _is_below(self, path):
        return path.startswith(self._base + os.sep)

    def _change(self, kind, path, *about):
        if not self._is_below(path) and path != self._base:
            return
        self._count += 1
        if self._count == self._end_at:
            os.kill(os.getpid(), signal.SIGKILL)
        os.write(self._log, json.dumps([kind, path, *about]).encode() + b"\n")


#: `shutil.rmtree` removes folders as well; an empty one that comes back would be nobody's.
_EVENTS = {
    "open": Recorder._open,
    "os.mkdir": Recorder._make,
    "os.rename": Recorder._rename,
    "os.remove": Recorder._remove,
}


def _full(path, folder):
    path = os.fsdecode(path)
    if folder not in (-1, None) and not os.path.isabs(path):
        path = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), path)
    return os.path.join(os.path.realpath(os.path.dirname(path) or "."), os.path.basename(path))


def read(log):
    """The changes that a process has noted."""
    with open(log) as file:
        return [json.loads(line) for line in file]


def cut(changes, random):
    """Take back what a power cut after these changes may lose. Returns how many changes of folders that were.

    A journal keeps changes of folders in their order, and brings all so far to the disk with each synchronization, or
    on other systems with one of a folder alone.
    """
    any_synchronizes = random.random() < 0.5
    lasting = 0
    for number, (kind, path, *_) in enumerate(changes):
        if kind == SYNCHRONIZED and (any_synchronizes or os.path.isdir(path)):
            lasting = number + 1
    lost = changes[random.randint(lasting, len(changes)) :]
    _lose_contents(changes, random)
    for change in reversed(lost):
        _take_back(*change)
    return sum(change[0] not in (OPENED, SYNCHRONIZED) for change in lost)


def _lose_contents(changes, random):
    """Cut each file behind what was synchronized of it."""
    lasting = {}  # path -> bytes of the file that are on the disk
    for kind, path, *about in changes:
        if kind == CREATED or (kind == OPENED and about[0]):
            lasting[path] = 0
        elif kind == OPENED and path not in lasting:
            lasting[path] = None  # an old file that is appended to: how much of it is old is not known
        elif kind == SYNCHRONIZED and path in lasting:
            lasting[path] = about[0]
        elif kind == RENAMED:
            _move(lasting, about[0], path)
    for path, size in lasting.items():
        if size is not None and os.path.isfile(path) and os.path.getsize(path) > size:
            os.truncate(path, random.choice((size, random.randint(size, os.path.getsize(path)))))


def _move(lasting, old, new):
    for path in list(lasting):
        if path == old or path.startswith(old + os.sep):
            lasting[new + path[len(old) :]] = lasting.pop(path)


def _take_back(kind, path, *about):
    if kind == CREATED and os.path.lexists(path):
        os.unlink(path)
    elif kind == MADE:
        shutil.rmtree(path, ignore_errors=True)
    elif kind == RENAMED:
        old, kept = about
        if os.path.lexists(path):
            os.rename(path, old)
        if kept:
            shutil.copyfile(kept, path)
    elif kind == REMOVED and about[0] and not os.path.lexists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        shutil.copyfile(about[0], path)
