"""A rank's share of --data, taken from its host's cache, and put there for later runs.

Files are linked and never written again: a run has names of its own for them, so that an entry may be removed while
it trains. An entry is made aside, and gets its name when all of it is on the disk; its checksums are compared whenever
it is taken. Of two that make the same one, the first has it. Whatever goes wrong with the cache, the run goes on.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
import zlib
from typing import TYPE_CHECKING, Callable, Dict, Iterator, List, Mapping, Tuple

from .. import scratch
from ..wording import in_bytes
from . import cache_folder

if TYPE_CHECKING:
    from .records import CacheUse

#: The cache takes at most this share of a disk's room that is free without it, unless --cache says how much.
SHARE_OF_DISK = 0.2
#: How long another process may hold a folder's lock, which it does for milliseconds.
LOCK_SECONDS = 10.0
LOCK = ".lock"
#: How a notice begins; ranks of a host have the same one.
NOT_KEPT = "--cache: the rows of --data are not kept for later runs:"
_BLOCK_BYTES = 4 << 20


class ShareCache:
    """The cache of this host, for the share of one rank. floatx: with which it is stored."""

    def __init__(self, use: CacheUse, rank: int, floatx: str, environment: Mapping[str, str]) -> None:
        self._use, self._rank = use, rank
        self._name = "%s.%s.%d.%s" % (use["key"], use["digest"], rank, floatx)
        self._roots = cache_folder.roots(environment, use["folder"])

    def fetch(self) -> str | None:
        """A folder of this process (`scratch.make`) with the files of the share; None where the cache has it not."""
        for root in self._roots:
            entry = os.path.join(root, self._name)
            if not cache_folder.is_ours(root) or not os.path.isdir(entry):
                continue
            with contextlib.suppress(OSError):  # the entry was removed meanwhile, or nothing can be made beside it
                folder = scratch.make("data-%d" % self._rank, os.path.dirname(root))
                try:
                    complete = _take(entry, folder)
                except BaseException:
                    scratch.remove(folder)
                    raise
                if complete:
                    os.utime(entry)  # it was used
                    return folder
                scratch.remove(folder)
                shutil.rmtree(entry, ignore_errors=True)
        return None

    def keep(self, folder: str) -> str | None:
        """Put the files of `folder` into the cache. None, or why they are not kept: words that follow a colon."""
        try:
            root = self._root_of(folder)
            if root is None:
                return "they are on another disk than the cache"
            return _keep(root, self._name, folder, self._use)
        except (OSError, TimeoutError) as error:
            return getattr(error, "strerror", None) or str(error)

    def _root_of(self, folder: str) -> str | None:
        """The cache's folder on the disk of `folder`, made where it is not there."""
        for root in self._roots:
            os.makedirs(root, 0o700, exist_ok=True)
            if not cache_folder.is_ours(root):
                raise PermissionError("%s is not a folder of this user alone" % root)
            if os.stat(root).st_dev == os.stat(folder).st_dev:
                return root
        return None


def _take(entry: str, folder: str) -> bool:
    """Link the files of an entry into `folder`; whether they are whole and this user's. OSError if one is missing."""
    contents = cache_folder.read_entry(entry)
    if contents is None:
        return False
    for name, checksum in contents["files"].items():
        os.link(os.path.join(entry, name), os.path.join(folder, name))
        linked = os.path.join(folder, name)
        if os.stat(linked).st_uid != os.geteuid() or _checksum(linked) != tuple(checksum):
            return False
    return True


def _keep(root: str, name: str, folder: str, use: CacheUse) -> str | None:
    aside = scratch.make("keep", root)
    try:
        entry = os.path.join(aside, "entry")
        os.mkdir(entry, 0o700)
        files: Dict[str, Tuple[int, int]] = {}
        for file_name in sorted(os.listdir(folder)):
            if not file_name.startswith("."):
                os.link(os.path.join(folder, file_name), os.path.join(entry, file_name))
                files[file_name] = (0, 0)
        for file_name in files:
            files[file_name] = _checksum(os.path.join(entry, file_name), lasting=True)
        size = sum(file_bytes for file_bytes, _ in files.values())
        contents = {"made": time.time(), "data": use["data"], "feed": use["feed"], "files": files}
        cache_folder.write_entry(entry, contents)
        _sync(entry)
        with _locked(root):
            if os.path.exists(os.path.join(root, name)):
                return None
            max_bytes = _max_bytes(root, use["max_bytes"])
            if size > max_bytes:
                return "they take %s, and the cache may have %s: give it more, as in --cache %s" % (
                    *map(in_bytes, (size, max_bytes)),
                    in_bytes(2 * size).replace(" ", ""),
                )
            _shrink(root, lambda remaining_bytes: remaining_bytes + size <= max_bytes)
            os.rename(entry, os.path.join(root, name))
        _sync(root)
        return None
    finally:
        scratch.remove(aside)


def make_room(roots: List[str], needed_bytes: int) -> None:
    """Remove entries, those first that were not used for longest, until so many bytes are free on a disk of theirs."""
    for root in roots:
        with contextlib.suppress(OSError, TimeoutError):
            if cache_folder.is_ours(root) and _free(root, needed_bytes):
                return


def _free(root: str, needed_bytes: int) -> bool:
    with _locked(root):
        _shrink(root, lambda _: shutil.disk_usage(root).free >= needed_bytes)
    return shutil.disk_usage(root).free >= needed_bytes


def _shrink(root: str, is_enough: Callable[[int], bool]) -> None:
    """Remove the entries that were not used for longest until `is_enough`(bytes of the others)."""
    entries = _entries(root)
    remaining_bytes = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if is_enough(remaining_bytes):
            return
        shutil.rmtree(path, ignore_errors=True)
        remaining_bytes -= size


def _entries(root: str) -> List[Tuple[float, int, str]]:
    """(when it was used last, bytes, path) of each entry."""
    entries = []
    for name, _, _ in cache_folder.names(root):
        path = os.path.join(root, name)
        with contextlib.suppress(OSError):
            size = sum(file.stat(follow_symlinks=False).st_size for file in os.scandir(path))
            entries.append((os.stat(path).st_mtime, size, path))
    return entries


def _max_bytes(root: str, option_bytes: int | None) -> int:
    if option_bytes is not None:
        return option_bytes
    return int(SHARE_OF_DISK * (shutil.disk_usage(root).free + sum(size for _, size, _ in _entries(root))))


def _checksum(path: str, lasting: bool = False) -> Tuple[int, int]:
    """(bytes, CRC-32) of a file. lasting: write it to the disk first."""
    size, value = 0, 0
    with open(path, "rb") as file:
        if lasting:
            os.fsync(file.fileno())
        for block in iter(lambda: file.read(_BLOCK_BYTES), b""):
            size, value = size + len(block), zlib.crc32(block, value)
    return size, value


def _sync(folder: str) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextlib.contextmanager
def _locked(root: str) -> Iterator[None]:
    """Holds the lock of a folder: one process at a time adds and removes entries. TimeoutError."""
    opened = os.open(os.path.join(root, LOCK), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError("%s is locked by another process" % root) from None
                time.sleep(0.05)
        yield
    finally:
        os.close(opened)
