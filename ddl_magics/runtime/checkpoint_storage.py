"""--checkpoint URI: a run's checkpoints in the cluster's storage too, where they outlive the driver and its session.

Each run has a folder of its own under the URI, with one file a fit. A newer checkpoint gets a name of its own before
the older one goes, as Hadoop's file systems do not replace a file in one step: there is always one that is whole.
"""

import contextlib
import os
import re
import shutil
import threading

from . import checkpoint
from .storage import Folder, StorageError

OPTION = "--checkpoint"
#: What is on its way when a run ends is waited for so long.
CLOSE_SECONDS = 120.0

_NAME = re.compile(r"checkpoint-([0-9]+)\.([0-9]+)\.npz")


def folder_of(uri, run):
    """Where the run with this id has its own."""
    return "%s/%s" % (uri.rstrip("/"), run)


def newest(names):
    """Of the names in a run's folder, the newest of each fit, in the order of the fits."""
    found = {}
    for match in filter(None, map(_NAME.fullmatch, names)):
        fit, number = map(int, match.groups())
        found[fit] = max(found.get(fit, (0, "")), (number, match.group()))
    return [found[fit][1] for fit in sorted(found)]


class Copies:
    """Writes into the folder `uri`, in a thread of its own: a slow storage holds up neither training nor driver.

    new_file: gives a path on the driver's disk; tell(level, message): a notice. What cannot be written is told once,
    and the next checkpoint is tried again.
    """

    def __init__(self, sc, uri, run, new_file, tell):
        self.uri = uri
        self._open = lambda: Folder(sc, OPTION, uri, run)
        self._new_file, self._tell = new_file, tell
        self._changed = threading.Condition()
        self._coming = {}  # by fit: a path
        self._names, self._number = {}, 0  # what is in the folder, by fit
        self._failed, self._told, self._closed = set(), set(), False  # fits; levels of notices
        self._thread = None

    def put(self, file):
        """Write `file`, an `Incoming` of a checkpoint that may be deleted as soon as this returns."""
        fit, path = checkpoint.Position.read(file.header).fit, self._new_file()
        try:
            os.link(file.path, path)
        except OSError:  # a disk without links
            shutil.copyfile(file.path, path)
        with self._changed:
            overtaken = self._coming.get(fit)
            self._coming[fit] = path
            if self._thread is None:
                self._thread = threading.Thread(target=self._write_all, name="checkpoint copies", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        if overtaken is not None:
            os.unlink(overtaken)

    def close(self):
        """Write what has come, and end. Returns whether the newest checkpoint of each fit is in the folder."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)
            if self._thread.is_alive():
                self._say("warning", "%s %s does not answer: a checkpoint is not written" % (OPTION, self.uri))
                return False
        return not self._failed

    def _write_all(self):
        while True:
            with self._changed:
                while not self._coming and not self._closed:
                    self._changed.wait()
                if not self._coming:
                    return
                coming, self._coming = self._coming, {}
            self._write(coming)

    def _write(self, coming):
        self._failed.update(coming)
        try:
            with self._open() as folder:
                for fit, path in sorted(coming.items()):
                    self._replace(folder, fit, path)
                    self._failed.discard(fit)
            self._say("info", "checkpoints are written to %s" % self.uri)
        except (StorageError, OSError) as error:
            self._say("warning", "%s; the training goes on, and the next checkpoint is tried again" % error)
        finally:
            for path in coming.values():
                with contextlib.suppress(OSError):  # the run has been forgotten: with it, its folder
                    os.unlink(path)

    def _replace(self, folder, fit, path):
        self._number += 1
        name = "checkpoint-%d.%d.npz" % (fit, self._number)
        folder.put(path, name)
        old, self._names[fit] = self._names.get(fit), name
        if old is not None:
            folder.delete(old)

    def _say(self, level, message):
        if level not in self._told:
            self._told.add(level)
            self._tell(level, message)
