"""Which rank speaks for a run, from its events. Pure."""

from __future__ import annotations

from .events import Event, Group


class Chief:
    """rank: 0, or where ranks come and go, the lowest of those that train together after the events that were read."""

    def __init__(self) -> None:
        self.rank = 0

    def read(self, event: Event) -> None:
        """Learn from the next event of the run."""
        if isinstance(event, Group):
            self.rank = min(event.members, default=self.rank)
