"""--checkpoint URI: copies of a run's checkpoints in the cluster's storage, which outlives the driver and its session.

Each run has a folder of its own under the URI, with one file a fit. Hadoop's file systems do not replace a file in one
step: a newer checkpoint is written under a name of its own before the older one is deleted, so that one is always
complete.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import threading
from typing import TYPE_CHECKING, Callable, Iterable

from ..spark.storage import Folder, StorageError
from . import checkpoint

if TYPE_CHECKING:
    from ..spark.pyspark_types import SparkContext
    from .checkpoint import CheckpointFile

OPTION = "--checkpoint"
#: How long the end of a run waits for the copies that are being written.
CLOSE_SECONDS = 120.0

_NAME = re.compile(r"checkpoint-([0-9]+)\.([0-9]+)\.npz")


def folder_of(uri: str, run: str) -> str:
    """The folder of the run with this id under `uri`."""
    return "%s/%s" % (uri.rstrip("/"), run)


def newest(names: Iterable[str]) -> list[str]:
    """Of the names in a run's folder, the newest checkpoint of each fit, in the order of the fits."""
    latest_by_fit: dict[int, tuple[int, str]] = {}
    for match in filter(None, map(_NAME.fullmatch, names)):
        fit, number = map(int, match.groups())
        latest_by_fit[fit] = max(latest_by_fit.get(fit, (0, "")), (number, match.group()))
    return [latest_by_fit[fit][1] for fit in sorted(latest_by_fit)]


class CheckpointUploader:
    """Writes checkpoints into the folder `uri`, in a thread: a slow storage delays neither training nor driver.

    new_file: returns a path on the driver's disk. notify: (level, message) shows a notice, once a level. A checkpoint
    that cannot be written is not tried again: the next one of its fit replaces it.
    """

    def __init__(
        self,
        sc: SparkContext,
        uri: str,
        run: str,
        new_file: Callable[[], str],
        notify: Callable[[str, str], object],
    ) -> None:
        self.uri = uri
        self._open: Callable[[], Folder] = lambda: Folder(sc, OPTION, uri, run)
        self._new_file, self._notify = new_file, notify
        self._changed = threading.Condition()
        self._pending: dict[int, str] = {}  # by fit: a path on the driver's disk
        self._names: dict[int, str] = {}  # by fit: the name in the folder
        self._number = 0  # of the newest name
        self._failed: set[int] = set()  # fits whose newest checkpoint is not in the folder
        self._notified: set[str] = set()  # levels
        self._closed = False
        self._thread: threading.Thread | None = None

    def upload(self, file: CheckpointFile) -> None:
        """Write `file` in the background; the caller may delete it as soon as this returns."""
        fit, path = checkpoint.Position.from_json(file.header).fit, self._new_file()
        try:
            os.link(file.path, path)
        except OSError:  # a disk without links
            shutil.copyfile(file.path, path)
        with self._changed:
            overtaken = self._pending.get(fit)
            self._pending[fit] = path
            if self._thread is None:
                self._thread = threading.Thread(target=self._write_all, name="checkpoint copies", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        if overtaken is not None:
            os.unlink(overtaken)

    def close(self) -> bool:
        """Write what is pending, and end. Returns whether the newest checkpoint of each fit is in the folder."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)
            if self._thread.is_alive():
                self._notify_once("warning", "%s %s does not answer: a checkpoint is not written" % (OPTION, self.uri))
                return False
        return not self._failed

    def _write_all(self) -> None:
        while True:
            with self._changed:
                while not self._pending and not self._closed:
                    self._changed.wait()
                if not self._pending:
                    return
                pending, self._pending = self._pending, {}
            self._write(pending)

    def _write(self, pending: dict[int, str]) -> None:
        self._failed.update(pending)
        try:
            with self._open() as folder:
                for fit, path in sorted(pending.items()):
                    self._replace(folder, fit, path)
                    self._failed.discard(fit)
            self._notify_once("info", "checkpoints are written to %s" % self.uri)
        except (StorageError, OSError) as error:
            self._notify_once("warning", "%s; the training continues, and the next checkpoint is tried again" % error)
        finally:
            for path in pending.values():
                with contextlib.suppress(OSError):  # the run's folder is deleted once the run is forgotten
                    os.unlink(path)

    def _replace(self, folder: Folder, fit: int, path: str) -> None:
        self._number += 1
        name = "checkpoint-%d.%d.npz" % (fit, self._number)
        folder.upload(path, name)
        superseded = self._names.get(fit)
        self._names[fit] = name
        if superseded is not None:
            folder.delete(superseded)

    def _notify_once(self, level: str, message: str) -> None:
        if level not in self._notified:
            self._notified.add(level)
            self._notify(level, message)
