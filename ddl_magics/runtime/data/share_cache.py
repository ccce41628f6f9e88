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
        self._name = cache_folder.entry_name(use["key"], use["digest"], rank, floatx)
        self._roots = cache_folder.roots(environment, use["folder"])

    def fetch(self) -> str | None:
        """A folder of this process (`scratch.make`) with the files of the share; None where the cache has it not."""
        for root in self._roots:
            entry = os.path.join(root, self._name)
            if not cache_folder.is_ours(root) or not os.path.isdir(entry):
                continue
            with contextlib.suppress(OSError):  # the entry was removed meanwhile, or nothing can be made beside it
                place = scratch.make("data-%d" % self._rank, os.path.dirname(root))
                try:
                    whole = _take(entry, place)
                except BaseException:
                    scratch.remove(place)
                    raise
                if whole:
                    os.utime(entry)  # it was used
                    return place
                scratch.remove(place)
                shutil.rmtree(entry, ignore_errors=True)
        return None

    def keep(self, place: str) -> str | None:
        """Put the files of `place` into the cache. None, or why they are not kept: words that follow a colon."""
        try:
            root = self._root_of(place)
            if root is None:
                return "they are on another disk than the cache"
            return _keep(root, self._name, place, self._use)
        except (OSError, TimeoutError) as error:
            return getattr(error, "strerror", None) or str(error)

    def _root_of(self, place: str) -> str | None:
        """The cache's folder on the disk of `place`, made where it is not there."""
        for root in self._roots:
            os.makedirs(root, 0o700, exist_ok=True)
            if not cache_folder.is_ours(root):
                raise PermissionError("%s is not a folder of this user alone" % root)
            if os.stat(root).st_dev == os.stat(place).st_dev:
                return root
        return None


def _take(entry: str, place: str) -> bool:
    """Link the files of an entry into `place`; whether they are whole and this user's. OSError where one is missing."""
    about = cache_folder.read_entry(entry)
    if about is None:
        return False
    for name, known in about["files"].items():
        os.link(os.path.join(entry, name), os.path.join(place, name))
        linked = os.path.join(place, name)
        if os.stat(linked).st_uid != os.geteuid() or _checksum(linked) != tuple(known):
            return False
    return True


def _keep(root: str, name: str, place: str, use: CacheUse) -> str | None:
    aside = scratch.make("keep", root)
    try:
        entry = os.path.join(aside, "entry")
        os.mkdir(entry, 0o700)
        files: Dict[str, Tuple[int, int]] = {}
        for each in sorted(os.listdir(place)):
            if not each.startswith("."):
                os.link(os.path.join(place, each), os.path.join(entry, each))
                files[each] = (0, 0)
        for each in files:
            files[each] = _checksum(os.path.join(entry, each), lasting=True)
        size = sum(each for each, _ in files.values())
        about = {"made": time.time(), "data": use["data"], "feed": use["feed"], "files": files}
        cache_folder.write_entry(entry, about)
        _sync(entry)
        with _locked(root):
            if os.path.exists(os.path.join(root, name)):
                return None
            most = _most(root, use["most"])
            if size > most:
                return "they take %s, and the cache may have %s: give it more, as in --cache %s" % (
                    *map(in_bytes, (size, most)),
                    in_bytes(2 * size).replace(" ", ""),
                )
            _shrink(root, lambda left: left + size <= most)
            os.rename(entry, os.path.join(root, name))
        _sync(root)
        return None
    finally:
        scratch.remove(aside)


def make_room(roots: List[str], needed: int) -> None:
    """Remove entries, those first that were not used for longest, until so many bytes are free on a disk of theirs."""
    for root in roots:
        with contextlib.suppress(OSError, TimeoutError):
            if cache_folder.is_ours(root) and _free(root, needed):
                return


def _free(root: str, needed: int) -> bool:
    with _locked(root):
        _shrink(root, lambda _: shutil.disk_usage(root).free >= needed)
    return shutil.disk_usage(root).free >= needed


def _shrink(root: str, enough: Callable[[int], bool]) -> None:
    """Remove the entries that were not used for longest until `enough`(bytes of the others)."""
    held = _held(root)
    left = sum(size for _, size, _ in held)
    for _, size, path in sorted(held):
        if enough(left):
            return
        shutil.rmtree(path, ignore_errors=True)
        left -= size


def _held(root: str) -> List[Tuple[float, int, str]]:
    """(when it was used last, bytes, path) of each entry."""
    found = []
    for name, _, _ in cache_folder.names(root):
        path = os.path.join(root, name)
        with contextlib.suppress(OSError):
            size = sum(each.stat(follow_symlinks=False).st_size for each in os.scandir(path))
            found.append((os.stat(path).st_mtime, size, path))
    return found


def _most(root: str, given: int | None) -> int:
    if given is not None:
        return given
    return int(SHARE_OF_DISK * (shutil.disk_usage(root).free + sum(size for _, size, _ in _held(root))))


def _checksum(path: str, lasting: bool = False) -> Tuple[int, int]:
    """(bytes, CRC-32) of a file. lasting: write it to the disk first."""
    size, value = 0, 0
    with open(path, "rb") as file:
        if lasting:
            os.fsync(file.fileno())
        while True:
            block = file.read(_BLOCK_BYTES)
            if not block:
                return size, value
            size, value = size + len(block), zlib.crc32(block, value)


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
