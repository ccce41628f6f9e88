"""When a rank counts as stalled: a pure function of its pulses, of its process' state, and of time.

A rank makes progress with each step, batch of validation and exchange. One that waits for other ranks is no culprit:
the rank that they all wait for is. Code outside of a fit has no steps: there only a process that cannot run is stalled.
"""

from __future__ import annotations

import statistics
from collections import deque

from ..rank.pulse import Pulse
from .process_state import BLOCKED

#: A rank without progress is reported after so long, or after so many of its median steps if that is longer.
NOTICE_SECONDS = 60.0
NOTICE_STEPS = 20
TICK_SECONDS = 1.0
#: A process that runs sends a pulse every second. What an older one says of waiting is not believed.
PULSE_SECONDS = 5.0
_STEPS_KEPT = 50

BEFORE = Pulse(fit=-1, epoch=0, step=0, moves=0, training=False, waiting=False)


class StallClock:
    """Counts for how long a rank has made no progress: `silent`, in seconds. Times are of the monotonic clock.

    Time in which this process did not run itself does not count. pulse: the newest.
    """

    def __init__(self, timestamp: float, notice_seconds: float | None = None) -> None:
        self.pulse, self.silent = BEFORE, 0.0
        self._notice_seconds = NOTICE_SECONDS if notice_seconds is None else notice_seconds
        self._ticked = self._pulsed = self._stepped = timestamp
        self._progressed = False
        self._steps: deque[float] = deque(maxlen=_STEPS_KEPT)

    @property
    def bound(self) -> float:
        """Seconds without progress after which the rank is reported."""
        typical = statistics.median(self._steps) if self._steps else 0.0
        return max(self._notice_seconds, NOTICE_STEPS * typical)

    def feed(self, pulse: Pulse, timestamp: float) -> None:
        """A pulse has come."""
        before, self.pulse, self._pulsed = self.pulse, pulse, timestamp
        if pulse[:4] == before[:4]:
            return
        self._progressed = True
        if pulse[:3] != before[:3]:
            if pulse.fit == before.fit:
                self._steps.append((timestamp - self._stepped) / _steps_between(before, pulse))
            self._stepped = timestamp

    def skip(self, timestamp: float) -> None:
        """In place of `tick`: the time that has passed does not count."""
        self._ticked = timestamp

    def tick(self, letter: str, timestamp: float) -> None:
        """To be called once in TICK_SECONDS. letter: the state of the rank's process, as in `ps`."""
        passed, self._ticked = min(timestamp - self._ticked, 2 * TICK_SECONDS), timestamp
        waiting = self.pulse.waiting and timestamp - self._pulsed < PULSE_SECONDS
        at_work = letter not in BLOCKED and (waiting or not self.pulse.training)
        self.silent = 0.0 if self._progressed or at_work else self.silent + passed
        self._progressed = False


def _steps_between(before: Pulse, after: Pulse) -> int:
    """The steps from one pulse to a later one of the same fit; at least so many where an epoch has ended meanwhile."""
    same_epoch = after.epoch == before.epoch
    return max(1, after.step - before.step if same_epoch else after.epoch - before.epoch - 1 + after.step)
