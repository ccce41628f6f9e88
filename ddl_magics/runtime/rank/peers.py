"""A rank among its peers: what it announces with each collective, and what it learns from the others' announcements."""

from __future__ import annotations

import numpy as np

from ..collectives.announcement import BARRIER, USER, Announcement
from ..collectives.collective import Collective
from .config import RankConfig
from .progress import Progress, StepTimings
from .stop import Stop


class Peers:
    """ring: the `Collective` of the ranks, once connected; None where they do not meet in collectives."""

    def __init__(self, config: RankConfig, progress: Progress, stop: Stop) -> None:
        self.config, self.progress = config, progress
        self.ring: Collective | None = None
        self.timings = StepTimings()
        self._stop = stop

    @property
    def collective(self) -> Collective:
        """`ring`, where the ranks are known to meet."""
        assert self.ring is not None, "these ranks do not meet in collectives"
        return self.ring

    def announcement(
        self, kind: int, weight: float = 1.0, flags: int = 0, check: float = 0.0, scale: float = 0.0
    ) -> Announcement:
        """What this rank says of itself in a collective of a kind: where it is, and whether it wants to stop."""
        progress = self.progress
        if kind in (USER, BARRIER):
            fit, epoch, step = 0, 0, progress.cell_collectives
        else:
            fit, epoch = max(0, progress.fit), progress.epoch
            step = progress.step if self.config.reduces_gradients else progress.sync_rounds
        return Announcement(kind, fit, epoch, step, weight, flags | self._stop.flags(), check, scale)

    def note(self, announcements: list[Announcement]) -> None:
        """Learn from the ranks' announcements whether any wants to stop."""
        flags = 0
        for announcement in announcements:
            flags |= announcement.flags
        self._stop.note(flags)

    def allreduce(self, flat: np.ndarray, kind: int, flags: int = 0) -> list[Announcement]:
        """Sum a flat buffer over the ranks, in place. Returns their announcements, in order of rank."""
        announcements = self.collective.allreduce(flat, self.announcement(kind, flags=flags))
        self.note(announcements)
        return announcements
