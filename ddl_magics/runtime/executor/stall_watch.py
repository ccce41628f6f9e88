"""Watches a rank's process for a stall: reports it once, reports when the rank continues, ends it after --stall."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Callable, Iterator

from ..rank.config import JobConfig
from ..rank.pulse import Pulse
from ..rank_end import Failure, FailureKind
from ..strategies import TF_PS
from . import process_state
from .process_state import BLOCKED, STOPPED, ProcessState
from .stall import TICK_SECONDS, StallClock

#: Ranks of TensorFlow's own strategies do not report that they wait. They get this much more time than a process that
#: cannot run, so that the latter is named first.
WAITING_SECONDS = 5.0
#: A process that is stopped is reported after so long: it never continues by itself, whatever its steps take. That is
#: before the ranks that try to connect to it give up.
STOPPED_SECONDS = 20.0
#: What a stall that counts as the death of a rank is called in its `Failure`.
STALLED: FailureKind = "stalled"


class StallWatch:
    """The watch over rank `rank`, whose process is `pid` and works in `folder`. `run` it in a thread of its own."""

    def __init__(
        self,
        rank: int,
        job: JobConfig,
        pid: int,
        folder: str,
        notice: Callable[[str, str], None],
        terminate: Callable[[Failure], None],
    ) -> None:
        """notice(level, message) shows the user a line; terminate(failure) ends the rank, after the time of --stall."""
        self._rank, self._stall, self._pid, self._folder = rank, job.spec.stall, pid, folder
        self._notice, self._terminate = notice, terminate
        self._with_children = job.spec.strategy == TF_PS
        self._patience = WAITING_SECONDS if job.uses_tf_distribute else 0.0
        self._lock = threading.Lock()
        self._clock = StallClock(time.monotonic(), job.spec.stall_notice)
        self._noticed = 0.0  # seconds of the stall that was reported, so far
        self._relaying = False

    def feed(self, pulse: Pulse) -> None:
        """A pulse of the rank has come."""
        with self._lock:
            self._clock.feed(pulse, time.monotonic())

    @contextlib.contextmanager
    def relaying(self) -> Iterator[None]:
        """Around a send to the driver: while the driver does not read, pulses and the rank may be delayed."""
        self._relaying = True
        try:
            yield
        finally:
            self._relaying = False

    def run(self, over: threading.Event) -> None:
        """Watch until `over` is set, or the rank was ended."""
        while not over.wait(TICK_SECONDS):
            state = process_state.read(self._pid, self._with_children)
            if state is None:
                continue
            with self._lock:
                if self._relaying:
                    self._clock.skip(time.monotonic())
                else:
                    self._clock.tick(state.letter, time.monotonic())
                silent, bound, pulse = self._clock.silent, self._clock.bound, self._clock.pulse
            patience = 0.0 if state.letter in BLOCKED else self._patience
            if self._stall is not None and silent >= self._stall + patience:
                stall, stack = self._observed(state, pulse, silent)
                self._terminate(Failure(self._rank, socket.gethostname(), STALLED, stall + "; --stall ended it", stack))
                return
            stopped = state.letter in STOPPED
            self._report(state, pulse, silent, min(bound, STOPPED_SECONDS) if stopped else bound + patience)

    def _report(self, state: ProcessState, pulse: Pulse, silent: float, bound: float) -> None:
        if self._noticed and not silent:
            self._notice("info", "continues on %s after a stall of %.0f s" % (socket.gethostname(), self._noticed))
        elif not self._noticed and silent >= bound:
            stall, stack = self._observed(state, pulse, silent)
            text = "%s: %s; %s" % (socket.gethostname(), stall, self._advice(state, pulse))
            self._notice("warning", text + ("\n" + stack if stack else ""))
        elif not self._noticed:
            return
        self._noticed = silent

    def _observed(self, state: ProcessState, pulse: Pulse, silent: float) -> tuple[str, str]:
        """(what is known of a stall in one line, the Python stack of the main thread or "")."""
        stack = "" if state.letter in BLOCKED else process_state.stack(self._pid, self._folder)
        verb = "has made no step" if pulse.training else "has not run"
        return "it %s for %.0f s, %s: %s" % (verb, silent, pulse.where, state), stack

    def _advice(self, state: ProcessState, pulse: Pulse) -> str:
        if state.letter in STOPPED:
            advice = "`kill -CONT %d` on that host continues it" % state.pid
        elif state.letter in BLOCKED:
            advice = "look at that host's disks and network file systems"
        elif pulse.training and not pulse.epoch and not pulse.step:
            advice = (
                "a first step may take long, as it is compiled; if it does not end, look at what its code waits for"
            )
        else:
            advice = "look at what its code waits for"
        return advice + (", and --stall TIME restarts such a worker" if self._stall is None else "")
