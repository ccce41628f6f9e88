"""The log of a served model: a JSON line for each request, in a folder that Spark can read as a stream.

A file grows under a hidden name, which Spark does not read, and gets its final name when it is complete: after a
minute, or at 16 MB. Its server holds a lock on it, which ends with the process: the next server completes the files
that nobody holds. Numbers of processes do not tell that, as containers begin with the same ones.

The server's environment imports this module: it needs only the standard library.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import queue
import re
import socket
import stat
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypedDict
from urllib.parse import urlsplit

from ddl_magics.serving.kafka_writer import KafkaWriter

#: A file is complete at this size or age, which is looked at this often.
ROTATE_BYTES = 16 * 2**20
ROTATE_SECONDS = 60.0
FLUSH_SECONDS = 1.0
#: Queued records. Further ones are dropped and counted: no request waits for the log.
MAX_WAITING = 20_000
#: Total array elements of the queued records, and 8 bytes of their texts each: some hundred megabytes.
MAX_WAITING_VALUES = 50_000_000
#: Records per flush.
MOST_AT_ONCE = 1000
#: Where the file system has no locks, an unchanged file is nobody's after this time: a server's is complete before.
ORPHAN_SECONDS = 10 * ROTATE_SECONDS
#: How long a server that ends waits for its queued records.
CLOSE_SECONDS = 10.0

#: Name of a growing file of `FolderLog`, with the id of the server's process.
_GROWING = re.compile(r"\.(?P<name>.+-(?P<pid>[0-9]+)-[0-9]+\.jsonl)")


class Record(TypedDict):
    """One request. Values may be arrays: `encode` converts them to nested lists."""

    time: float  # of the request's arrival, in seconds since the epoch
    id: str
    model: str
    version: str
    rows: int
    inputs: dict[str, Any] | None  # name -> nested lists; None where inputs are not logged
    outputs: dict[str, Any] | None  # None for a request that failed
    latency: float  # seconds
    error: str | None


def open_log(uri: str) -> RequestLog:
    """The log at a folder of this machine, or in a topic: kafka://HOST:PORT/TOPIC.

    Raises:
        ValueError, OSError: one line; it cannot be written there.
    """
    url = urlsplit(uri)
    if url.scheme == "kafka":
        return KafkaLog(KafkaWriter(uri))
    if url.scheme not in ("", "file"):
        raise ValueError(f"a log is a folder of this machine or a topic of Kafka, and not in {url.scheme}:")
    return FolderLog(Path(url.path if url.scheme else uri))


def encode(record: Record) -> bytes:
    """A record as a line of JSON, with null for numbers that are not finite."""
    try:
        text = json.dumps(record, default=_as_lists, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(_finite(record), separators=(",", ":"))
    return text.encode() + b"\n"


def _as_lists(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value.tolist()


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(element) for name, element in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(element) for element in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str | int | None):
        return value
    return _finite(_as_lists(value))


class RequestLog:
    """Where a server logs its requests: a thread writes them. One thread calls it; no method but `close` blocks.

    A subclass has `_write(record)`; `_settle()`, called once what has arrived is written, or after `FLUSH_SECONDS`; and
    `_finish()`. All run in the thread.
    """

    def __init__(self) -> None:
        self._dropped = 0
        self._waiting: queue.Queue[Record | None] = queue.Queue(MAX_WAITING)
        # Each is counted by one thread alone.
        self._values_taken = self._values_written = 0
        self._thread = threading.Thread(target=self._run, name="request log", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Records that could not be written."""
        return self._dropped

    def write(self, record: Record) -> None:
        """Take a record, to write it soon."""
        values = _values(record)
        if self._values_taken + values - self._values_written > MAX_WAITING_VALUES:
            self._dropped += 1
            return
        try:
            self._waiting.put_nowait(record)
            self._values_taken += values
        except queue.Full:
            self._dropped += 1

    def close(self) -> None:
        """Write what is waiting, within `CLOSE_SECONDS`."""
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=CLOSE_SECONDS)
        self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        closed = False
        while not closed:
            records, closed = self._arrived()
            self._write_all(records)
            self._values_written += sum(map(_values, records))
        self._finish()

    def _write_all(self, records: Iterable[Record]) -> None:
        problem: Exception | None = None  # a full disk, a broker that is gone: the model is served all the same
        for record in records:
            try:
                self._write(record)
            except Exception as error:
                self._dropped += 1
                problem = error
        try:
            self._settle()
        except Exception as error:
            problem = error
        if problem is not None:
            print(f"the log of requests cannot be written: {problem}", flush=True)

    def _arrived(self) -> tuple[list[Record], bool]:
        """(the records that wait, whether there will be no more); waits for the first of them."""
        records: list[Record] = []
        with contextlib.suppress(queue.Empty):
            record = self._waiting.get(timeout=FLUSH_SECONDS)
            while record is not None:
                records.append(record)
                if len(records) == MOST_AT_ONCE:
                    return records, False
                record = self._waiting.get_nowait()
            return records, True
        return records, False

    def _write(self, record: Record) -> None:
        raise NotImplementedError

    def _settle(self) -> None:
        raise NotImplementedError

    def _finish(self) -> None:
        raise NotImplementedError


def _values(record: Record) -> int:
    """How much memory the arrays of a record take, in values."""
    tensors = (record["inputs"], record["outputs"])
    return sum(_size(array) for arrays in tensors if arrays for array in arrays.values())


def _size(array: Any) -> int:
    """The elements of an array, or its bytes / 8 if that is more, as with texts."""
    size = int(getattr(array, "size", 1))
    if str(getattr(array, "dtype", "")) != "object":
        return max(size, int(getattr(array, "nbytes", 0)) // 8)
    return size + sum(len(text) for text in array.flat if isinstance(text, (bytes, str))) // 8


class FolderLog(RequestLog):
    """A log of files `MODEL-VERSION-HOST-PID-N.jsonl` in a folder of this machine."""

    def __init__(self, folder: Path, rotate_seconds: float = ROTATE_SECONDS) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        complete_orphaned_files(folder)
        self._folder, self._rotate_seconds = folder, rotate_seconds
        self._files: dict[tuple[str, str], _GrowingFile] = {}
        self._number = 0
        super().__init__()

    def _write(self, record: Record) -> None:
        self._file(record["model"], record["version"]).append(encode(record))

    def _settle(self) -> None:
        for key, file in list(self._files.items()):
            if file.size >= ROTATE_BYTES or time.monotonic() - file.since >= self._rotate_seconds:
                self._files.pop(key).complete()

    def _finish(self) -> None:
        for file in self._files.values():
            file.complete()

    def _file(self, model: str, version: str) -> _GrowingFile:
        file = self._files.get((model, version))
        if file is not None and file.size < ROTATE_BYTES:
            return file
        if file is not None:
            file.complete()
        file = self._files[model, version] = self._new_file(model, version)
        return file

    def _new_file(self, model: str, version: str) -> _GrowingFile:
        while True:
            self._number += 1
            path = self._folder / f"{model}-{version}-{socket.gethostname()}-{os.getpid()}-{self._number}.jsonl"
            if not path.exists():  # as that of an earlier process with this number
                with contextlib.suppress(FileExistsError):
                    return _GrowingFile(path)


class KafkaLog(RequestLog):
    """A topic of Kafka: the record's JSON as value, the request's id as key."""

    def __init__(self, writer: KafkaWriter) -> None:
        self._writer = writer
        super().__init__()

    @property
    def dropped(self) -> int:
        """Records that could not be written."""
        return self._dropped + self._writer.dropped

    def _write(self, record: Record) -> None:
        self._writer.send(record["id"], encode(record)[:-1])

    def _settle(self) -> None:
        self._writer.flush(0)

    def _finish(self) -> None:
        self._dropped += self._writer.flush(CLOSE_SECONDS)


class _GrowingFile:
    """A file that has a dot before its name until it is complete. FileExistsError if another one grows there."""

    def __init__(self, path: Path) -> None:
        self._path, self._growing = path, path.with_name(f".{path.name}")
        self._file = self._growing.open("xb", buffering=0)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.size, self.since = 0, time.monotonic()

    def append(self, line: bytes) -> None:
        """OSError, and nothing of the line is in the file, where the disk has no room for it."""
        written = 0
        try:
            while written < len(line):
                written += self._file.write(line[written:])
        except OSError:
            self._file.truncate(self.size)
            self._file.seek(self.size)
            raise
        self.size += written

    def complete(self) -> None:
        os.rename(self._growing, self._path)  # while it is locked: nobody else completes it meanwhile
        self._file.close()


def complete_orphaned_files(folder: Path) -> None:
    """Give the files of this machine's ended servers their final names, without a last line that was cut off."""
    for path in folder.glob(".*.jsonl"):
        match = _GROWING.fullmatch(path.name)
        if match is not None and _of_this_host(match["name"], match["pid"]):
            with contextlib.suppress(OSError):  # it was completed meanwhile, or is another user's
                _complete_orphan(path, folder / match["name"])


def _complete_orphan(path: Path, target: Path) -> None:
    """Complete a file that no process holds. The folder may be shared: another user may put anything there.

    Raises:
        OSError: it is held, or cannot be completed.
    """
    opened = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(opened, "r+b") as file:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        except OSError:  # a file system without locks
            if time.time() - status.st_mtime < ORPHAN_SECONDS:
                return
        content = file.read()
        complete_lines = content[: content.rfind(b"\n") + 1]
        if not complete_lines:
            path.unlink()
        elif not target.exists():
            file.truncate(len(complete_lines))
            os.rename(path, target)


def _of_this_host(name: str, pid: str) -> bool:
    """Whether this host's name is in the name of a file. Names of hosts may have hyphens, as those of models."""
    return name.rpartition(f"-{pid}-")[0].endswith(f"-{socket.gethostname()}")
