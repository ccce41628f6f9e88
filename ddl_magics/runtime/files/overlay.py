"""The notebook's folder as a rank sees it: what the rank and its child processes change there stays the rank's.

An overlay in the rank's mount namespace lies over the folder. What is written or deleted, by code of any language and
by any path, goes to a folder of the rank; what is only read is the notebook's. See Linux's filesystems/overlayfs.rst.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import stat
from collections import deque
from typing import Iterator, NamedTuple

from . import namespaces
from .names import is_below

#: In the rank's scratch folder.
_FOLDER = "view"
_OPAQUE = "user.overlay.opaque"
#: volatile: what is written need not be on the disk when the rank ends, whose files are removed then.
_OPTIONS = "lowerdir=/proc/self/fd/%d,upperdir=/proc/self/fd/%d,workdir=/proc/self/fd/%d,userxattr,volatile"
#: A space, a tab, a line break or a backslash in a path of mountinfo.
_ESCAPED = re.compile(rb"\\([0-7]{3})")
#: So many entries of the folder are looked at for files of other users, and for links that lead out of it.
_LOOKED_AT = 1_000
#: So many folders that links lead to have overlays too.
_LINKED = 16


class _Folder(NamedTuple):
    """name: relative to the notebook's folder. hides: nothing of the notebook's is seen in it."""

    name: str
    hides: bool


class Overlay:
    """lower: a descriptor of the notebook's folder, as it is under the overlay. upper: the folder of what changes."""

    def __init__(self, folder: str, lower: int, upper: str) -> None:
        self._folder, self._lower, self._upper = folder, lower, upper

    @classmethod
    def mount(cls, folder: str | None, scratch: str, is_chief: bool) -> Overlay | None:
        """Lay it over the folder for this process and those that it starts; None where the system does not let it.

        Where links in the folder lead out of it, the chief changes what is there, as a plain cell does, and other ranks
        have overlays there too.
        """
        if not namespaces.own:
            return None
        try:
            return None if folder is None else cls._mount_all(folder, scratch, is_chief)
        except OSError:  # as on a file system that cannot be a part of an overlay
            return None
        finally:
            namespaces.give_up_rights()

    @classmethod
    def _mount_all(cls, folder: str, scratch: str, is_chief: bool) -> Overlay | None:
        of_rank = [os.path.realpath(path) for path in (scratch, os.path.join(scratch, "data"))]
        notebook = os.path.realpath(folder)
        linked = _linked_folders(notebook)
        if not _may_be_covered(notebook, of_rank):
            return None
        if len(linked) > _LINKED or not all(_may_be_covered(path, [*of_rank, notebook]) for path in linked):
            return None
        with contextlib.ExitStack() as mounted:
            overlay = cls._mount(folder, os.path.join(scratch, _FOLDER))
            mounted.callback(namespaces.unmount, folder)
            for number, path in enumerate([] if is_chief else linked):
                cls._mount(path, os.path.join(scratch, "%s-%d" % (_FOLDER, number)))
                mounted.callback(namespaces.unmount, path)
            mounted.pop_all()
        return overlay

    @classmethod
    def _mount(cls, folder: str, own: str) -> Overlay:
        upper, work = os.path.join(own, "upper"), os.path.join(own, "work")
        for path in (upper, work):
            os.makedirs(path)
        status = os.stat(folder)
        if os.geteuid() == 0:
            os.chown(upper, status.st_uid, status.st_gid)
        os.chmod(upper, stat.S_IMODE(status.st_mode))
        os.setxattr(upper, "user.overlay.ddl", b"y")  # without attributes no folder can be deleted and made anew
        descriptors = [os.open(path, os.O_RDONLY | os.O_DIRECTORY) for path in (folder, upper, work)]
        try:
            namespaces.mount("overlay", folder, "overlay", 0, _OPTIONS % tuple(descriptors))
        except BaseException:
            os.close(descriptors[0])
            raise
        finally:
            for descriptor in descriptors[1:]:
                os.close(descriptor)
        try:
            probe = os.path.join(folder, ".ddl-%d" % os.getpid())
            os.close(os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            os.unlink(probe)
        except OSError:  # it is read-only
            namespaces.unmount(folder)
            raise
        return cls(folder, descriptors[0], upper)

    def files(self) -> Iterator[str]:
        """The files whose content the cell has made or changed, by path."""
        for folder in self._folders():
            for name, entry in self._entries(folder.name).items():
                if not entry.is_dir(follow_symlinks=False) and not _is_whiteout(entry):
                    relative = os.path.join(folder.name, name)
                    path = os.path.join(self._folder, relative)
                    if os.path.isfile(path) and self._is_changed(relative, entry):
                        yield path

    def removed(self) -> Iterator[str]:
        """What the cell has removed of the notebook's, by its name in the folder; a folder ends with a slash."""
        for folder in self._folders():
            entries = self._entries(folder.name)
            names = [name for name, entry in entries.items() if _is_whiteout(entry)]
            if folder.hides:
                with contextlib.suppress(OSError):  # the notebook has none of this name
                    names += [name for name in self._listed(folder.name) if name not in entries]
            for name in names:
                relative = os.path.join(folder.name, name)
                with contextlib.suppress(FileNotFoundError):  # another has removed it from the notebook's
                    is_folder = stat.S_ISDIR(self._stat(relative).st_mode)
                    yield relative + "/" if is_folder else relative

    def _folders(self) -> Iterator[_Folder]:
        """The folders in which something has changed."""
        folders = deque([_Folder("", False)])
        while folders:
            folder = folders.popleft()
            hides = folder.hides or self._is_opaque(folder.name)
            yield _Folder(folder.name, hides)
            for name, entry in self._entries(folder.name).items():
                if entry.is_dir(follow_symlinks=False):
                    folders.append(_Folder(os.path.join(folder.name, name), hides))

    def _entries(self, folder: str) -> dict[str, os.DirEntry[str]]:
        with os.scandir(os.path.join(self._upper, folder)) as entries:
            return {entry.name: entry for entry in entries}

    def _is_opaque(self, folder: str) -> bool:
        """Whether the cell has made the folder, in place of the notebook's or of nothing."""
        try:
            return os.getxattr(os.path.join(self._upper, folder), _OPAQUE) == b"y"
        except OSError:
            return False

    def _is_changed(self, name: str, entry: os.DirEntry[str]) -> bool:
        """Whether its content is new: a file that was only opened for writing, or has another mode, has the old one."""
        try:
            before, now = self._stat(name), entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return True
        return (before.st_size, before.st_mtime_ns) != (now.st_size, now.st_mtime_ns)

    def _stat(self, name: str) -> os.stat_result:
        """Of the notebook's own file."""
        return os.stat(name, dir_fd=self._lower, follow_symlinks=False)

    def _listed(self, folder: str) -> list[str]:
        """Names in the notebook's own folder."""
        descriptor = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=self._lower)
        try:
            return os.listdir(descriptor)
        finally:
            os.close(descriptor)


def _linked_folders(folder: str) -> list[str]:
    """The folders outside of a folder where links in it lead to what this process may write, as far as looked at."""
    linked, left, folders = set(), _LOOKED_AT, deque([folder])
    while folders and left > 0:
        with contextlib.suppress(OSError), os.scandir(folders.popleft()) as entries:
            for entry in itertools.islice(entries, left):
                left -= 1
                if entry.is_symlink():
                    target = os.path.realpath(entry.path)
                    if os.access(target, os.W_OK):
                        linked.add(target if os.path.isdir(target) else os.path.dirname(target))
                elif entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                    folders.append(entry.path)
    outer = [path for path in linked if not any(is_below(path, above) for above in (folder, *(linked - {path})))]
    return sorted(outer)


def _is_whiteout(entry: os.DirEntry[str]) -> bool:
    """Whether it says that there is nothing of this name any more."""
    status = entry.stat(follow_symlinks=False)
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def _may_be_covered(folder: str, of_rank: list[str]) -> bool:
    """Whether an overlay shows all of a folder, and can change all of it. of_rank: the rank's own folders."""
    if folder == os.sep or any(os.path.commonpath([folder, path]) in (folder, path) for path in of_rank):
        return False
    return not _has_mounts(folder) and (os.geteuid() == 0 or _is_own(folder))


def _has_mounts(folder: str) -> bool:
    """Whether other file systems are mounted in a folder: the overlay would not show them."""
    with open("/proc/self/mountinfo", "rb") as file:
        paths = [_ESCAPED.sub(lambda match: bytes([int(match[1], 8)]), line.split()[4]) for line in file]
    return any(path.startswith(os.fsencode(folder + os.sep)) for path in paths)


def _is_own(folder: str) -> bool:
    """Whether what is there is this user's, as far as it is looked at: what another owns, the overlay cannot copy."""
    mine, left, folders = (os.geteuid(), os.getegid()), _LOOKED_AT, deque([folder])
    status = os.stat(folder)
    if (status.st_uid, status.st_gid) != mine:
        return False
    while folders and left > 0:
        with contextlib.suppress(OSError), os.scandir(folders.popleft()) as entries:
            for entry in entries:
                status, left = entry.stat(follow_symlinks=False), left - 1
                if (status.st_uid, status.st_gid) != mine:
                    return False
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                if left <= 0:
                    break
    return True
