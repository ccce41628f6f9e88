"""Copies files that the cell wrote on rank 0 into the notebook's folder.

Names come from the network: a name is used only if its path, with links resolved, is inside the folder. A file that
changed since the run began is never replaced.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from ddl_magics.runtime import events as ev
from ddl_magics.runtime.files.names import FILES, is_inside, listed
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.store.files import synchronize_folder

#: So many files of the notebook's folder are remembered when a run begins: a stat each, some 40 ms in all.
MAX_REMEMBERED = 10_000


#: (inode, size, mtime in ns, ctime in ns).
FileState: TypeAlias = tuple[int, int, int, int]


class CannotPlace(Exception):
    """A file cannot be written; the message is one line."""


@dataclass(frozen=True)
class CellFile:
    """A file that the driver holds. name: relative, with slashes; path: on this machine, once it is fetched."""

    name: str
    size: int
    path: Path | None = None

    @property
    def artifact(self) -> str:
        """Its name for `Cluster.fetch`."""
        return FILES + self.name


@dataclass(frozen=True)
class FolderState:
    """What was in the notebook's folder when a run began, as far as it is known.

    An old time of change proves nothing: `mv`, `cp -p` and `tar` keep that of their source, and clocks are set back.

    Attributes:
        began: when the run began, by the clock of the folder's file system, in seconds since the epoch.
        files: inode, size, mtime and ctime of files, by path with links resolved; the outer folders' come first.
        is_complete: `files` has all files of the folder.
    """

    began: float
    files: Mapping[str, FileState] = field(default_factory=dict)
    is_complete: bool = False

    @classmethod
    def of(cls, folder: str | Path) -> FolderState:
        """The state now; that of an empty folder where there is none, or none that can be read."""
        began = _file_system_time(folder)
        files: dict[str, FileState] = {}
        for path, status in _files_below(os.path.realpath(folder)):
            if len(files) == MAX_REMEMBERED:
                return cls(began, files)
            files[path] = _file_state(status)
        return cls(began, files, is_complete=True)

    def has_changed(self, path: Path) -> bool:
        """Whether there is something at a path in the folder that was not there, or was another, when the run began."""
        try:
            status = path.lstat()
        except FileNotFoundError:
            return False
        state = self.files.get(os.path.join(os.path.realpath(path.parent), path.name))
        if state is not None:
            return state != _file_state(status) or status.st_mtime > self.began
        return self.is_complete or max(status.st_mtime, status.st_ctime) > self.began


def _file_state(status: os.stat_result) -> FileState:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _file_system_time(folder: str | Path) -> float:
    """The time by the clock of a folder's file system, as of NFS; by this host's where nothing can be written."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            return os.fstat(file.fileno()).st_mtime
    except OSError:
        return time.time()


def _files_below(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """(path, status) of what is below a folder and is no folder, the outer ones first."""
    folders = deque([folder])
    while folders:
        with contextlib.suppress(OSError), os.scandir(folders.popleft()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    with contextlib.suppress(OSError):  # removed meanwhile
                        yield entry.path, entry.stat(follow_symlinks=False)


def cell_files(events: Iterable[ev.RawEvent]) -> dict[str, CellFile]:
    """The files of a run by name, sorted by name."""
    files: dict[str, CellFile] = {}
    for event in map(ev.parse, events):
        if isinstance(event, ev.File | ev.Placed):
            add_event(files, event)
    return dict(sorted(files.items()))


def add_event(files: dict[str, CellFile], event: ev.File | ev.Placed) -> None:
    """Update `files` with an event."""
    if isinstance(event, ev.File):
        files[event.name] = CellFile(event.name, event.size)
    elif event.name in files:
        files[event.name] = CellFile(event.name, files[event.name].size, Path(event.path))


def fitting(files: Iterable[CellFile], limit: int | None) -> list[CellFile]:
    """The files that are not on this machine, smallest first, up to `limit` bytes in all."""
    files_to_fetch, size = [], 0
    for file in sorted(files, key=lambda file: file.size):
        size += 0 if file.path else file.size
        if file.path is None and (limit is None or size <= limit):
            files_to_fetch.append(file)
    return files_to_fetch


def subfolder(spec: RunSpec) -> str:
    """The subfolder of the notebook's folder for the run's files: each trial has its own."""
    return "" if spec.trial is None else spec.name


def target(folder: str | None, name: str, subfolder: str = "") -> Path:
    """The path of the file in the notebook's folder, or in a subfolder of it. Creates the folders above it.

    Raises:
        CannotPlace: the folder is not on this machine, or the name leads out of it.
    """
    if folder is None or not os.path.isdir(folder):
        raise CannotPlace(f"{name}: the notebook's folder {folder or ''} is not on this machine".replace("  ", " "))
    path, home = Path(folder, subfolder, name), os.path.realpath(folder)
    if not is_inside(name) or os.path.commonpath([home, os.path.realpath(path.parent)]) != home:
        raise CannotPlace(f"{name[:200]!r} is not in the notebook's folder")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotPlace(f"{name}: {error}") from None
    return path


def move_into_place(arrived: Path, path: Path, run: str, before: FolderState) -> Path:
    """Move a fetched file to `path`, or beside it if that must stay; returns its path.

    Args:
        arrived: the fetched file, in the same folder as `path`.
        path: from `target`.
        run: name of the run; part of the file's name if `path` must stay.
        before: the state of the folder when the run began.
    """
    if _is_kept(path, before):
        number = 0
        free_path = path.with_name(f"{path.stem}.{run}{path.suffix}")
        while os.path.lexists(free_path):
            number += 1
            free_path = path.with_name(f"{path.stem}.{run}-{number}{path.suffix}")
        path = free_path
    os.replace(arrived, path)
    synchronize_folder(path.parent)  # the driver forgets the file soon
    return path


def _is_kept(path: Path, before: FolderState) -> bool:
    """Whether what is at the path must stay: what has changed since the run began, a folder, or a link."""
    return path.is_symlink() or (path.exists() and not path.is_file()) or before.has_changed(path)


def summary(placed: Mapping[str, Path], folder: str, sizes: Mapping[str, int]) -> list[tuple[str, str]]:
    """The notices for files that were written, as (level, line)."""
    lines = []
    in_place = [name for name, path in placed.items() if path == Path(folder, name)]
    if in_place:
        size = sum(sizes[name] for name in in_place)
        lines.append(("info", f"written to {folder}: {listed(in_place)} ({in_words(size)})"))
    renamed = [f"{name} as {path.name}" for name, path in placed.items() if path != Path(folder, name)]
    if renamed:
        lines.append(("warning", f"kept beside what has changed in {folder} since the run began: {listed(renamed)}"))
    return lines


def in_words(size: int) -> str:
    """ "3.4 MB", "120 kB"."""
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{max(1, round(size / 1e3))} kB"
