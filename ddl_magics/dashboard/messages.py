"""Packs a history into messages for a page: everything once, and then what changed, never more than a budget allows.

The bound of an update holds by construction, whatever the length of the run and the number of its workers: each part
of a message has a cap, and what does not fit goes with the next one.
"""

import json
from typing import Any, NamedTuple

import numpy as np

from .history import History
from .loglines import Line
from .series import POINTS
from .workers import COLUMNS

#: Caps of the parts of an update, in bytes or in number; together, with the rest of a message, they stay below 20 kB.
SERIES_BYTES = 6_000
ROWS = 80
FACTS = 12
LOG_BYTES = 3_000

#: A failure goes first and alone, so that more of its traceback fits.
TRACEBACK_BYTES = 12_000
MESSAGE_BYTES = 1_000

#: Cap of the log lines in the message that a page begins with.
FULL_LOG_BYTES = 48_000

_POINT_BYTES = 8
_KEY_BYTES = 40
_WORKER_BYTES = 200
_LINE_BYTES = 80
assert POINTS * _POINT_BYTES + _KEY_BYTES <= SERIES_BYTES, "a series must fit in an update"


class Packed(NamedTuple):
    """A message of `schema.MESSAGE` and its two buffers; `rest` says that more waits for the next message."""

    message: dict[str, Any]
    buffers: list[bytes]
    rest: bool

    @property
    def size(self) -> int:
        """Bytes, without the envelope that Jupyter adds."""
        return _size(self.message) + sum(map(len, self.buffers))


class Packer:
    """What the pages that watch a run know of it. Not thread-safe; `history` must not change while it packs."""

    def __init__(self, history: History, facts: dict[str, Any]) -> None:
        self.history = history
        self.facts = facts
        self.number = 0
        self._rest = False
        self._forget()

    def _forget(self) -> None:
        self._series: dict[str, tuple[int, int, int]] = {}
        self._parts: dict[str, Any] = {}
        self._workers: dict[int, dict[str, Any]] = {}
        self._rows: dict[int, bytes] = {}
        self._lines = 0

    def full(self, now: float, heard: float | None) -> Packed:
        """Everything; updates go on from here."""
        self._forget()
        return self._pack({"full": True, "run": self.facts}, now, heard, full=True)

    def update(self, now: float, heard: float | None) -> Packed:
        """What changed since the last message."""
        return self._pack({"full": False}, now, heard, full=False)

    def weight(self) -> int:
        """About the bytes of `full()`, without making it."""
        history = self.history
        points = sum(map(len, history.series.values()))
        return points * _POINT_BYTES + len(history.workers) * _WORKER_BYTES + history.logs.kept * _LINE_BYTES

    def _pack(self, message: dict[str, Any], now: float, heard: float | None, full: bool) -> Packed:
        self.number += 1
        self._rest = False
        message.update(n=self.number, now=now, series=[], rows=0, logs=[], dropped=0)
        self._put(message, "state", self._state())
        self._put(message, "progress", self._progress(heard))
        if not full and message.get("state", {}).get("failure"):
            return Packed(message, [b"", b""], rest=True)
        self._put(message, "latest", {name: _digits(value) for name, value in self.history.latest.items()})
        self._put_workers(message, None if full else FACTS)
        points = self._put_series(message, None if full else SERIES_BYTES)
        rows = self._put_rows(message, None if full else ROWS)
        self._put_logs(message, FULL_LOG_BYTES if full else LOG_BYTES)
        return Packed(message, [points, rows], self._rest)

    def _put(self, message: dict[str, Any], name: str, value: Any) -> None:
        if self._parts.get(name) != value:
            self._parts[name] = value
            message[name] = value

    def _state(self) -> dict[str, Any]:
        history = self.history
        state = dict(
            history.state,
            fetching=history.fetching,
            created=history.created,
            started=history.started,
            ended=history.ended,
        )
        state["message"] = _cut(state["message"])
        failure = state["failure"]
        if failure:
            traceback = failure["traceback"].encode()[-TRACEBACK_BYTES:].decode(errors="ignore")
            state["failure"] = dict(failure, message=_cut(failure["message"]), traceback=traceback)
        return state

    def _progress(self, heard: float | None) -> dict[str, Any]:
        history, progress = self.history, self.history.progress
        return {
            "fit": progress.fit,
            "epoch": progress.epoch,
            "epochs": progress.epochs,
            "step": progress.step,
            "steps": progress.steps,
            "fraction": round(progress.fraction(), 5),
            "remaining": _digits(history.pace.remaining()),
            "heard": heard,
            "rate": _digits(history.rate),
            "peak": _digits(history.peak),
        }

    def _put_workers(self, message: dict[str, Any], most: int | None) -> None:
        changed: list[dict[str, Any]] = []
        for rank, worker in sorted(self.history.workers.items()):
            facts = worker.facts()
            facts["message"] = _cut(facts["message"], 100)
            if self._workers.get(rank) == facts:
                continue
            if len(changed) == most:
                self._rest = True
                break
            self._workers[rank] = facts
            changed.append(facts)
        if changed:
            message["workers"] = changed

    def _put_series(self, message: dict[str, Any], room: int | None) -> bytes:
        waiting = []
        for key, series in self.history.series.items():
            generation, version, length = self._series.get(key, (series.generation, -1, 0))
            if version != series.version:
                # The last point that the page has may have taken in more since.
                start = max(length - 1, 0) if generation == series.generation else 0
                waiting.append((len(series) - start, start, key))
        buffers = []
        # Short tails first: a line that was thinned out and must be sent as a whole waits for a message with room.
        for points, start, key in sorted(waiting):
            if room is not None:
                room -= points * _POINT_BYTES + _KEY_BYTES
                if room < 0:
                    self._rest = True
                    break
            series = self.history.series[key]
            self._series[key] = (series.generation, series.version, len(series))
            message["series"].append([key, start, points])
            buffers.append(np.array([series.x[start:], series.y[start:]], dtype="<f4").T.tobytes())
        return b"".join(buffers)

    def _put_rows(self, message: dict[str, Any], most: int | None) -> bytes:
        # `_rows` is in the order of sending, so that those whose turn did not come are first the next time.
        turns = {rank: turn for turn, rank in enumerate(self._rows)}
        changed: list[bytes] = []
        for rank in sorted(self.history.workers, key=lambda rank: turns.get(rank, -1)):
            row = np.array(self.history.workers[rank].numbers(), dtype="<f4").tobytes()
            if self._rows.get(rank) == row:
                continue
            if len(changed) == most:
                self._rest = True
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
        kept: list[Line] = []
        for line in reversed(logs.newest(new)):
            room -= _size(line)
            if room < 0:
                break
            kept.append(line)
        message["logs"] = [list(line) for line in reversed(kept)]
        message["dropped"] = new - len(kept)


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode())


def _cut(text: str, most: int = MESSAGE_BYTES) -> str:
    return text if len(text.encode()) <= most else text.encode()[:most].decode(errors="ignore") + "…"


def _digits(value: Any) -> Any:
    return None if value is None else float(f"{value:.6g}")


def unpack_rows(buffer: bytes) -> np.ndarray:
    """The rows of a message as an array of (rows, columns), as the page reads them."""
    return np.frombuffer(buffer, dtype="<f4").reshape(-1, len(COLUMNS))
