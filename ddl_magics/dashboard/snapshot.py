"""Serializes a history as JSON, so that it can be continued without reading its events again.

The attributes of all objects are written, so that a new attribute needs no change here. Only the version that wrote a
snapshot reads it; any other version reads the events.
"""

import json
from collections import deque
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from .._version import __version__
from .history import History
from .loglines import Line
from .series import Series
from .workers import Worker

_EMPTY = History(1)
#: A new object of each class that a history contains; a stored one must have the same attributes.
_NEW: dict[str, Any] = {
    type(prototype).__name__: prototype
    for prototype in (_EMPTY, *vars(_EMPTY).values(), Series(), Worker(0))
    if type(prototype).__module__.startswith(__package__)
}


@dataclass
class Snapshot:
    """The history of all events up to the sequence number `seq`; `last_seen` is the time of the newest of them."""

    history: History
    seq: int = 0
    last_seen: float | None = None


def dump(snapshot: Snapshot) -> bytes:
    """The snapshot: a checksum, as a changed digit would be a wrong chart, and JSON in the next line."""
    stored = {
        "version": __version__,
        "seq": snapshot.seq,
        "last_seen": snapshot.last_seen,
        "history": _serialized(snapshot.history),
    }
    data = json.dumps(stored, separators=(",", ":")).encode()
    return b"%08x\n" % crc32(data) + data


def load(data: bytes) -> Snapshot | None:
    """The snapshot that `dump` wrote; None if another version wrote it, or if it is damaged."""
    checksum, _, data = data.partition(b"\n")
    if checksum != b"%08x" % crc32(data):
        return None
    try:
        stored = json.loads(data)
        if stored["version"] != __version__:
            return None
        history = _restored(stored["history"])
        return Snapshot(history, int(stored["seq"]), stored["last_seen"]) if isinstance(history, History) else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _serialized(value: Any) -> Any:
    """A scalar as it is, anything else as [type, members]."""
    if isinstance(value, (str, int, float, type(None))):
        return value
    if isinstance(value, dict):
        return ["dict", [[_serialized(key), _serialized(member)] for key, member in value.items()]]
    if isinstance(value, deque):
        return ["deque", [value.maxlen, *map(_serialized, value)]]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, [_serialized(member) for member in value]]
    return [type(value).__name__, {name: _serialized(member) for name, member in vars(value).items()}]


def _restored(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    kind, content = value
    if kind == "dict":
        return {_restored(key): _restored(member) for key, member in content}
    if kind == "deque":
        return deque(map(_restored, content[1:]), maxlen=content[0])
    if kind in ("list", "tuple"):
        items = [_restored(member) for member in content]
        return items if kind == "list" else tuple(items)
    if kind == "Line":
        return Line(*content)
    new = _NEW[kind]
    if content.keys() != vars(new).keys():
        raise ValueError(f"another version wrote this {kind}")
    restored = object.__new__(type(new))
    vars(restored).update({name: _restored(member) for name, member in content.items()})
    return restored
