"""Packs a history into messages for a page: a full message first, then updates of bounded size.

Each part of an update has a cap, and what does not fit goes into the next update. So the size of an update is bounded,
whatever the length of the run and the number of its workers.
"""

import json
from typing import Any, NamedTuple

import numpy as np

from .history import History
from .loglines import Line
from .next_step import Reach, next_step
from .series import POINTS, single
from .workers import COLUMNS

#: Caps of the parts of an update, which is smaller than 20 kB in all: bytes, rows, `WorkerInfo`s, bytes.
SERIES_BYTES = 6_000
MAX_ROWS = 80
MAX_WORKERS = 12
LOG_BYTES = 3_000

#: An update with a failure has no other parts, so that more of the traceback fits.
TRACEBACK_BYTES = 12_000
MESSAGE_BYTES = 1_000

#: Cap of the log lines in a full message.
FULL_LOG_BYTES = 48_000

_POINT_BYTES = 8
_KEY_BYTES = 40
_WORKER_BYTES = 200
_LINE_BYTES = 80
assert POINTS * _POINT_BYTES + _KEY_BYTES <= SERIES_BYTES, "a series must fit in an update"


class Packed(NamedTuple):
    """A `Message` of `schema.py` with its two buffers; `has_more`: some changes are left for the next message."""

    message: dict[str, Any]
    buffers: list[bytes]
    has_more: bool

    @property
    def size(self) -> int:
        """Size in bytes, without the envelope that Jupyter adds."""
        return _size(self.message) + sum(map(len, self.buffers))


class Packer:
    """Makes the messages about one run, and remembers what the pages have been sent.

    Not thread-safe; `history` must not change while a message is packed.

    Attributes:
        info: `RunInfo` of `schema.py`.
        number: number of the newest message.
    """

    def __init__(self, history: History, info: dict[str, Any], reach: Reach | None = None) -> None:
        self.history = history
        self.info = info
        self._reach = reach or Reach()
        self.number = 0
        self._has_more = False
        self._reset()

    def _reset(self) -> None:
        # What the pages have received. Of a series: generation, version, number of points.
        self._series: dict[str, tuple[int, int, int]] = {}
        self._sent_values: dict[str, Any] = {}
        self._workers: dict[int, dict[str, Any]] = {}
        self._rows: dict[int, bytes] = {}
        self._lines = 0

    def full(self, now: float, last_seen: float | None) -> Packed:
        """A message with everything.

        Args:
            now: the kernel's clock, in seconds since the epoch.
            last_seen: when the newest events arrived, in seconds since the epoch.
        """
        self._reset()
        return self._pack({"full": True, "run": self.info}, now, last_seen, complete=True)

    def update(self, now: float, last_seen: float | None) -> Packed:
        """A message with the changes since the last one. The arguments are those of `full`."""
        return self._pack({"full": False}, now, last_seen, complete=False)

    def estimated_size(self) -> int:
        """The approximate size of `full()` in bytes."""
        history = self.history
        points = sum(map(len, history.series.values()))
        return points * _POINT_BYTES + len(history.workers) * _WORKER_BYTES + history.logs.line_count * _LINE_BYTES

    def _pack(self, message: dict[str, Any], now: float, last_seen: float | None, complete: bool) -> Packed:
        self.number += 1
        self._has_more = False
        message.update(n=self.number, now=now, series=[], rows=0, logs=[], dropped=0)
        self._put_if_changed(message, "state", self._state())
        self._put_if_changed(message, "progress", self._progress(last_seen))
        if not complete and message.get("state", {}).get("failure"):
            return Packed(message, [b"", b""], has_more=True)
        self._put_if_changed(message, "latest", {name: _round(value) for name, value in self.history.latest.items()})
        if self.history.monitor is not None:
            self._put_if_changed(message, "monitor", self.history.monitor)
        self._put_workers(message, None if complete else MAX_WORKERS)
        points = self._put_series(message, None if complete else SERIES_BYTES)
        rows = self._put_rows(message, None if complete else MAX_ROWS)
        self._put_logs(message, FULL_LOG_BYTES if complete else LOG_BYTES)
        return Packed(message, [points, rows], self._has_more)

    def _put_if_changed(self, message: dict[str, Any], name: str, value: Any) -> None:
        if self._sent_values.get(name) != value:
            self._sent_values[name] = value
            message[name] = value

    def _state(self) -> dict[str, Any]:
        history = self.history
        state = dict(
            history.state,
            fetching=history.fetching,
            executors=history.executors,
            created=history.created,
            started=history.started,
            ended=history.ended,
            next=next_step(history, self.info, self._reach),
        )
        state["message"] = _truncate(state["message"])
        failure = state["failure"]
        if failure:
            traceback = failure["traceback"].encode(errors="replace")[-TRACEBACK_BYTES:].decode(errors="ignore")
            names = {name: _truncate(failure[name], 100) for name in ("host", "kind")}
            state["failure"] = dict(failure, message=_truncate(failure["message"]), traceback=traceback, **names)
        return state

    def _progress(self, last_seen: float | None) -> dict[str, Any]:
        history, progress, end = self.history, self.history.progress, self.history.pace.end()
        return {
            "fit": progress.fit,
            "epoch": progress.epoch,
            "epochs": progress.epochs,
            "step": progress.step,
            "steps": progress.steps,
            "fraction": round(progress.fraction(), 5),
            "end": None if end is None else round(end, 1),
            "last_seen": last_seen,
            "rate": _round(history.rate),
            "peak": _round(history.peak),
        }

    def _put_workers(self, message: dict[str, Any], limit: int | None) -> None:
        changed: list[dict[str, Any]] = []
        for rank, worker in sorted(self.history.workers.items()):
            info = worker.info()
            info["message"] = _truncate(info["message"], 100)
            if self._workers.get(rank) == info:
                continue
            if len(changed) == limit:
                self._has_more = True
                break
            self._workers[rank] = info
            changed.append(info)
        if changed:
            message["workers"] = changed

    def _put_series(self, message: dict[str, Any], room: int | None) -> bytes:
        changed = []
        for key, series in self.history.series.items():
            generation, version, length = self._series.get(key, (series.generation, -1, 0))
            if version != series.version:
                # The last point that the page has may have changed since.
                start = max(length - 1, 0) if generation == series.generation else 0
                changed.append((len(series) - start, start, key))
        buffers = []
        # Short tails first: a series that has to be sent as a whole waits for a message with enough room.
        for points, start, key in sorted(changed):
            if room is not None:
                room -= points * _POINT_BYTES + _KEY_BYTES
                if room < 0:
                    self._has_more = True
                    break
            series = self.history.series[key]
            self._series[key] = (series.generation, series.version, len(series))
            message["series"].append([key, start, points])
            buffers.append(single([series.x[start:], series.y[start:]]).T.tobytes())
        return b"".join(buffers)

    def _put_rows(self, message: dict[str, Any], limit: int | None) -> bytes:
        # `_rows` is in the order of sending, oldest first.
        send_order = {rank: position for position, rank in enumerate(self._rows)}
        changed: list[bytes] = []
        for rank in sorted(self.history.workers, key=lambda rank: send_order.get(rank, -1)):
            row = single(self.history.workers[rank].numbers()).tobytes()
            if self._rows.get(rank) == row:
                continue
            if len(changed) == limit:
                self._has_more = True
                break
            self._rows.pop(rank, None)
            self._rows[rank] = row
            changed.append(row)
        message["rows"] = len(changed)
        return b"".join(changed)

    def _put_logs(self, message: dict[str, Any], room: int) -> None:
        logs = self.history.logs
        new = logs.added - self._lines
        self._lines = logs.added
        newest: list[Line] = []
        for line in reversed(logs.newest(new)):
            room -= _size(line)
            if room < 0:
                break
            newest.append(line)
        message["logs"] = [list(line) for line in reversed(newest)]
        message["dropped"] = new - len(newest)


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode(errors="replace"))


def _truncate(text: str, limit: int = MESSAGE_BYTES) -> str:
    encoded = text.encode(errors="replace")
    return encoded.decode() if len(encoded) <= limit else encoded[:limit].decode(errors="ignore") + "…"


def _round(value: Any) -> Any:
    return None if value is None else float(f"{value:.6g}")


def unpack_rows(buffer: bytes) -> np.ndarray:
    """The rows in the second buffer of a message, as float32 of shape (rows, `COLUMNS`)."""
    return np.frombuffer(buffer, dtype="<f4").reshape(-1, len(COLUMNS))
