"""A rank among ranks that come and go (--workers MIN..MAX): after a loss the others connect anew, and train on.

The driver decides who takes part: the ranks that have lost a peer say so, and it numbers the next group of those that
live. A rank's position in the group, which decides which rows are its own, changes; its number does not.

What the ranks make together is a sequence of results, in which each is complete for a rank or is not. A loss can find
a rank one result ahead of another, and no further. The ranks compare their counts in the new group: who is ahead gives
its last result to who is behind, so that nothing is made by some and not by others. Where nobody has it, the ranks make
it again, without the lost one.
"""

from __future__ import annotations

import contextlib
import json
import queue
from typing import Any, Callable, Iterator, Protocol, Sequence

import numpy as np

from ..checkpoints.checkpoint import Position
from ..collectives.announcement import CLOSED, RENDEZVOUS, UNREACHABLE, Announcement, PeerLost
from ..collectives.collective import Collective
from ..transport import messages, wire
from .config import RankConfig

#: Why a rank leaves its group for the next one, in words for its peers.
REGROUPS = "it waits for another group"
#: So often the ranks try to connect; each time somebody was lost while they did.
MOST_TRIES = 20
_COUNT_BYTES = 64
#: Reasons of a loss after which the others go on. A rank that says that it leaves has a reason to end all.
_CALLED_LOST = (CLOSED, UNREACHABLE, REGROUPS, "it did not connect", "it failed to connect")

Results = Sequence[np.ndarray]


class Peers(Protocol):
    """`rank.peers.Peers`."""

    ring: Collective | None
    feed: Collective | None

    @property
    def collective(self) -> Collective: ...


class Regrouped(Exception):
    """The ranks are others than when this began, and none has its result: begin again."""


class TooLate(Exception):
    """The others have ended the fit that this rank was to join. positions: of the checkpoints that it has got."""

    def __init__(self, positions: list[Position]) -> None:
        super().__init__("the others have ended this fit")
        self.positions = positions


class Regrouping:
    """active: what is in progress can be made again by fewer ranks. count: of results so far. changes: of groups.

    is_asked: the driver says that a rank wants to join; joins: all ranks know it. has_joined: this one trains with the
    others; if not, it is to join in the fit of the number `joins_in`. catches_up: it has joined and is not yet where
    they are: collectives of the cell, which they have made before, are of its own value. has_newcomers: the group has
    ranks that do not train yet. waiting: for the next group.
    """

    def __init__(self, config: RankConfig, channel: wire.Channel, inbox: queue.SimpleQueue[tuple[int, Any]]) -> None:
        """channel: to the driver; inbox: (kind, value) of what it sends of groups."""
        self._config, self._channel, self._inbox = config, channel, inbox
        self.active = self.is_asked = self.joins = self.has_newcomers = self.waiting = False
        self.has_joined, self.joins_in = True, 0
        self.catches_up = False
        self.count = self.changes = 0
        self._whole_since: int | None = None  # `changes`, where what is in progress is made again as a whole
        self.members: list[int] = list(range(config.workers))  # by position: the numbers of ranks
        self._last_result: Results = ()

    def complete(self, peers: Peers, make: Callable[[], Results], repeats: bool) -> Results:
        """The result of `make`, which calls collectives, or that of a rank that has it.

        repeats: where no rank has it, call `make` again; otherwise, and in what is made again as a whole, raise
        `Regrouped`.
        """
        while True:
            if self._whole_since not in (None, self.changes):
                raise Regrouped()
            try:
                result = make()
            except PeerLost as lost:
                received_result = self.regroup(peers, lost)
                if received_result is None and repeats and self._whole_since is None:
                    continue
                if received_result is None:
                    raise Regrouped() from lost
                result = received_result
            self.count += 1
            self._last_result = result
            return result

    @contextlib.contextmanager
    def made_as_whole(self) -> Iterator[None]:
        """In it, `complete` raises `Regrouped` once the ranks are others than at its begin, and none has the result."""
        self._whole_since = self.changes
        try:
            yield
        finally:
            self._whole_since = None

    def regroup(self, peers: Peers, lost: PeerLost | None = None, welcomes: int | None = None) -> Results | None:
        """Connect to the ranks of the next group. The result that others have and this rank has not, or None.

        welcomes: the fit in progress, if ranks that want to join in it may be among them. Raises `lost` where it is no
        reason to go on. `TooLate` for a rank that joins.
        """
        if lost is not None and not (self.active and lost.reason.startswith(_CALLED_LOST)):
            raise lost
        self.waiting = True
        try:
            for _ in range(MOST_TRIES):
                peers.collective.close(REGROUPS)
                if peers.feed is not None:  # of the ranks that there were
                    peers.feed.close(REGROUPS)
                    peers.feed = None
                try:
                    peers.ring = self._meet(welcomes)
                    received_result = self._even_out(peers.ring)
                except PeerLost as error:
                    lost = error
                    continue
                self.changes += 1
                return received_result
        finally:
            self.waiting = False
        assert lost is not None
        raise lost

    def _ask(self, welcomes: int | None) -> None:
        joins = None if self.has_joined else self.joins_in
        self._channel.send_json(messages.REGROUP, {"joins": joins, "welcomes": welcomes})

    def _meet(self, welcomes: int | None) -> Collective:
        """The collective of the next group, once all of its ranks are there."""
        from ..collectives import rendezvous
        from ..collectives.peer_listener import PeerListener

        config = self._config
        self._ask(welcomes)
        listener: PeerListener | None = None
        group = -1
        while True:
            kind, value = self._inbox.get()
            if kind == messages.GROUP:
                group, self.members = value["group"], [int(rank) for rank in value["ranks"]]
                if listener is not None:
                    listener.close()
                position, size = self.members.index(config.rank), len(self.members)
                listener = PeerListener(config.host, config.credentials, position, group, size)
                answer = {"address": list(listener.address), "group": group}
                self._channel.send_json(messages.GROUP_READY, answer)
            elif value.get("resume") is not None:
                raise TooLate([Position(*position) for position in value["resume"]])
            elif kind == messages.PEERS and value["group"] == group and listener is not None:
                return rendezvous.connect(listener, value["addresses"])

    def _even_out(self, ring: Collective) -> Results | None:
        """Give the last result to ranks that have not got it. What this rank is given, or None."""
        own_count = json.dumps(self.count if self.has_joined else None).encode()
        counts = [json.loads(payload) for payload in ring.gather(own_count, Announcement(RENDEZVOUS), _COUNT_BYTES)]
        self.has_newcomers = None in counts
        joined = [number for number in counts if number is not None]
        highest = max(joined, default=0)
        if min(joined, default=0) == highest:
            return None
        giver = counts.index(highest)
        received_result = broadcast_arrays(ring, giver, self._last_result if ring.rank == giver else ())
        return received_result if self.has_joined and self.count < highest else None


def broadcast_arrays(ring: Collective, root: int, arrays: Results) -> list[np.ndarray]:
    """The arrays of the rank at position `root`, on every rank. arrays: of any shapes and numeric dtypes."""
    header = json.dumps([(str(array.dtype), array.shape) for array in arrays]).encode()
    size = np.array([len(header)], np.int64)
    ring.broadcast(size, Announcement(RENDEZVOUS), root)
    header_bytes = np.frombuffer(header, np.uint8).copy() if ring.rank == root else np.empty(int(size[0]), np.uint8)
    ring.broadcast(header_bytes, Announcement(RENDEZVOUS), root)
    received = []
    for i, (dtype, shape) in enumerate(json.loads(header_bytes.tobytes())):
        array = np.ascontiguousarray(arrays[i]) if ring.rank == root else np.empty(shape, np.dtype(dtype))
        flat = array.reshape(-1).view(np.uint8) if array.size else np.zeros(0, np.uint8)
        if not flat.flags.writeable:
            flat = flat.copy()
        ring.broadcast(flat, Announcement(RENDEZVOUS), root)
        received.append(array)
    return received


def announcements_as_array(announced: Sequence[Announcement]) -> np.ndarray:
    """What `announcements_of` reads: float64, of shape (ranks, fields)."""
    return np.array(announced, np.float64).reshape(len(announced), -1)


def announcements_of(array: np.ndarray) -> list[Announcement]:
    """The announcements in the rows of an array."""
    announced = []
    for kind, fit, epoch, step, weight, flags, check, scale in array.tolist():
        announced.append(Announcement(int(kind), int(fit), int(epoch), int(step), weight, int(flags), check, scale))
    return announced
