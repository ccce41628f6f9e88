"""Writes files that are complete after a power cut: under a temporary name, synchronized, renamed."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from jupyter_core.paths import jupyter_data_dir

#: No model takes so long to be written.
LEFT_SECONDS = 86400.0


def write_atomically(path: Path, chunks: Iterable[bytes], lasting: bool = True) -> None:
    """Replace a file atomically: readers see the old content or the new one, never a part of it.

    Args:
        path: of the file.
        chunks: its content.
        lasting: wait until the content is on the disk. Without it, a power cut may leave the file empty.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(chunks)
            if lasting:
                synchronize(file.fileno())
        os.replace(temporary, path)
        if lasting:
            synchronize_folder(path.parent)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def make_private(folder: Path) -> Path:
    """Make a folder below `ddl_magics` in Jupyter's data folder, if it is not there, and return it.

    Other users cannot enter `ddl_magics`, whatever the modes of what Spark and other programs make in it. OSError where
    it cannot be made.
    """
    root = Path(jupyter_data_dir()) / "ddl_magics"
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(OSError):  # of another user, such as a store that was mounted
        if stat.S_IMODE(root.stat().st_mode) & 0o077:  # as earlier versions have made it
            root.chmod(0o700)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def read_bounded(path: Path, most: int) -> bytes:
    """The content of a file that may be a stranger's.

    Raises:
        OSError: it cannot be read, or is a folder.
        ValueError: it is a pipe or a device, or longer than `most` bytes.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # a pipe would block
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("no file")
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError("too long")
    return content


def move(arrived: Path, path: Path) -> None:
    """Give a complete file its final name, once its content is on the disk."""
    with open(arrived, "rb") as file:
        synchronize(file.fileno())
    os.replace(arrived, path)
    synchronize_folder(path.parent)


def synchronize(descriptor: int) -> None:
    """Wait until an open file, or folder, is on the disk."""
    os.fsync(descriptor)


def synchronize_folder(folder: Path) -> None:
    """Wait until a folder's entries are on the disk, if its file system supports that."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            synchronize(descriptor)
        finally:
            os.close(descriptor)


def synchronize_tree(folder: Path) -> None:
    """Wait until all files below a folder, and the folders, are on the disk. Links are left out."""
    for path, _, names in os.walk(folder):
        for name in names:
            if not os.path.islink(file := os.path.join(path, name)):
                with open(file, "rb") as opened:
                    synchronize(opened.fileno())
        synchronize_folder(Path(path))


def remove_left(folder: Path, names: re.Pattern[str]) -> None:
    """Remove the folders with such names that a killed process has left: unchanged for `LEFT_SECONDS`."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            is_folder = names.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
            if is_folder and time.time() - entry.stat(follow_symlinks=False).st_mtime > LEFT_SECONDS:
                shutil.rmtree(entry.path, ignore_errors=True)


def reason_of(error: OSError) -> str:
    """Why a file, or of a tree (`shutil.Error`) the first file, could not be written: "No space left on device"."""
    if isinstance(error, shutil.Error) and isinstance(error.args[0], list) and error.args[0]:
        return str(error.args[0][0][-1])
    return error.strerror or str(error)


def stamp(path: str | Path) -> tuple[int, int, int] | None:
    """Inode, mtime and size of a file, which tell whether it has changed; None without it."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
