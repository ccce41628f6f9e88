"""How far a run is, and when it will be done."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: The pace is measured over this share of the time since the fit began, but over no less than PACE_SECONDS.
PACE_SHARE = 0.3
PACE_SECONDS = 20.0

#: Positions kept for the pace.
PACE_POINTS = 200


@dataclass
class Progress:
    """The current `fit`: epochs and steps count from 0, `steps` is per epoch and None where it is not known."""

    fit: int = -1
    epochs: int = 0
    epoch: int = 0
    steps: int | None = None
    step: int = 0
    begun: float = 0.0
    fits_done: int = 0

    def fraction(self) -> float:
        """The done share of this fit, 0 to 1; an epoch of unknown length counts when it has ended."""
        if self.fit < 0 or not self.epochs:
            return 0.0
        within = min(self.step / self.steps, 1.0) if self.steps else 0.0
        return min((self.epoch + within) / self.epochs, 1.0)


class Pace:
    """Remaining seconds from the newest part of the way: an average over all of it would forget slow-downs too late."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, float]] = deque(maxlen=PACE_POINTS)

    def restart(self) -> None:
        """Forget the way so far: another fit began."""
        self._points.clear()

    def add(self, time: float, fraction: float) -> None:
        """Note a position; at most one for each change of the fraction."""
        if not self._points or fraction > self._points[-1][1]:
            self._points.append((time, fraction))

    def remaining(self) -> float | None:
        """Seconds from the newest position to the end of the fit, or None as long as nothing can be said."""
        if len(self._points) < 2:
            return None
        time, fraction = self._points[-1]
        window = max(PACE_SECONDS, PACE_SHARE * (time - self._points[0][0]))
        start, before = next(point for point in self._points if time - point[0] <= window)
        if start == time:
            start, before = self._points[-2]
        if time <= start:
            return None
        return (1 - fraction) * (time - start) / (fraction - before)


def epochs_seen(lengths: Mapping[Any, int], steps: int | None) -> int | None:
    """Steps of an epoch: as announced, else as long as the longest epoch that has ended."""
    return steps or max(lengths.values(), default=0) or None


def transferred(event: Mapping[str, Any]) -> str:
    """ "model-0.keras: 12 of 64 MB", of an event of kind "transfer"; empty when nothing is on its way any more."""
    if event["done"] >= event["size"]:
        return ""
    return f"{event['name']}: {event['done'] / 1e6:.0f} of {event['size'] / 1e6:.0f} MB"
