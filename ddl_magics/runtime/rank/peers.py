"""A rank among its peers: what it announces with each collective, and what it learns from the others' announcements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Sequence, TypeVar

import numpy as np

from ..collectives.announcement import BARRIER, ROWS, USER, Announcement, PeerLost
from ..collectives.collective import Collective
from ..stopping import JOINS
from .config import RankConfig
from .progress import Progress, StepTimings
from .regrouping import Regrouped, Regrouping, Results, announcements_as_array, announcements_of
from .stop import Stop

if TYPE_CHECKING:
    from ..collectives.peer_listener import PeerListener
    from ..data.records import SetName
    from ..transport import wire

Result = TypeVar("Result")

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

    feed: another one, for batches that rank 0 deals, once there are any. regrouping: where ranks come and go, or None.
    sharers: the ranks that share out an epoch beside a parameter server, where ranks come and go there; else None.
    """

    def __init__(self, config: RankConfig, progress: Progress, stop: Stop) -> None:
        self.config, self.progress = config, progress
        self.ring: Collective | None = None
        self.feed: Collective | None = None
        self.regrouping: Regrouping | None = None
        self.sharers: Sequence[int] | None = None
        self.timings = StepTimings()
        self._stop = stop
        self._rows_ring: Collective | None = None
        self._apart: tuple[PeerListener, Sequence[wire.Address]] | None = None

    def stay_apart(self, listener: PeerListener, addresses: Sequence[wire.Address]) -> None:
        """The ranks do not meet, unless for the rows of --data. The arguments are those of `rendezvous.connect`."""
        self._apart = listener, addresses

    @property
    def busy(self) -> bool:
        """Whether this rank is in a collective, or waits for other ranks."""
        regroups = self.regrouping is not None and self.regrouping.waiting
        return regroups or any(ring is not None and ring.busy for ring in (self.ring, self.feed, self._rows_ring))

    def close(self, reason: str) -> None:
        for ring in (self.ring, self.feed, self._rows_ring):
            if ring is not None:
                ring.close(reason)
        if self._apart is not None:
            self._apart[0].close()

    @property
    def position(self) -> int:
        """This rank's place among those that train together: it decides which rows are its own.

        It is `size` for one that has no share of the epoch.
        """
        if self.sharers is not None:
            own = self.config.rank
            return self.sharers.index(own) if own in self.sharers else len(self.sharers)
        return self.config.rank if self.regrouping is None else self.collective.rank

    @property
    def has_share(self) -> bool:
        """Whether some of the epoch's rows are this rank's."""
        return self.position < self.size

    @property
    def size(self) -> int:
        """How many train together."""
        if self.sharers is not None:
            return len(self.sharers)
        return self.config.workers if self.regrouping is None else self.collective.size

    @property
    def place(self) -> tuple[int, int]:
        """(position, size), by which batches are cut that all train on together."""
        is_fixed = self.regrouping is None and self.sharers is None
        return (self.config.rank, self.config.size) if is_fixed else (self.position, self.size)

    @property
    def is_chief(self) -> bool:
        """Whether what this rank prints, writes and returns is the run's."""
        if self.regrouping is None:
            return self.config.is_chief
        return self.position == 0 and self.regrouping.has_joined

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
        return Announcement(kind, fit, epoch, step, weight, flags | self._flags(), check, scale)

    def _flags(self) -> int:
        is_asked = self.regrouping is not None and self.regrouping.is_asked
        return self._stop.flags() | (JOINS if is_asked else 0)

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
        self.note_flags(flags_of(announcements))

    def note_flags(self, flags: int) -> None:
        """`note`, of the flags of all ranks, or-ed."""
        self._stop.note(flags)
        if self.regrouping is not None and flags & JOINS:
            self.regrouping.joins = True

    def complete(self, make: Callable[[], Results], repeats: bool) -> Results:
        """The result of `make`, which calls collectives; as `Regrouping.complete` where ranks come and go."""
        if self.regrouping is None or not self.regrouping.active:
            return make()
        return self.regrouping.complete(self, make, repeats)

    def within(self, make: Callable[[], Result]) -> Result:
        """The result of `make`, which calls collectives as a part of what is completed later; else `Regrouped`."""
        if self.regrouping is None or not self.regrouping.active:
            return make()
        try:
            return make()
        except PeerLost as lost:
            self.regrouping.regroup(self, lost)
            raise Regrouped() from lost

    def allreduce(self, flat: np.ndarray, kind: int, flags: int = 0, repeats: bool = True) -> list[Announcement]:
        """Sum a flat buffer over the ranks, in place. Returns their announcements, in order of rank.

        repeats: as `Regrouping.complete` has it: the sum is one of those who are left, if a rank is lost.
        """

        def make() -> Results:
            summed = flat.copy()
            announced = self.collective.allreduce(summed, self.announcement(kind, flags=flags))
            return summed, announcements_as_array(announced)

        if self.regrouping is None:
            announcements = self.collective.allreduce(flat, self.announcement(kind, flags=flags))
        else:
            flat[:], announced = self.complete(make, repeats)
            announcements = announcements_of(announced)
        self.note(announcements)
        return announcements


def flags_of(announcements: Sequence[Announcement]) -> int:
    """The flags of all ranks, or-ed."""
    flags = 0
    for announcement in announcements:
        flags |= announcement.flags
    return flags
