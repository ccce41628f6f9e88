"""Messages about searches for the pages that draw them: the changes since the page's version.

The server stores nothing about a page: its version tells what it has. A view is read again if its file has changed.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from ddl_magics.dashboard.static import search_block
from ddl_magics.runtime import events as ev
from ddl_magics.store import SearchFolder, SearchRecord
from ddl_magics.store.files import stamp

#: Number of views that are kept in memory.
MAX_VIEWS = 16


class SearchViews:
    """The stored views of one server. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._views: OrderedDict[str, tuple[Any, dict[str, Any] | None]] = OrderedDict()

    def update(self, record: SearchRecord, version: str) -> dict[str, Any] | None:
        """`SearchUpdate` of `openapi.yaml`: the changes since `version`, or everything; None if nothing has changed.

        Raises:
            LookupError: no view is stored, or it is damaged.
        """
        view = self._view(record)
        if view is None:
            raise LookupError(f"the trials of {record.name} are not stored yet, or cannot be read")
        newest = f"{view['writer']}-{view['n']}-{record.state}"
        if version == newest:
            return None
        writer, _, number_and_state = version.partition("-")
        number = number_and_state.partition("-")[0]
        page_number = int(number) if writer == view["writer"] and number.isdecimal() and len(number) < 16 else -1
        trials = [
            _trial_view(trial, record)
            for trial in view["trials"]
            if trial["n"] > page_number or record.state == ev.LOST
        ]
        message = {
            "n": view["n"],
            "full": page_number < 0,
            "now": time.time(),
            "state": _state(view["state"], record),
            "trials": trials,
            **({"info": view["info"]} if page_number < 0 else {}),
        }
        return {"version": newest, "message": message, "live": not record.over}

    def block(self, record: SearchRecord) -> dict[str, Any]:
        """`Block` of `openapi.yaml`: the text that the kernel has stored with the view.

        Raises:
            LookupError: none is stored, or it is damaged.
        """
        view = self._view(record)
        text = None if view is None else view.get("text")
        if view is None or not isinstance(text, str):
            raise LookupError(f"the text of {record.name} is not stored yet, or cannot be read")
        state = _state(view["state"], record)
        if state != view["state"]:  # the kernel could not store the end
            before, now = f"{record.name} {view['state'].get('state')}", f"{record.name} {record.state}"
            text = "\n\n".join(filter(None, (text.replace(before, now, 1), state["message"])))
        return {"data": search_block(record.id, record.state, text), "behind": 0}

    def _view(self, record: SearchRecord) -> dict[str, Any] | None:
        folder = SearchFolder(record.folder)
        view_stamp = stamp(folder.view_path)
        with self._lock:
            cached = self._views.get(record.id)
            if cached is None or cached[0] != view_stamp:
                cached = self._views[record.id] = view_stamp, stored_view(folder)
            self._views.move_to_end(record.id)
            while len(self._views) > MAX_VIEWS:
                self._views.popitem(last=False)
            return cached[1]


def stored_view(folder: SearchFolder) -> dict[str, Any] | None:
    """The stored view; None if there is none, or it is damaged."""
    view = folder.view()
    types = {"writer": str, "n": int, "info": dict, "state": dict, "trials": list}
    if any(type(view.get(name)) is not kind for name, kind in types.items()):
        return None
    if not isinstance(view["state"].get("state", ""), str):
        return None
    if not all(isinstance(trial, dict) and type(trial.get("n")) is int for trial in view["trials"]):
        return None
    return view


def _state(stored: Mapping[str, Any], record: SearchRecord) -> dict[str, Any]:
    """`SearchState`. A kernel that died, or whose disk was full, has not stored the end."""
    if not record.over or stored.get("state") in ev.TERMINAL - {ev.LOST}:
        return dict(stored)
    lost = f"its kernel is gone: %ddl attach {record.name} continues it"
    message = lost if record.state == ev.LOST else record.message
    seconds = (record.ended or record.created) - record.created
    return {**stored, "state": record.state, "message": message, "seconds": seconds, "left": None}


def _trial_view(stored: Mapping[str, Any], record: SearchRecord) -> dict[str, Any]:
    """`TrialView`. No kernel follows the trials of a LOST search."""
    trial = {name: value for name, value in stored.items() if name != "n"}
    if record.state == ev.LOST and trial.get("state") == "training":
        trial["state"] = "waiting"
    return trial
