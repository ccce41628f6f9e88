"""How a run is stopped from outside: a fit ends after its step, other code of the cell at once."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import Any, Callable, Iterator

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

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Around the cell's code: within it, and not within a fit, a stop is a KeyboardInterrupt."""
        if self.asked:
            raise StopRun
        signal.signal(signal.SIGINT, self._on_interrupt)
        self.in_cell = True
        try:
            yield
        finally:
            self.in_cell = False
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _on_interrupt(self, _signal: int, _frame: Any) -> None:
        if self.fitting:
            return  # its next step ends it
        if not self._sending:
            raise KeyboardInterrupt
        self._interrupted = True

    @contextlib.contextmanager
    def sending(self) -> Iterator[None]:
        """Around a frame that is sent."""
        self._sending = True
        try:
            yield
        finally:
            self._sending = False
        if self._interrupted:
            self._interrupted = False
            raise KeyboardInterrupt
