"""The view of a search in the store, which the panel draws: its server then needs no Optuna.

Each trial has the number of its last change, so that a server sends only what is newer than a page has.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from typing import Any

from ddl_magics.runtime import events as ev
from ddl_magics.search.messages import Packer
from ddl_magics.search.text import summary
from ddl_magics.search.view import SearchView
from ddl_magics.store import SearchFolder

#: Shortest time between two writes, in seconds and as a multiple of a write's duration: a thousand trials are 1 MB.
WRITE_SECONDS, WRITE_RATIO = 2.0, 50

#: Fields of the state whose change is written; the others are times.
_STATE = ("state", "message", "about", "front")


class StoredView:
    """Writes the view of one search; `show` listens to its scheduler."""

    def __init__(self, folder: SearchFolder) -> None:
        self._folder = folder
        self._packer = Packer(waiting=False)
        # A kernel that continues the search numbers its changes anew.
        self._writer = secrets.token_hex(4)
        self._trials: dict[int, dict[str, Any]] = {}
        self._info: dict[str, Any] = {}
        self._state: dict[str, Any] = {}
        self._changed = False
        self._next_write = 0.0

    def show(self, view: SearchView) -> None:
        """Write the search if it has changed and the last write is long enough ago; its end is always written."""
        over = view.state in ev.TERMINAL
        message = self._packer.update(view, time.time()) if self._info else self._packer.full(view, time.time())
        self._info = message.get("info", self._info)
        state, before = message["state"], self._state
        self._trials.update({trial["number"]: {**trial, "n": message["n"]} for trial in message["trials"]})
        self._state = state
        changed = [name for name in _STATE if state[name] != before.get(name)]
        self._changed = self._changed or bool(message["trials"] or changed)
        if self._changed and (over or time.monotonic() >= self._next_write):
            self._write(view, message["n"])

    def _write(self, view: SearchView, number: int) -> None:
        began = time.monotonic()
        trials = list(self._trials.values())
        # On a full disk the panel shows the search as it was.
        with contextlib.suppress(OSError):
            stored = {"writer": self._writer, "n": number, "info": self._info, "state": self._state, "trials": trials}
            self._folder.write_view({**stored, "text": summary(view)})
            self._folder.update({"progress": _progress(view)})
            self._changed = False
        written = time.monotonic()
        self._next_write = written + max(WRITE_SECONDS, WRITE_RATIO * (written - began))


def _progress(view: SearchView) -> dict[str, Any]:
    best = view.best
    return {
        "ended": view.ended_trials,
        **({} if best is None else {"best": best.value, "trial": best.number}),
        **({} if view.seconds_left is None else {"left": view.seconds_left}),
    }
