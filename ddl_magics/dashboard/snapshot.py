"""A history as JSON, from which it goes on with the events that follow: nobody has to read those before it again.

What a history is made of is written by its attributes, so that a new one needs no change here. A snapshot is read by
the version that has written it alone: any other reads the events.
"""

import json
from collections import deque
from dataclasses import dataclass
from typing import Any

from .._version import __version__
from .history import History
from .loglines import Line
from .series import Series
from .workers import Worker

_EMPTY = History(1)
#: One of each class that a history holds, new, as the measure of what a stored one must have.
_NEW: dict[str, Any] = {
    type(one).__name__: one
    for one in (_EMPTY, *vars(_EMPTY).values(), Series(), Worker(0))
    if type(one).__module__.startswith(__package__)
}


@dataclass
class Snapshot:
    """A history of all events up to number `seq`; the newest of them is of the time `heard`."""

    history: History
    seq: int = 0
    heard: float | None = None


def dump(snapshot: Snapshot) -> bytes:
    """The snapshot as JSON."""
    stored = {"version": __version__, "seq": snapshot.seq, "heard": snapshot.heard, "history": _plain(snapshot.history)}
    return json.dumps(stored, separators=(",", ":")).encode()


def load(data: bytes) -> Snapshot | None:
    """What `dump` has written, or None where another version has, or it is damaged."""
    try:
        stored = json.loads(data)
        if stored["version"] != __version__:
            return None
        history = _made(stored["history"])
        return Snapshot(history, int(stored["seq"]), stored["heard"]) if isinstance(history, History) else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _plain(value: Any) -> Any:
    """Anything but a scalar as [kind, parts]."""
    if isinstance(value, (str, int, float, type(None))):
        return value
    if isinstance(value, dict):
        return ["dict", [[_plain(key), _plain(part)] for key, part in value.items()]]
    if isinstance(value, deque):
        return ["deque", [value.maxlen, *map(_plain, value)]]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, [_plain(part) for part in value]]
    return [type(value).__name__, {name: _plain(part) for name, part in vars(value).items()}]


def _made(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    kind, parts = value
    if kind == "dict":
        return {_made(key): _made(part) for key, part in parts}
    if kind == "deque":
        return deque(map(_made, parts[1:]), maxlen=parts[0])
    if kind in ("list", "tuple"):
        made = [_made(part) for part in parts]
        return made if kind == "list" else tuple(made)
    if kind == "Line":
        return Line(*parts)
    new = _NEW[kind]
    if parts.keys() != vars(new).keys():
        raise ValueError(f"another version has written this {kind}")
    made = object.__new__(type(new))
    vars(made).update({name: _made(part) for name, part in parts.items()})
    return made
