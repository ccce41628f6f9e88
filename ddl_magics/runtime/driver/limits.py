"""What stops a run in progress without its user: the time of --timeout, and --target in a loop of the cell's own."""

from __future__ import annotations

import time
from typing import Callable

from .. import target
from ..chief import Chief
from ..events import Event, Values
from ..run_spec import RunSpec
from ..strategies import ENSEMBLE


class RunLimits:
    """stop(reason): stops the run. reason: words that follow "stopped"."""

    def __init__(self, spec: RunSpec, stop: Callable[[str], None]) -> None:
        self.target = target.read(spec.target) if spec.target else None
        self._timeout, self._in_ensemble = spec.timeout, spec.strategy == ENSEMBLE
        self._stop = stop
        self._deadline: float | None = None
        self._chief = Chief()

    def start(self) -> None:
        """Training begins. The time of --timeout runs from the first call on."""
        if self._timeout and self._deadline is None:
            self._deadline = time.monotonic() + self._timeout

    def check_time(self) -> None:
        """Stop the run when --timeout is over."""
        if self._deadline is not None and time.monotonic() > self._deadline:
            self._stop(" by --timeout after %g s" % (self._timeout or 0.0))

    def check_event(self, event: Event) -> None:
        """Stop the run where a loop of the cell's own logs on the chief that --target is reached; fits end themselves.

        The members of an ensemble end one by one, each with its own fit.
        """
        self._chief.read(event)
        if self.target is None or self._in_ensemble or not isinstance(event, Values):
            return
        if event.rank == self._chief.rank and self.target.is_reached(event.metrics.get(self.target.metric)):
            self._stop(" at --target")
