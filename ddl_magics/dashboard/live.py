"""The live view of a run: a widget that draws in the page, fed with small binary deltas from the run's thread.

The kernel keeps the history of the run in bounded size. A page that opens or reloads asks for all of it, and gets the
changes from then on. Messages are numbered: a page that missed one asks for everything again.
"""

import contextvars
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import anywidget
import traitlets

from ..runtime.events import RawEvent
from .history import History
from .messages import Packed, Packer
from .next_step import Reach
from .static import bundle_of

_STATIC = Path(__file__).parent / "static"

#: A kernel that executes a cell does not receive the page's request. Until one has arrived, each message is a full one
#: while the history is this small, so that a page whose script was still loading misses nothing.
UNREQUESTED_BYTES = 10_000

#: While the run has not ended, the pages get a message at least this often. If none comes, the kernel is gone.
HEARTBEAT_SECONDS = 5.0

NOT_BUILT = """export default { render({ el }) {
  el.textContent = "The live view has not been built: run `npm ci && npm run build`.";
} };"""


def built(name: str, default: str) -> str:
    """The text of a file that `npm run build` makes, or `default` without it."""
    path = _STATIC / name
    return path.read_text(encoding="utf-8") if path.exists() else default


class LiveWidget(anywidget.AnyWidget):
    """A widget that sends from threads. The parent of its messages is the cell that made it.

    ipykernel 7.4 handles what a page sends where the parent of the widget's last message was handled. A thread's parent
    is otherwise the kernel's last request. After a reload that is one of a subshell that JupyterLab has deleted: the
    kernel would answer neither the page's requests nor its clicks.
    """

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self._cell = contextvars.copy_context()

    def send(self, content: Any, buffers: Sequence[bytes] | None = None) -> None:
        """Send a message to the pages. Thread-safe."""
        self._cell.copy().run(super().send, content, buffers)


class RunWidget(LiveWidget):
    """The widget in the page. What it draws comes as messages; `form` is "view", or "card" for a short one."""

    _esm = built("widget.js", NOT_BUILT)
    _css = built("widget.css", "")
    run = traitlets.Unicode().tag(sync=True)
    form = traitlets.Unicode("view").tag(sync=True)


class LiveView:
    """The live view of one run: display `widget`, and `feed` it the events of the run.

    Args:
        info: `RunInfo` of `schema.py`.
        on_stop: called in a new thread when the reader clicks Stop. Where `info` says that the cell is waiting, the
            kernel receives no clicks, and the view refers to the notebook's interrupt button instead.
        form: "view", or "card" for state, reason, numbers and buttons, with the rest on request.
        attachable: the run's driver may outlive the kernel.
    """

    def __init__(
        self, info: dict[str, Any], on_stop: Callable[[], object], form: str = "view", attachable: bool = False
    ) -> None:
        self._on_stop = on_stop
        self._lock = threading.Lock()
        self._history = History(info["workers"])
        self._packer = Packer(self._history, info, Reach(attachable))
        self._last_seen: float | None = None
        self._requested = False
        self._last_sent = time.monotonic()
        self.widget = RunWidget(run=info["id"], form=form)
        self.widget.on_msg(self._receive)

        start_heartbeats(self, "ddl-live-view")

    def feed(self, events: Iterable[RawEvent]) -> None:
        """Add new events, in order, and update the pages. Thread-safe; to be called about once a second."""
        events = list(events)
        with self._lock:
            if events:
                self._last_seen = time.time()
                self._history.feed(events)
            unrequested = not self._requested and self._packer.estimated_size() <= UNREQUESTED_BYTES
            packed = self._send(self._packer.full if unrequested else self._packer.update)
            # A run that has ended is not fed again, so the changes that did not fit are sent at once.
            while packed.has_more and self._history.over:
                packed = self._send(self._packer.update)

    def static(self, run: Mapping[str, Any]) -> dict[str, Any]:
        """`static.bundle_of` what the view shows now. Thread-safe."""
        with self._lock:
            return bundle_of(run, self._history)

    def heartbeat(self) -> bool:
        """Send a message if none was sent for `HEARTBEAT_SECONDS`. Returns False once the run has ended."""
        with self._lock:
            if time.monotonic() - self._last_sent >= HEARTBEAT_SECONDS:
                self._send(self._packer.update)
            return not self._history.over

    def _send(self, pack: Callable[[float, float | None], Packed]) -> Packed:
        packed = pack(time.time(), self._last_seen)
        self._last_sent = time.monotonic()
        self.widget.send({"type": "delta", "delta": packed.message}, packed.buffers)
        return packed

    def _receive(self, _widget: object, content: Any, _buffers: object) -> None:
        kind = content.get("type") if isinstance(content, dict) else None
        if kind == "hello":
            with self._lock:
                self._requested = True
                self._send(self._packer.full)
        elif kind == "stop":
            threading.Thread(target=self._on_stop, name="ddl-stop", daemon=True).start()


class _Beating(Protocol):
    def heartbeat(self) -> bool: ...


def start_heartbeats(view: _Beating, name: str) -> None:
    """Call `view.heartbeat` every `HEARTBEAT_SECONDS` in a thread of this name, until it is False or the view gone."""
    threading.Thread(target=_send_heartbeats, args=(weakref.ref(view),), name=name, daemon=True).start()


def _send_heartbeats(reference: weakref.ref[_Beating]) -> None:
    while True:
        time.sleep(HEARTBEAT_SECONDS)
        view = reference()
        # The view was garbage collected, or its run or search has ended.
        if view is None or not view.heartbeat():
            return
        del view
