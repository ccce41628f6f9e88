"""The live view of a run: a widget that draws in the page, fed with small binary deltas from the run's thread.

The kernel keeps the run's history, thinned out to a bounded size. A page that opens, or reloads, asks for all of it;
from then on it gets what changed. Every message carries a number: a page that missed one asks again.
"""

import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from .history import History
from .messages import Packed, Packer

_STATIC = Path(__file__).parent / "static"

#: While no page has asked for the history (a blocked kernel hears nobody) small histories are sent whole, so that a
#: page whose script was still loading misses nothing.
UNASKED_BYTES = 10_000

#: The pages hear from the kernel at least this often while the run goes on; silence means that it is gone.
BEAT_SECONDS = 5.0

_NOT_BUILT = """export default { render({ el }) {
  el.textContent = "The script of the live view is missing: run `npm ci && npm run build`.";
} };"""


def _built(name: str, otherwise: str) -> str:
    path = _STATIC / name
    return path.read_text(encoding="utf-8") if path.exists() else otherwise


class RunWidget(anywidget.AnyWidget):
    """The widget in the page. It has no state of its own: what it draws comes as messages."""

    _esm = _built("widget.js", _NOT_BUILT)
    _css = _built("widget.css", "")
    run = traitlets.Unicode().tag(sync=True)


class LiveView:
    """Shows one run while it goes on: `feed` it the run's events, display `widget`.

    `on_stop` is called in a thread of its own when the reader clicks Stop. With `waiting` the cell waits for the run:
    clicks are not heard then, so the view names the notebook's stop button instead of showing one.
    """

    def __init__(
        self,
        run_id: str,
        name: str,
        strategy: str,
        workers: int,
        cluster: str,
        on_stop: Callable[[], object],
        waiting: bool = False,
    ) -> None:
        self._on_stop = on_stop
        self._lock = threading.Lock()
        self._history = History(workers)
        facts = {
            "id": run_id,
            "name": name,
            "strategy": strategy,
            "workers": workers,
            "cluster": cluster,
            "waiting": waiting,
        }
        self._packer = Packer(self._history, facts)
        self._heard: float | None = None
        self._asked = False
        self._told = time.monotonic()
        self.widget = RunWidget(run=run_id)
        self.widget.on_msg(self._receive)

        threading.Thread(target=_beat, args=(weakref.ref(self),), name="ddl-live-view", daemon=True).start()

    def feed(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Take over new events, in order, and tell the pages. Thread-safe; to be called about once a second."""
        events = list(events)
        with self._lock:
            if events:
                self._heard = time.time()
                self._history.feed(events)
            unasked = not self._asked and self._packer.weight() <= UNASKED_BYTES
            packed = self._send(self._packer.full if unasked else self._packer.update)
            # Nobody feeds a run that is over, so what did not fit follows at once.
            while packed.rest and self._history.over:
                packed = self._send(self._packer.update)

    def beat(self) -> bool:
        """Tell the pages that the kernel is there, if they have not heard from it; False when the run is over."""
        with self._lock:
            if time.monotonic() - self._told >= BEAT_SECONDS:
                self._send(self._packer.update)
            return not self._history.over

    def _send(self, pack: Callable[[float, float | None], Packed]) -> Packed:
        packed = pack(time.time(), self._heard)
        self._told = time.monotonic()
        self.widget.send({"type": "delta", "delta": packed.message}, packed.buffers)
        return packed

    def _receive(self, _widget: object, content: Any, _buffers: object) -> None:
        kind = content.get("type") if isinstance(content, dict) else None
        if kind == "hello":
            with self._lock:
                self._asked = True
                self._send(self._packer.full)
        elif kind == "stop":
            threading.Thread(target=self._on_stop, name="ddl-stop", daemon=True).start()


def _beat(view: weakref.ref[LiveView]) -> None:
    while True:
        time.sleep(BEAT_SECONDS)
        alive = view()
        # A view that nobody holds any more ends here too.
        if alive is None or not alive.beat():
            return
        del alive
