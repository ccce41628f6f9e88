"""A rank among its peers: what it announces with each collective, and what it learns from the others' announcements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Sequence

import numpy as np

from ..collectives.announcement import BARRIER, ROWS, USER, Announcement, PeerLost
from ..collectives.collective import Collective
from .config import RankConfig
from .progress import Progress, StepTimings
from .stop import Stop

if TYPE_CHECKING:
    from ..collectives.peer_listener import PeerListener
    from ..data.records import SetName
    from ..transport import wire

#: How long ranks that otherwise do not meet wait for each other, to exchange the rows of --data.
MEET_SECONDS = 120.0
#: A rank brings blocks of some megabytes, if no row is larger.
_MOST_ROWS_BYTES = 1 << 34
_ROWS_MISSING = (
    "the rows of --data of all workers cannot be had: %s; every worker must call adapt and ddl.all_rows, and one that "
    "was started again alone cannot: use --strategy allreduce, or adapt in a cell before this one"
)


class Peers:
    """ring: the `Collective` of the ranks, once connected; None where they do not meet in collectives.

    feed: another one, for batches that rank 0 deals, once there are any.
    """

    def __init__(self, config: RankConfig, progress: Progress, stop: Stop) -> None:
        self.config, self.progress = config, progress
        self.ring: Collective | None = None
        self.feed: Collective | None = None
        self.timings = StepTimings()
        self._stop = stop
        self._rows_ring: Collective | None = None
        self._apart: tuple[PeerListener, Sequence[wire.Address]] | None = None

    def stay_apart(self, listener: PeerListener, addresses: Sequence[wire.Address]) -> None:
        """The ranks do not meet, unless for the rows of --data. The arguments are those of `rendezvous.connect`."""
        self._apart = listener, addresses

    @property
    def busy(self) -> bool:
        """Whether this rank is in a collective."""
        return any(ring is not None and ring.busy for ring in (self.ring, self.feed, self._rows_ring))

    def close(self, reason: str) -> None:
        for ring in (self.ring, self.feed, self._rows_ring):
            if ring is not None:
                ring.close(reason)
        if self._apart is not None:
            self._apart[0].close()

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

    def gather_rows(self, name: SetName, number: int, payload: bytes) -> list[bytes]:
        """What all ranks bring of a set of --data, in order of rank, in the block of this `number`.

        Raises as every collective; where the ranks otherwise do not meet, RuntimeError for one that does not come.
        """
        self.progress.row_blocks += 1
        announcement = Announcement(ROWS, fit=int(name == "validation"), step=number)
        if self.ring is not None:
            return self.ring.gather(payload, announcement, _MOST_ROWS_BYTES)
        try:
            return self._meet_for_rows().gather(payload, announcement, _MOST_ROWS_BYTES)
        except PeerLost as lost:  # by itself no reason to end, as these ranks train without each other
            raise RuntimeError(_ROWS_MISSING % lost) from lost

    def _meet_for_rows(self) -> Collective:
        if self._rows_ring is None:
            assert self._apart is not None, "no rank has been told of --data"
            from ..collectives import rendezvous

            self._rows_ring = rendezvous.connect(*self._apart, timeout=MEET_SECONDS)
        return self._rows_ring

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
