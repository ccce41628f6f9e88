"""A registry of models that is a folder: `NAME/VERSION` is an export, written once and whole.

A version's number is claimed by creating the file `NAME/.claims/VERSION`, which only one writer can (but on S3, where
two that register at the same moment may meet); the folder is then written aside and renamed. An alias is the empty file
`NAME/aliases/ALIAS.COUNT.VERSION`, of which the largest count is the one that holds: storages that cannot replace a
file can hold it as well.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from ddl_magics.errors import CannotExport
from ddl_magics.runtime import scratch
from ddl_magics.store.files import reason_of, remove_left, synchronize_folder, synchronize_tree
from ddl_magics.wording import nearest

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_ALIAS = re.compile(r"([A-Za-z][A-Za-z0-9_-]*)\.([0-9]+)\.([0-9]+)")
_NUMBER = re.compile(r"[0-9]{1,18}")
_PART = re.compile(r"\.[0-9]+\.part")
_CLAIMS, _ALIASES = ".claims", "aliases"


class Storage(Protocol):
    """A folder for models. Names are relative to it, with "/"."""

    uri: str

    def names(self, folder: str) -> list[str]:
        """The names in a folder; none where there is none."""

    def create(self, name: str) -> bool:
        """Make an empty file; False where it exists. One of two who try at once gets True."""

    def upload(self, folder: Path, name: str) -> None:
        """Copy a folder of this machine to a new name, under which it appears when it is complete."""

    def download(self, name: str, folder: Path) -> None:
        """Copy a folder to this machine."""

    def delete(self, name: str) -> None:
        """Delete a file, if it is there."""


class Registry:
    """Models by name and version, in a folder of this machine or of a storage that this kernel's Spark knows."""

    def __init__(self, uri: str | Path) -> None:
        """uri: the folder of the registry; it is made with the first model."""
        from ddl_magics.clusters.hadoop_folder import HadoopFolder
        from ddl_magics.models.export import local_path

        self._is_local = urlsplit(str(uri)).scheme in ("", "file")
        self._storage: Storage = LocalStorage(local_path(uri)) if self._is_local else HadoopFolder(str(uri))

    def names(self) -> list[str]:
        """The models of the registry."""
        return sorted(name for name in self._storage.names("") if _NAME.fullmatch(name))

    def versions(self, name: str) -> list[int]:
        """The versions of a model, in order; none of a model that is not there."""
        return sorted(int(entry) for entry in self._storage.names(_checked(name)) if _NUMBER.fullmatch(entry))

    def aliases(self, name: str) -> dict[str, int]:
        """Alias -> version."""
        return {alias: version for alias, (_, version) in sorted(self._newest(name).items())}

    def add(self, name: str, write: Callable[[Path], None], alias: str | None = None) -> int:
        """Add a version of a model, and return its number. write: writes it into the empty folder it is given.

        alias: another name for it, as `alias` gives one.
        """
        _checked(name)
        if alias is not None:
            _checked_alias(alias)
        with scratch.folder("registry") as temporary:
            folder = Path(temporary) / "model"
            folder.mkdir()
            write(folder)
            version = self._claim(name)
            self._storage.upload(folder, f"{name}/{version}")
        if alias is not None:
            self.alias(name, alias, version)
        return version

    def alias(self, name: str, alias: str, version: int) -> None:
        """Give a version of a model another name, such as `champion`, which moves if another version has it."""
        _checked_alias(alias)
        self._checked_version(name, version)
        before = self._newest(name).get(alias)
        count = 0 if before is None else before[0] + 1
        self._storage.create(f"{name}/{_ALIASES}/{alias}.{count}.{version}")
        for entry in self._storage.names(f"{name}/{_ALIASES}"):
            match = _ALIAS.fullmatch(entry)
            if match and match[1] == alias and int(match[2]) < count:
                self._storage.delete(f"{name}/{_ALIASES}/{entry}")

    def version(self, name: str, which: str | int | None = None) -> int:
        """The version with a number or an alias; the newest of all if left out.

        Raises:
            CannotExport: there is none; the message names those that are there.
        """
        if which is None:
            return self._checked_version(name, max(self.versions(name), default=0))
        if _NUMBER.fullmatch(str(which)):
            return self._checked_version(name, int(which))
        aliases = self.aliases(name)
        if which not in aliases:
            listed = ", ".join(aliases) or "none"
            raise CannotExport(f"{name} has no alias {which}; it has {listed}.{nearest(str(which), list(aliases))}")
        return self._checked_version(name, aliases[str(which)])

    def uri(self, name: str, which: str | int | None = None) -> str:
        """Where a version is; `which` as for `version`."""
        return f"{self._storage.uri}/{name}/{self.version(name, which)}"

    def fetch(self, name: str, which: str | int | None, folder: Path) -> Path:
        """A version's folder on this machine: where it is, or else a copy in `folder`; `which` as for `version`."""
        version = self.version(name, which)
        if self._is_local:
            return Path(self._storage.uri) / name / str(version)
        target = folder / name / str(version)
        target.parent.mkdir(parents=True, exist_ok=True)
        self._storage.download(f"{name}/{version}", target)
        return target

    def _claim(self, name: str) -> int:
        claims = [int(entry) for entry in self._storage.names(f"{name}/{_CLAIMS}") if _NUMBER.fullmatch(entry)]
        version = max([*claims, *self.versions(name)], default=0) + 1
        while not self._storage.create(f"{name}/{_CLAIMS}/{version}"):
            version += 1
        return version

    def _newest(self, name: str) -> dict[str, tuple[int, int]]:
        """Alias -> (count, version), the largest."""
        newest: dict[str, tuple[int, int]] = {}
        for match in filter(None, map(_ALIAS.fullmatch, self._storage.names(f"{_checked(name)}/{_ALIASES}"))):
            newest[match[1]] = max(newest.get(match[1], (-1, 0)), (int(match[2]), int(match[3])))
        return newest

    def _checked_version(self, name: str, version: int) -> int:
        versions = self.versions(name)
        if not versions:
            raise CannotExport(f"{self._storage.uri} has no model {name}.{nearest(name, self.names())}")
        if version not in versions:
            raise CannotExport(f"{name} has no version {version}; it has {', '.join(map(str, versions))}")
        return version


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise CannotExport(f"{name!r} is no name of a model: use letters, digits, _ and -")
    return name


def _checked_alias(alias: str) -> None:
    if not _ALIAS.fullmatch(f"{alias}.0.0"):
        raise CannotExport(f"{alias} is no alias: use a letter, and then letters, digits, _ and -")


class LocalStorage:
    """A `Storage` on this machine's disk."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.uri = str(root)

    def names(self, folder: str) -> list[str]:
        try:
            return os.listdir(self._root / folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:  # a link to itself, a folder that others may not enter
            raise CannotExport(f"{self._root / folder} cannot be read: {reason_of(error)}") from None

    def create(self, name: str) -> bool:
        path = self._root / name
        with self._explained():
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                path.touch(exist_ok=False)
            except FileExistsError:
                return False
        synchronize_folder(path.parent)
        return True

    def upload(self, folder: Path, name: str) -> None:
        target = self._root / name
        unfinished = target.with_name(f".{target.name}.part")
        with self._explained():
            target.parent.mkdir(parents=True, exist_ok=True)
            remove_left(target.parent, _PART)
            try:
                shutil.copytree(folder, unfinished)
                synchronize_tree(unfinished)
                os.rename(unfinished, target)
                synchronize_folder(target.parent)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)

    def download(self, name: str, folder: Path) -> None:
        shutil.copytree(self._root / name, folder)

    def delete(self, name: str) -> None:
        (self._root / name).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise CannotExport(f"{self._root} cannot be written to: {reason_of(error)}") from None
