"""A private picture of folders: folders are real, and each file is a symbolic link until it is written.

The mirror of /a/b is ROOT/a/b. Links from it lead to what is in /a/b, and in /a: a relative path means in the mirror
what it means in the folder, for code of any language. New files stay in the mirror. `make_private` must be called
before a file that exists is written: the link would lead to the file of the notebook, from all ranks at once.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import stat
import threading
from collections import deque
from typing import Iterator

from .. import scratch

#: So many entries of a folder's subfolders are mirrored at once, as each is a link to make and to remove: with
#: thousands, runs one after another would wait for a second, as ext4 passes over inodes that were freed lately. Further
#: subfolders, as one with a data set's thousands of files, are links until they are used.
MAX_ENTRIES = 200

# As they are before `paths` hooks them.
_stat, _readlink, _scandir = os.stat, os.readlink, os.scandir
_mkdir, _symlink, _unlink, _open = os.mkdir, os.symlink, os.unlink, open


class Mirror:
    """Below the folder `root`, which is this process' own. Paths are absolute and normalized. Thread-safe."""

    def __init__(self, root: str) -> None:
        self.root = root.rstrip(os.sep)
        self._expanded: set[str] = set()
        self._listed: set[str] = set()
        self._lock = threading.RLock()

    def of(self, path: str) -> str:
        """Where the mirror of `path` is, or would be."""
        return self.root + path

    def original(self, path: str) -> str | None:
        """What a path within the mirror is the mirror of; None for any other path."""
        inside = path == self.root or path.startswith(self.root + os.sep)
        return (path[len(self.root) :] or os.sep) if inside else None

    def add(self, folder: str, deep: bool = True) -> str:
        """Mirror a folder, and what is beside it and above. deep: with its subfolders. Returns the mirror's path."""
        with self._lock:
            for above in _ancestors(folder):
                self._expand(above)
            self._expand(folder)
            if deep and folder != os.sep:
                self._expand_below(folder)
        return self.of(folder)

    def _expand_below(self, folder: str) -> None:
        """Expand the subfolders, the outer ones first, but for those with more entries than are left."""
        folders, room = deque([(folder, _entries(folder))]), MAX_ENTRIES
        while folders and room > 0:
            at, entries = folders.popleft()
            for name, is_folder in entries:
                below = os.path.join(at, name)
                if not is_folder or name.startswith((".", scratch.PREFIX)):
                    continue
                subentries = _entries(below, room + 1)
                if len(subentries) <= room:
                    room -= len(subentries)
                    self._expand(below)
                    folders.append((below, subentries))

    def _expand(self, folder: str) -> None:
        """Make the mirror of a folder a real folder, with a link for each entry. Those above it have been expanded."""
        if folder in self._expanded:
            return
        mirror = self.of(folder)
        if self._is_link_to(folder):
            _unlink(mirror)
        with contextlib.suppress(FileExistsError):
            _mkdir(mirror)
        self._expanded.add(folder)
        for name, _ in _entries(folder):
            with contextlib.suppress(FileExistsError):
                _symlink(os.path.join(folder, name), os.path.join(mirror, name))

    def make_private(self, path: str, content: bool) -> None:
        """Before a file of the mirror is written: it and the folders above it are no links any more.

        content: it keeps what it had, as for appending.
        """
        original = self.original(path)
        if original is None:
            return
        with self._lock:
            self._make_parents_private(original)
            if not self._is_link_to(original):
                return
            if is_folder(original):
                self._expand(original)
            else:
                _unlink(path)
                if content and is_file(original):
                    with _open(original, "rb") as source, _open(path, "wb") as target:
                        shutil.copyfileobj(source, target)

    def make_parents_private(self, path: str) -> None:
        """Before a name in a folder of the mirror is made or removed."""
        original = self.original(path)
        if original is not None:
            with self._lock:
                self._make_parents_private(original)

    def _make_parents_private(self, original: str) -> None:
        for above in _ancestors(original):
            if self._is_link_to(above):
                self._expand(above)

    def open_folders(self, path: str) -> None:
        """Before a folder of the mirror is listed: its folders are no links, which `os.walk` would not enter."""
        folder = self.original(path)
        if folder is None or folder in self._listed:
            return
        with self._lock:
            self._make_parents_private(os.path.join(folder, "any"))
            for name, is_real_folder in _entries(folder):
                below = os.path.join(folder, name)
                if is_real_folder and self._is_link_to(below):
                    self._expand(below)
            self._listed.add(folder)

    def _is_link_to(self, original: str) -> bool:
        """Whether the mirror of a path is a link to it, which is of this class's making and not the cell's."""
        try:
            return _readlink(self.of(original)) == original
        except OSError:
            return False

    def files(self, folder: str) -> Iterator[str]:
        """The files below a folder of this process that the cell has made or renamed, by path, without those linked to.

        Of a link that the cell has renamed, the link.
        """
        for name, is_real_folder in _entries(folder):
            path = os.path.join(folder, name)
            original = self.original(path)
            if is_real_folder:
                yield from self.files(path)
            elif is_file(path) and (original is None or not self._is_link_to(original)):
                yield path


def is_folder(path: str) -> bool:
    """`os.path.isdir`, whatever the cell's paths mean."""
    return stat.S_ISDIR(_mode(path))


def is_file(path: str) -> bool:
    """`os.path.isfile`, whatever the cell's paths mean."""
    return stat.S_ISREG(_mode(path))


def _mode(path: str) -> int:
    """0 where there is nothing."""
    try:
        return _stat(path).st_mode
    except OSError:
        return 0


def _entries(folder: str, limit: int | None = None) -> list[tuple[str, bool]]:
    """(name, whether it is a folder and no link to one) of what is in a folder; nothing where it cannot be listed."""
    try:
        with _scandir(folder) as entries:
            return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in itertools.islice(entries, limit)]
    except OSError:
        return []


def _ancestors(path: str) -> list[str]:
    """The folders above a path, from the outermost."""
    ancestors = []
    while path != os.sep:
        path = os.path.dirname(path)
        ancestors.append(path)
    return ancestors[::-1]
