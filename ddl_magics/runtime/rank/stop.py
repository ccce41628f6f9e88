"""How a run is stopped from outside: a fit ends after its step, other code of the cell at once."""

from __future__ import annotations

import signal
import threading
from typing import Any, Callable

from ..stopping import STOP_FIT, STOP_RUN, StopRun


class Stop:
    """Who wants this rank to stop, and what it is doing meanwhile.

    asked: the driver wants the run to stop. requested: a callback of this rank wants the fit to stop. agreed, and
    run_agreed: all ranks know that some rank wants the fit, or the run, to stop. fitting: a fit is in progress, whose
    next step sees to it. Meanwhile `sending` holds back an interrupt: half a frame would be the end of a connection.
    """

    def __init__(self) -> None:
        self.asked = self.requested = self.agreed = self.run_agreed = False
        self.fitting = self.in_cell = False
        self._sending = self._interrupted = False
        #: Called when the driver asks, for what an interrupt of Python does not reach.
        self.on_asked: Callable[[], None] = lambda: None

    def begin_fit(self) -> None:
        self.requested = self.agreed = False
        self.fitting = True

    def end_fit(self) -> None:
        self.fitting = False

    def ask(self) -> None:
        """Called by the thread that reads from the driver."""
        self.asked = True
        if self.in_cell:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)  # also wakes what waits for a lock
        self.on_asked()

    def flags(self) -> int:
        """What this rank wants all others to know with its next collective."""
        return (STOP_FIT if self.requested else 0) | (STOP_RUN if self.asked else 0)

    def note(self, flags: int) -> None:
        """What any rank wants, all do: they read it in the same collective. flags: of all ranks, or-ed."""
        self.agreed = self.agreed or bool(flags & (STOP_FIT | STOP_RUN))
        self.run_agreed = self.run_agreed or bool(flags & STOP_RUN)

    def interruptible(self) -> _Interruptible:
        """A context manager around the cell's code: within it, and not within a fit, a stop is a KeyboardInterrupt."""
        return _Interruptible(self)

    def sending(self) -> _Sending:
        """A context manager around a frame that is sent."""
        return _Sending(self)


class _Interruptible:
    def __init__(self, stop: Stop) -> None:
        self._stop = stop

    def __enter__(self) -> None:
        if self._stop.asked:
            raise StopRun
        signal.signal(signal.SIGINT, self._on_interrupt)
        self._stop.in_cell = True

    def __exit__(self, *_: Any) -> None:
        self._stop.in_cell = False
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _on_interrupt(self, _signal: int, _frame: Any) -> None:
        if self._stop.fitting:
            return  # its next step ends it
        if not self._stop._sending:
            raise KeyboardInterrupt
        self._stop._interrupted = True


class _Sending:
    def __init__(self, stop: Stop) -> None:
        self._stop = stop

    def __enter__(self) -> None:
        self._stop._sending = True

    def __exit__(self, kind: Any, *_: Any) -> None:
        self._stop._sending = False
        if self._stop._interrupted and kind is None:
            self._stop._interrupted = False
            raise KeyboardInterrupt
