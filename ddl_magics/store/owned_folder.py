"""A folder of the store that one process owns and writes: its owner, heartbeats and requests to the owner."""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from ddl_magics.runtime import events as ev
from ddl_magics.store import owner, run_record
from ddl_magics.store.files import write_atomically

#: Longest line of events that is read as one line.
MAX_LINE_BYTES = 4 * 2**20


class RunInUse(Exception):
    """The run, or the search, has not ended, and a process owns it."""


class OwnedFolder:
    """The folder of a run or a search, for its owner and for readers."""

    #: What the folder holds, in messages.
    kind = "run"

    def __init__(self, path: Path) -> None:
        self.path = path

    def heartbeat(self) -> None:
        """Write that this process, which owns the folder, is alive.

        Raises:
            RunInUse: another process has become the owner.
        """
        with self._locked():  # a take-over between reading and writing would be undone
            if self._owner() and not self._is_ours():
                raise self._in_use()
            self._claim()

    def has_live_owner(self) -> bool:
        """Whether the process that owns the folder is alive."""
        return owner.alive(self._owner(), self.path / "owner.json")

    def owned_by(self, process: Mapping[str, Any]) -> bool:
        """Whether a process is the owner, or was the last one: as `owner.process` gives it."""
        return owner.is_process(self._owner(), process)

    def request(self, name: str) -> None:
        """Leave a request for the owner; "stop" is the only one so far."""
        control = self.path / "control"
        control.mkdir(exist_ok=True)
        (control / name).touch()

    def requested(self, name: str) -> bool:
        return (self.path / "control" / name).exists()

    def _owner(self) -> dict[str, Any]:
        return read_object(self.path / "owner.json")

    def _is_ours(self) -> bool:
        return owner.is_this_process(self._owner())

    def _claim(self) -> None:
        write_atomically(self.path / "owner.json", [json.dumps(owner.this_process()).encode()], lasting=False)

    def _lost_at(self) -> float | None:
        """Time of the dead owner's last heartbeat."""
        return run_record.moment(self._owner().get("heartbeat"))

    def _in_use(self) -> RunInUse:
        return RunInUse(f"{self.kind} {self.path.name} is followed by another process")

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Holds the folder's file lock: one process on this machine at a time changes its owner or labels."""
        with open(self.path / "lock", "ab") as file:
            # Some network file systems have no locks. The blocks take milliseconds, so a clash is unlikely.
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
            yield


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file. A line longer than `MAX_LINE_BYTES`, which is not an event, is split."""
    return iter(lambda: file.readline(MAX_LINE_BYTES), b"")


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if there is none."""
    try:
        return read_to_change(path)
    except OSError:
        return {}


def read_to_change(path: Path) -> dict[str, Any]:
    """As `read_object`, for an object to write back: raises OSError if the file exists and cannot be read."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(value, dict):
        return {}
    return ev.encodable(value) if b"\\ud" in data else value
