"""Folders of the storage that this kernel's Spark knows (HDFS, Azure, S3), for what the notebook keeps there."""

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
    """A folder, in which names are relative, with "/"; `ddl_magics.models.registry.Storage` says what is guaranteed."""

    def __init__(self, uri: str) -> None:
        self.uri = uri.rstrip("/")

    def names(self, folder: str) -> list[str]:
        with self._open(folder) as opened:
            return opened.names()

    def create(self, name: str) -> bool:
        folder, _, last = name.rpartition("/")
        with self._open(folder) as opened:
            return opened.create(last)

    def upload(self, folder: Path, name: str) -> None:
        above, _, last = name.rpartition("/")
        with self._open(above) as opened:
            opened.upload(str(folder), last)

    def download(self, name: str, folder: Path) -> None:
        above, _, last = name.rpartition("/")
        with self._open(above) as opened:
            opened.download(last, str(folder))

    def delete(self, name: str) -> None:
        above, _, last = name.rpartition("/")
        with self._open(above) as opened:
            opened.delete(last)

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
