"""How the ranks of a run find each other, and which way their data will travel.

Every rank listens, and closes a ring over TCP with its neighbours: that works everywhere. Over the ring the ranks tell
which of them can open each other's memory (memory_file.py). Ranks that can reduce through it, as far faster than TCP
over loopback; separate containers on one host cannot, and stay with TCP.
"""

import json
import threading
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

from . import memory_file, parts, wire
from .collective import Collective
from .flow import Flow
from .mesh import PAGE_BYTES, Mesh
from .parts import Part, PeerLost
from .ring import Ring
from .shared_memory import MEMORY_BYTES, SharedMemory

CONNECT_SECONDS = 30.0
_PURPOSE_SECONDS = 5.0
_OFFER_BYTES = 4096

#: What a connection between two ranks is for.
RING, HOST = 1, 2


class Place:
    """Where the other ranks of this run's attempt reach this rank: at `address`, while the place is open."""

    def __init__(self, host: str, secret: bytes, run: str, rank: int, attempt: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._secret, self._run, self._attempt = secret, run, attempt
        self._others = set(range(size)) - {rank}
        self._arrived: Dict[Tuple[int, int], wire.Channel] = {}  # by rank and purpose
        self._changed = threading.Condition()
        self._closed = False
        self._listener = wire.Listener(host, secret, run, self._identity(rank), self._admit, self._accept)
        self.address = self._listener.address

    def call(self, peer: int, address: wire.Address, purpose: int, deadline: float) -> wire.Channel:
        """A connection to rank `peer`; PeerLost where none can be made until `deadline` (of time.monotonic)."""
        left = max(0.0, deadline - time.monotonic())
        try:
            me, expected = self._identity(self.rank), self._identity(peer)
            channel = wire.connect((address[0], address[1]), self._secret, self._run, me, expected, left)
            channel.send(purpose)
        except (wire.ConnectionLost, wire.Refused) as error:
            raise PeerLost(peer, str(error)) from error
        return channel

    def answer(self, peer: int, purpose: int, deadline: float) -> wire.Channel:
        """The connection that rank `peer` makes to this one; PeerLost where it does not until `deadline`."""
        with self._changed:
            start = time.monotonic()
            if not self._changed.wait_for(lambda: (peer, purpose) in self._arrived, max(0.0, deadline - start)):
                raise PeerLost(peer, "it did not connect in time")
            return self._arrived.pop((peer, purpose))

    def close(self) -> None:
        self._listener.close()
        with self._changed:
            self._closed = True
            for channel in self._arrived.values():
                channel.close(0)
            self._arrived.clear()

    def _identity(self, rank: int) -> wire.Identity:
        return wire.Identity("rank", rank, self._attempt)

    def _admit(self, peer: wire.Identity) -> Optional[str]:
        if peer.role == "rank" and peer.attempt == self._attempt and peer.rank in self._others:
            return None
        return "the other ranks of attempt %d are expected here" % self._attempt

    def _accept(self, channel: wire.Channel) -> None:
        channel.settimeout(_PURPOSE_SECONDS)
        try:
            purpose, _ = channel.recv(0)
        except (wire.ConnectionLost, wire.ProtocolError, OSError):
            channel.close(0)
            return
        channel.settimeout(None)
        with self._changed:
            if self._closed or (channel.peer.rank, purpose) in self._arrived:
                channel.close(0)
            else:
                self._arrived[channel.peer.rank, purpose] = channel
                self._changed.notify_all()


def connect(
    place: Place,
    addresses: Sequence[wire.Address],
    timeout: float = CONNECT_SECONDS,
    host: Optional[str] = None,
) -> Collective:
    """Meets the other ranks, whose places are at `addresses` (by rank), and closes this one's place.

    `host` is what ranks that may share memory have in common, `memory_file.host_id()` unless given; "" for a rank that
    shall not. PeerLost names the rank that did not come within `timeout` seconds, or refused.
    """
    deadline = time.monotonic() + timeout
    try:
        if place.size == 1:
            return Ring(0, 1)
        ring = _ring(place, addresses, deadline)
        try:
            memories = _memories(ring, memory_file.host_id() if host is None else host)
            if len(memories) < place.size:
                return ring
            group = _group(place, addresses, memories, deadline)
        except BaseException as error:
            ring.close("it failed to connect: %s" % error)
            raise
        ring.close("it has shared memory")
        return group
    finally:
        place.close()


def _ring(place: Place, addresses: Sequence[wire.Address], deadline: float) -> Ring:
    before, after = (place.rank - 1) % place.size, (place.rank + 1) % place.size
    out = place.call(after, addresses[after], RING, deadline)
    try:
        into = place.answer(before, RING, deadline)
    except PeerLost as lost:
        out.socket.sendall(parts.departure(lost))
        out.close()
        raise
    return Ring(place.rank, place.size, Flow(place.rank, place.size, into.socket, out.socket))


def _memories(ring: Ring, host: str) -> Dict[int, Any]:
    """The memories, by rank, of all that this rank shares memory with, itself among them."""
    try:
        mine = memory_file.MemoryFile(MEMORY_BYTES) if host else None
    except OSError:
        mine = None
    offers = _tell_all(ring, {"host": host, "memory": mine.offer()} if mine else {})
    memories: Dict[int, Any] = {}
    for rank, offer in enumerate(offers):
        if mine and offer.get("host") == host:
            memory = mine.bytes if rank == ring.rank else memory_file.attach(offer["memory"])
            if memory is not None:
                memories[rank] = memory
    groups = _groups([set(opened) for opened in _tell_all(ring, sorted(memories))])
    if mine:
        mine.close()
    return {rank: memories[rank] for rank in next(group for group in groups if ring.rank in group) if rank in memories}


def _tell_all(ring: Ring, value: Any) -> List[Any]:
    limit = _OFFER_BYTES + 8 * ring.size
    return [json.loads(told) for told in ring.gather(json.dumps(value).encode(), Part(parts.MEETING), limit)]


def _groups(opened: List[set]) -> List[List[int]]:
    """Ranks that have all opened each other's memory, from which memories each has opened."""
    groups: List[List[int]] = []
    for rank, memories in enumerate(opened):
        for group in groups:
            if all(peer in memories and rank in opened[peer] for peer in group):
                group.append(rank)
                break
        else:
            groups.append([rank])
    return groups


def _group(place: Place, addresses: Sequence[wire.Address], memories: Dict[int, Any], deadline: float) -> SharedMemory:
    ranks = sorted(memories)
    channels = {}
    for index, rank in enumerate(ranks):
        if rank > place.rank:
            channels[index] = place.call(rank, addresses[rank], HOST, deadline)
    for index, rank in enumerate(ranks):
        if rank < place.rank:
            channels[index] = place.answer(rank, HOST, deadline)
    sockets = {index: channel.socket for index, channel in channels.items()}
    pages = [memories[rank][:PAGE_BYTES] for rank in ranks]
    mesh = Mesh(ranks.index(place.rank), ranks, sockets, pages)
    return SharedMemory(place.rank, len(ranks), mesh, [memories[rank] for rank in ranks])
