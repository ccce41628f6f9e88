"""The progress of a run and the estimate of the remaining time."""

from collections import deque
from dataclasses import dataclass

from ..runtime.events import Transfer
from .loglines import NAME_CHARACTERS, clean

#: The pace is the mean over this share of the time since the fit began, but over at least PACE_SECONDS.
PACE_SHARE = 0.3
PACE_SECONDS = 20.0

#: Number of positions that are kept to measure the pace.
PACE_POINTS = 200


@dataclass
class Progress:
    """The progress of the current call of `model.fit`.

    Attributes:
        fit: index of the call; -1 before the first.
        epochs: number of epochs.
        epoch: epochs done.
        steps: steps per epoch; None if unknown.
        step: steps done in the current epoch.
        begun: when the fit began, in seconds since the epoch.
        fits_done: number of calls that have returned.
    """

    fit: int = -1
    epochs: int = 0
    epoch: int = 0
    steps: int | None = None
    step: int = 0
    begun: float = 0.0
    fits_done: int = 0

    def fraction(self) -> float:
        """The share of the fit that is done, 0 to 1. An epoch of unknown length counts once it has ended."""
        if self.fit < 0 or not self.epochs:
            return 0.0
        within = min(self.step / self.steps, 1.0) if self.steps else 0.0
        return min((self.epoch + within) / self.epochs, 1.0)


class Pace:
    """Estimates when a fit ends from its recent pace: the mean over the whole fit reacts late to a slow-down.

    The only estimate: cell, tab and the panel's row have it from a `History`.
    """

    def __init__(self) -> None:
        self._points: deque[tuple[float, float]] = deque(maxlen=PACE_POINTS)

    def restart(self) -> None:
        """Another fit begins."""
        self._points.clear()

    def add(self, time: float, fraction: float) -> None:
        """Record the position at a time; ignored unless the fraction has grown."""
        if not self._points or fraction > self._points[-1][1]:
            self._points.append((time, fraction))

    def end(self) -> float | None:
        """The end of the fit, in the clock of the positions; None while there is too little to estimate it from."""
        if len(self._points) < 2:
            return None
        time, fraction = self._points[-1]
        window = max(PACE_SECONDS, PACE_SHARE * (time - self._points[0][0]))
        start, before = next(point for point in self._points if time - point[0] <= window)
        if start == time:
            start, before = self._points[-2]
        if time <= start:
            return None
        return time + (1 - fraction) * (time - start) / (fraction - before)


def steps_per_epoch(longest: int, steps: int | None) -> int | None:
    """The announced `steps`, else the length of the longest epoch that has ended; None if there is neither."""
    return steps or longest or None


def transfer_text(event: Transfer) -> str:
    """A transfer as text, e.g. model-0.keras: 12 of 64 MB; empty once it is complete."""
    if event.done >= event.size:
        return ""
    return f"{clean(event.name, NAME_CHARACTERS)}: {event.done / 1e6:.0f} of {event.size / 1e6:.0f} MB"
