"""The folder in which a rank runs the cell: relative paths mean in it what they mean in the notebook.

Where the notebook's folder is on this machine, it is that folder under an overlay, or a mirror of it where the system
has none; else a folder with what --files has sent. What the cell writes stays the rank's. The chief's files are sent to
the notebook at the end (`written`).
"""

from __future__ import annotations

import os
import sys
import threading
import zipfile
from typing import Iterator

from .mirror import Mirror
from .names import is_inside
from .overlay import Overlay
from .paths import Paths
from .written import Written

#: What --files has sent, in a rank's scratch folder.
ARCHIVE = "files.zip"
#: Folders of the interpreter's own, which it would make again.
_SKIPPED = {"__pycache__"}


class WorkingFolder:
    """scratch: the rank's scratch folder. notebook: the path of the notebook's folder, if it may be on this machine.

    is_chief: its files become the notebook's; those of other ranks stay apart. It is so when the run begins:
    `paths.is_chief` is asked later.

    links: what of the notebook's folder is a link to it, by name, once it is entered: code that `paths` does not hook
    writes and deletes the notebook's own.
    """

    def __init__(self, scratch: str, notebook: str | None, is_chief: bool) -> None:
        self._scratch = scratch
        self._notebook = notebook if notebook and os.path.isdir(notebook) else None
        mirror = Mirror(os.path.join(os.path.realpath(scratch), "root"))
        self._overlay = Overlay.mount(self._notebook, scratch, is_chief)
        self.paths = Paths(mirror, scratch, self._notebook, is_chief, self._overlay is not None)
        self.links: list[str] = []
        self._mirror = mirror
        self._unpacked: dict[str, tuple[int, int]] = {}
        self._making: threading.Thread | None = None
        self.path = os.path.join(self._scratch, "work")
        if self._notebook is not None:
            self.path = mirror.of(self._notebook) if self._overlay is None else self._notebook

    @property
    def is_mirror(self) -> bool:
        """Whether it is a mirror of the notebook's folder."""
        return self._notebook is not None and self._overlay is None

    def begin(self) -> None:
        """Begin to make the folder, beside what else happens: on some disks a thousand files take a while."""
        if self._notebook is not None and self._overlay is None:
            self._making = threading.Thread(target=self._make_mirror, args=(self._notebook,), daemon=True)
            self._making.start()

    def _make_mirror(self, notebook: str) -> None:
        self._mirror.add(notebook)
        self.links = self._mirror.copy_files(notebook)

    def enter(self) -> None:
        """Make the folder, and make it the process's own; modules beside the notebook can be imported."""
        if self._notebook is not None:
            if self._making is None:
                self.begin()
            if self._making is not None:
                self._making.join()
                self._mirror.add(self._notebook)  # what is there already, it leaves
        else:
            os.makedirs(self.path, exist_ok=True)
            self._unpack()
        os.chdir(self.path)
        sys.path.insert(0, self.path)
        self.paths.install()

    def _unpack(self) -> None:
        path = os.path.join(self._scratch, ARCHIVE)
        if not os.path.exists(path):
            return
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if not is_inside(name):
                    raise ValueError("--files: %r is no path in the notebook's folder" % name)
            archive.extractall(self.path)
        self._unpacked = {file.name: _state(file.path) for file in self._files()}

    def written(self) -> list[Written]:
        """The files that the cell has written, in order of their names."""
        return sorted(file for file in self._files() if self._unpacked.get(file.name) != _state(file.path))

    def removed(self) -> list[str]:
        """What the cell has removed of the notebook's, by name; a folder ends with a slash. The notebook keeps it."""
        if self._notebook is None:
            return []
        names = self._mirror.removed(self._notebook) if self._overlay is None else self._overlay.removed()
        return sorted(name for name in names if not _is_skipped(name))

    def _files(self) -> Iterator[Written]:
        for path in self._mirror.files(self.path) if self._overlay is None else self._overlay.files():
            name = os.path.relpath(path, self.path)
            if not _is_skipped(name):
                yield Written(name, path, os.stat(path).st_size)

    def outside(self) -> list[str]:
        """Files beside or above the notebook's folder, whose writing `paths` has not noticed: they do not come back."""
        if self._notebook is None:
            return []
        inside = self.path + os.sep
        paths = (path for path in self._mirror.files(self._mirror.root) if not path.startswith(inside))
        return sorted(self._mirror.original(path) or path for path in paths)


def _is_skipped(name: str) -> bool:
    return bool(set(name.split(os.sep)) & _SKIPPED)


def _state(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns
