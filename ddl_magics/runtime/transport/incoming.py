"""A file between peers, in chunks: it is complete when its announced size and checksum have arrived."""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import Any, BinaryIO, Iterator, Mapping

from .messages import CHUNK_BYTES


def blocks(path: str) -> Iterator[bytes]:
    """A file in blocks that go into a chunk."""
    with open(path, "rb") as file:
        yield from iter(lambda: file.read(CHUNK_BYTES), b"")


def size_and_checksum(path: str) -> dict[str, Any]:
    """What an `IncomingFile` is told of a file: {"size": bytes, "sha256": hex digest}."""
    digest = hashlib.sha256()
    for block in blocks(path):
        digest.update(block)
    return {"size": os.path.getsize(path), "sha256": digest.hexdigest()}


class IncomingFile:
    """Writes the chunks to `path`.

    Args:
        header: {"size": bytes, "sha256": hex digest}, and further fields of the sender.

    Attributes:
        problem: the error if the file could not be written on this machine, for example because its disk is full. Later
            chunks are then dropped.
    """

    def __init__(self, path: str, header: Mapping[str, Any]) -> None:
        self.path, self.header = path, header
        self.size, self.sha256 = int(header["size"]), str(header["sha256"])
        self.problem: OSError | None = None
        self._file: BinaryIO | None = None
        self._digest, self._received = hashlib.sha256(), 0
        try:
            self._file = open(path, "wb")  # noqa: SIM115 - stays open until the last chunk
        except OSError as error:
            self.problem = error

    def write(self, chunk: bytes | bytearray) -> bool:
        """Writes the next bytes.

        Returns:
            Whether all bytes have arrived: the file is complete, or has a `problem`.

        Raises:
            ValueError: more bytes than announced, or a wrong checksum.
        """
        self._received += len(chunk)
        if self._received > self.size:
            raise ValueError("more bytes than announced")
        self._digest.update(chunk)
        complete = self._received == self.size
        try:
            if self._file is not None:
                self._file.write(chunk)
                if complete:
                    self._file.close()
        except OSError as error:
            self.abort()
            self.problem = error
        if complete and self._digest.hexdigest() != self.sha256:
            raise ValueError("the checksum of a file does not match")
        return complete

    def abort(self) -> None:
        """Deletes an incomplete file."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # closing writes what is buffered
                self._file.close()
            self._file = None
            os.unlink(self.path)
