"""A private picture of folders, where no overlay shows them (overlay.py): folders are real, and files copies or links.

The mirror of /a/b is ROOT/a/b. Links from it lead to what is in /a/b, and in /a: a relative path means in the mirror
what it means in the folder, for code of any language. New files stay in the mirror, and so does what is done to copies.
`make_private` must be called before a link is written: it leads to the file of the notebook, from all ranks at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
import stat
import threading
from collections import deque
from typing import Iterator

from .. import scratch
from .names import is_below

#: So many entries of a folder's subfolders are mirrored at once, as each is a link to make and to remove: with
#: thousands, runs one after another would wait for a second, as ext4 passes over inodes that were freed lately. Further
#: subfolders, as one with a data set's thousands of files, are links until they are used.
MAX_ENTRIES = 200
#: So many files, and so many bytes, of the notebook's folder are copied: code that is not hooked changes the copies.
MAX_COPIED_FILES = 1_000
MAX_COPIED_BYTES = 200 << 20
#: ioctl of linux/fs.h: a copy that shares its blocks with the original, where the file system can.
_FICLONE = 0x40049409

# As they are before `paths` hooks them.
_stat, _lstat, _readlink, _scandir = os.stat, os.lstat, os.readlink, os.scandir
_mkdir, _symlink, _unlink, _rename, _open = os.mkdir, os.symlink, os.unlink, os.rename, open


class Mirror:
    """Below the folder `root`, which is this process' own. Paths are absolute and normalized. Thread-safe."""

    def __init__(self, root: str) -> None:
        self.root = root.rstrip(os.sep)
        self._expanded: dict[str, list[tuple[str, bool]]] = {}  # the folders, with what was in them
        self._copies: dict[str, tuple[int, int]] = {}  # their states, by the path of the original
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
        self._expanded[folder] = _entries(folder)
        for name, _ in self._expanded[folder]:
            with contextlib.suppress(FileExistsError):
                _symlink(os.path.join(folder, name), os.path.join(mirror, name))

    def copy_files(self, folder: str) -> list[str]:
        """Have copies of the files below a folder that `add` has mirrored, the outer ones first, within the bounds.

        Returns what stays a link, by its path in the folder: files, and folders that end with a slash.
        """
        links, files, size, folders = [], MAX_COPIED_FILES, MAX_COPIED_BYTES, deque([folder])
        with self._lock:
            while folders:
                at = folders.popleft()
                entries = _entries(at, files + 1)
                if len(entries) > files:
                    links.append(os.path.join(os.path.relpath(at, folder), ""))
                    continue
                self._expand(at)
                for name, is_real_folder in entries:
                    path = os.path.join(at, name)
                    if is_real_folder and not name.startswith(scratch.PREFIX):
                        folders.append(path)
                    elif is_file(path) and self._is_link_to(path):
                        files, size = files - 1, size - _stat(path).st_size
                        if size < 0 or not self._copy(path):
                            size += _stat(path).st_size
                            links.append(os.path.relpath(path, folder))
        return links

    def _copy(self, original: str) -> bool:
        """Put a copy in the place of the link to a file; False where it cannot be read, or there is no room."""
        mirror = self.of(original)
        copy = mirror + ".ddl-copy"
        try:
            with _open(original, "rb") as source, _open(copy, "wb") as target:
                try:
                    fcntl.ioctl(target, _FICLONE, source.fileno())
                except OSError:
                    shutil.copyfileobj(source, target, 1 << 20)
            shutil.copystat(original, copy)
            _rename(copy, mirror)
        except OSError:
            with contextlib.suppress(OSError):
                _unlink(copy)
            return False
        self._copies[original] = _content_state(mirror)
        return True

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
        """The files below a folder of this process that the cell has made, renamed or changed, by path.

        Of a link that the cell has renamed, the link.
        """
        for name, is_real_folder in _entries(folder):
            path = os.path.join(folder, name)
            original = self.original(path)
            if is_real_folder:
                yield from self.files(path)
            elif is_file(path) and (original is None or not self._is_notebooks(original)):
                yield path

    def _is_notebooks(self, original: str) -> bool:
        """Whether the mirror of a file is a link to it, or a copy that has not been changed."""
        return self._is_link_to(original) or self._copies.get(original) == _content_state(self.of(original))

    def removed(self, folder: str) -> Iterator[str]:
        """What the cell has removed below a folder, by its path there; a folder ends with a slash."""
        for above, entries in self._expanded.items():
            for name, is_real_folder in entries if is_below(above, folder) and is_folder(self.of(above)) else ():
                path = os.path.join(above, name)
                if not _exists(self.of(path)) and _exists(path):
                    yield os.path.relpath(path, folder) + (os.sep if is_real_folder else "")


def is_folder(path: str) -> bool:
    """`os.path.isdir`, whatever the cell's paths mean."""
    return stat.S_ISDIR(_mode(path))


def is_file(path: str) -> bool:
    """`os.path.isfile`, whatever the cell's paths mean."""
    return stat.S_ISREG(_mode(path))


def _content_state(path: str) -> tuple[int, int]:
    """(size, time of the last change in ns) of a file."""
    status = _stat(path)
    return status.st_size, status.st_mtime_ns


def _exists(path: str) -> bool:
    """`os.path.lexists`, whatever the cell's paths mean."""
    try:
        _lstat(path)
    except OSError:
        return False
    return True


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
