"""Folders on storage that this kernel's Spark can reach (HDFS, Azure, S3)."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ddl_magics.clusters import local_spark
from ddl_magics.errors import CannotExport
from ddl_magics.runtime.spark.storage import Folder, StorageError


class HadoopFolder:
    """A `ddl_magics.models.registry.Storage`, which says what is guaranteed; names are relative, with "/"."""

    def __init__(self, uri: str) -> None:
        self.uri = uri.rstrip("/")

    def names(self, folder: str) -> list[str]:
        with self._open(folder) as opened:
            return opened.names()

    def create(self, name: str) -> bool:
        with self._open_parent(name) as (opened, leaf):
            return opened.create(leaf)

    def upload(self, folder: Path, name: str) -> None:
        with self._open_parent(name) as (opened, leaf):
            opened.upload(str(folder), leaf)

    def download(self, name: str, folder: Path) -> None:
        with self._open_parent(name) as (opened, leaf):
            opened.download(leaf, str(folder))

    def delete(self, name: str) -> None:
        with self._open_parent(name) as (opened, leaf):
            opened.delete(leaf)

    @contextlib.contextmanager
    def _open_parent(self, name: str) -> Iterator[tuple[Folder, str]]:
        parent, _, leaf = name.rpartition("/")
        with self._open(parent) as opened:
            yield opened, leaf

    @contextlib.contextmanager
    def _open(self, folder: str) -> Iterator[Folder]:
        session: Any = local_spark.existing_session({})
        if session is None:
            raise CannotExport(f"{self.uri} is reached through Spark, and this kernel has no session: begin one first")
        try:
            uri = f"{self.uri}/{folder}" if folder else self.uri
            with Folder(session.sparkContext, "the folder", uri, uuid.uuid4().hex) as opened:
                yield opened
        except StorageError as error:
            raise CannotExport(str(error)) from None
