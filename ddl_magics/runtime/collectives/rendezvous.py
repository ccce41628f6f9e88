"""The rendezvous of the ranks: they connect to each other, and choose the way on which their data will travel.

All ranks first close a ring over TCP, which works everywhere. Over it they find which ranks can open each other's
memory (memory_file.py); ranks that all can form a group. They then use
* shared memory, for a single group. On two cores, 3 MB take a quarter of the time that TCP over loopback takes.
* the ring, if no group has more than one rank, as with one rank on each host, or one in each container. Each rank sends
  and receives 2 (n - 1) / n times the buffer, the least possible (Patarasuk and Yuan 2009).
* shared memory in each group and a ring of their leaders, for several groups. It sends the buffer over the network once
  for each host; a ring of all ranks would send it once for each rank whose successor is on another host.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Mapping, Sequence

import numpy as np

from ..transport import memory_file, wire
from . import announcement
from .announcement import RENDEZVOUS, Announcement, PeerLost
from .collective import Collective, SingleRank
from .hierarchy import Hierarchy
from .host_barrier import PAGE_BYTES, HostBarrier
from .peer_listener import HOST, LEADERS, RING, PeerListener
from .ring import LOOPBACK_BLOCKS, LOOPBACK_CHUNK_BYTES, Ring
from .ring_link import RingLink
from .shared_memory import MEMORY_BYTES, SharedMemory

if TYPE_CHECKING:
    import numpy.typing as npt

    Memories = Mapping[int, npt.NDArray[np.uint8]]  # by rank

CONNECT_SECONDS = 30.0
_OFFER_BYTES = 4096


def connect(
    listener: PeerListener,
    addresses: Sequence[wire.Address],
    timeout: float = CONNECT_SECONDS,
    host: str | None = None,
) -> Collective:
    """Connects this rank to the others, and closes `listener`.

    Args:
        addresses: of the listeners of all ranks, by rank.
        timeout: in seconds.
        host: equal for ranks that may be able to share memory; its first word is equal for ranks on one machine. By
            default `memory_file.host_id()`.

    Raises:
        PeerLost: names a rank that did not connect within `timeout`, or refused to.
    """
    try:
        if listener.size == 1:
            return SingleRank()
        connector = _Connector(listener, addresses, time.monotonic() + timeout)
        ring = connector.ring([[rank] for rank in range(listener.size)], RING)
        try:
            groups, memories, machines = _form_groups(ring, memory_file.host_id() if host is None else host)
            if len(groups) == listener.size:
                ring.crosses_network = len(machines) > 1
                if not ring.crosses_network:
                    ring.chunk_bytes, ring.blocks = LOOPBACK_CHUNK_BYTES, LOOPBACK_BLOCKS
                return ring
            collective = connector.within_and_between(groups, memories)
            collective.crosses_network = len(machines) > 1
        except BaseException as error:
            ring.close("it failed to connect: %s" % error)
            raise
        ring.close("it uses another transport")
        return collective
    finally:
        listener.close()


class _Connector:
    """Makes this rank's connections to the ranks with which it will exchange data."""

    def __init__(self, listener: PeerListener, addresses: Sequence[wire.Address], deadline: float) -> None:
        self._listener, self._addresses, self._deadline = listener, addresses, deadline

    def ring(self, groups: Sequence[Sequence[int]], purpose: int) -> Ring:
        """A ring of the first rank of each group."""
        rank = self._listener.rank
        index = next(i for i, group in enumerate(groups) if rank == group[0])
        previous_rank, next_rank = groups[index - 1][0], groups[(index + 1) % len(groups)][0]
        outgoing = self._connect_to(next_rank, purpose)
        try:
            incoming = self._listener.wait_for(previous_rank, purpose, self._deadline)
        except PeerLost as lost:
            outgoing.socket.sendall(announcement.departure(lost))
            outgoing.close()
            raise
        link = RingLink(previous_rank, incoming.socket, next_rank, outgoing.socket)
        return Ring(rank, self._listener.size, link, groups)

    def within_and_between(self, groups: Sequence[Sequence[int]], memories: Memories) -> Collective:
        """Shared memory within this rank's group, and with several groups a ring between their first ranks."""
        rank = self._listener.rank
        host = self._shared_memory(next(group for group in groups if rank in group), memories)
        if len(groups) == 1:
            return host
        leads = any(rank == group[0] for group in groups)
        return Hierarchy(host, self.ring(groups, LEADERS) if leads else None, groups)

    def _shared_memory(self, group: Sequence[int], memories: Memories) -> SharedMemory:
        """The ranks of one host, with a connection between every two of them."""
        rank = self._listener.rank
        channels = {peer: self._connect_to(peer, HOST) for peer in group if peer > rank}
        channels.update({peer: self._listener.wait_for(peer, HOST, self._deadline) for peer in group if peer < rank})
        sockets = {group.index(peer): channel.socket for peer, channel in channels.items()}
        pages = [memories[peer][:PAGE_BYTES] for peer in group]
        barrier = HostBarrier(group.index(rank), group, sockets, pages)
        return SharedMemory(rank, barrier, [memories[peer] for peer in group])

    def _connect_to(self, peer: int, purpose: int) -> wire.Channel:
        return self._listener.connect_to(peer, self._addresses[peer], purpose, self._deadline)


def _form_groups(ring: Ring, host: str) -> tuple[list[list[int]], Memories, set[str]]:
    """The groups of ranks that share memory, the memory of each rank in this one's group, and the machines."""
    try:
        own_memory: memory_file.MemoryFile | None = memory_file.MemoryFile(MEMORY_BYTES)
    except OSError:
        own_memory = None
    memories: dict[int, npt.NDArray[np.uint8]] = {
        ring.rank: own_memory.bytes if own_memory else np.zeros(MEMORY_BYTES, np.uint8)
    }
    offers = _gather_json(ring, {"host": host, "memory": own_memory.offer() if own_memory else None})
    for rank, offer in enumerate(offers):
        if own_memory and rank != ring.rank and offer["host"] == host and offer["memory"]:
            memory = memory_file.attach(offer["memory"])
            if memory is not None:
                memories[rank] = memory
    groups = _groups([set(opened) for opened in _gather_json(ring, sorted(memories))])
    if own_memory:
        own_memory.close()
    return groups, memories, {offer["host"].split()[0] for offer in offers}


def _gather_json(ring: Ring, value: object) -> list[Any]:
    """The JSON values of all ranks, in order of rank."""
    limit = _OFFER_BYTES + 8 * ring.size
    payloads = ring.gather(json.dumps(value).encode(), Announcement(RENDEZVOUS), limit)
    return [json.loads(payload) for payload in payloads]


def _groups(opened: Sequence[set[int]]) -> list[list[int]]:
    """The groups of ranks that have all opened each other's memory. opened: whose memory each rank has opened."""
    groups: list[list[int]] = []
    for rank, memories in enumerate(opened):
        for group in groups:
            if all(peer in memories and rank in opened[peer] for peer in group):
                group.append(rank)
                break
        else:
            groups.append([rank])
    return groups
