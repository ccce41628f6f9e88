"""The live view of a search: a widget that draws in the page, fed with what has changed from the search's thread."""

from __future__ import annotations

import contextlib
import threading
import time

import traitlets

from ddl_magics.dashboard.live import HEARTBEAT_SECONDS, NOT_BUILT, LiveWidget, built, start_heartbeats
from ddl_magics.runtime import events as ev
from ddl_magics.search.messages import Message, Packer
from ddl_magics.search.search import Search
from ddl_magics.search.view import SearchView

#: A kernel that executes a cell does not receive the page's request. Until one has arrived, each message is a full one
#: while the search has no more trials than this, so that a page whose script was still loading misses nothing.
UNREQUESTED_TRIALS = 50


class SearchWidget(LiveWidget):
    """The widget in the page. Apart from the search's id it has no state: what it draws comes as messages."""

    _esm = built("search.js", NOT_BUILT)
    _css = built("search.css", "")
    search = traitlets.Unicode().tag(sync=True)


class LiveSearch:
    """The live view of one search, from now on: display `widget`."""

    def __init__(self, search: Search, waiting: bool = False) -> None:
        """waiting: the cell blocks until the search ends, so that the kernel receives no clicks."""
        self._search = search
        self._lock = threading.Lock()
        self._packer = Packer(waiting)
        self._requested = False
        self._view = search.view
        self._last_sent = 0.0
        self.widget = SearchWidget(search=search.id)
        self.widget.on_msg(self._receive)
        search.listen(self.show)
        start_heartbeats(self, "ddl-live-search")

    def show(self, view: SearchView) -> None:
        """Update the pages. Thread-safe."""
        with self._lock:
            self._view = view
            self._update()

    def heartbeat(self) -> bool:
        """Send a message if none was sent for `HEARTBEAT_SECONDS`. Returns False once the search has ended."""
        with self._lock:
            if time.monotonic() - self._last_sent >= HEARTBEAT_SECONDS:
                self._update()
            return self._view.state not in ev.TERMINAL

    def _update(self) -> None:
        unrequested = not self._requested and len(self._view.rows) <= UNREQUESTED_TRIALS
        pack = self._packer.full if unrequested else self._packer.update
        self._send(pack(self._view, time.time()))

    def _send(self, message: Message) -> None:
        self._last_sent = time.monotonic()
        self.widget.send({"type": "search", "search": message})

    def _receive(self, _widget: object, content: object, _buffers: object) -> None:
        if not isinstance(content, dict):
            return
        if content.get("type") == "hello":
            with self._lock:
                self._requested = True
                self._send(self._packer.full(self._view, time.time()))
        elif content.get("type") == "stop":
            self._search.request_stop()
        elif content.get("type") == "stop_trial" and isinstance(content.get("trial"), int):
            with contextlib.suppress(LookupError):  # it has ended meanwhile
                self._search.stop_trial(content["trial"])
