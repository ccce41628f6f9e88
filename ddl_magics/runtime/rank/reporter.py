"""What a rank reports to the driver, through its supervisor: events, notices, files, its end."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any, Callable

from .. import events
from ..checkpoints.checkpoint import Position
from ..files.names import FILES
from ..rank_end import RankEnd
from ..transport import messages, wire
from ..transport.incoming import blocks, size_and_checksum
from .stop import Stop


class Reporter:
    """The rank's side of the channel to its supervisor. Its methods may be called by any thread."""

    def __init__(self, rank: int, channel: wire.Channel, stop: Stop) -> None:
        self._rank, self._channel, self._stop = rank, channel, stop
        self._noticed: set[str] = set()
        #: Whether this rank speaks for all.
        self.is_chief: Callable[[], bool] = lambda: rank == 0

    def emit(self, kind: str, **fields: Any) -> None:
        """Report an event of a kind of `events.SCHEMA`."""
        with self._stop.sending():
            self._channel.send_json(messages.EVENTS, [events.make(kind, self._rank, **fields)])

    def notice(self, level: str, message: str) -> None:
        """Show the user a line. level: "info" or "warning"."""
        self.emit("notice", level=level, message=message)

    def notice_once(self, level: str, message: str) -> None:
        """Show the user a line, from the chief, and never again in this run."""
        if self.is_chief() and message not in self._noticed:
            self.notice(level, message)
        self._noticed.add(message)

    def send_artifact(self, name: str, path: str) -> None:
        """Stream a file to the driver."""
        self._stream(path, {"name": name}, messages.ARTIFACT, messages.CHUNK)

    def send_file(self, name: str, path: str) -> None:
        """Stream a file of the cell, which may still be written to. name: relative, with slashes."""
        handle, copy = tempfile.mkstemp()
        os.close(handle)
        try:
            shutil.copyfile(path, copy)
            self._stream(copy, {"name": FILES + name}, messages.ARTIFACT, messages.CHUNK)
        finally:
            os.unlink(copy)

    def send_checkpoint(self, path: str, position: Position) -> None:
        """Stream a checkpoint to the driver, one at a time."""
        self._stream(path, dict(position._asdict(), name=position.file), messages.CHECKPOINT, messages.PIECE)

    def send_end(self, rank_end: RankEnd) -> None:
        self._channel.send_json(messages.RANK_ENDED, rank_end.to_json())

    def _stream(self, path: str, fields: dict[str, Any], announcement: int, piece: int) -> None:
        header = {**fields, **size_and_checksum(path)}
        self._channel.send_json(announcement, header)
        if not header["size"]:
            self._channel.send(piece, b"")
        for block in blocks(path):
            self._channel.send(piece, block)
