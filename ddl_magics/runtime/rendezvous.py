"""How the ranks of a run find each other, and which way their data will travel.

All ranks first close a ring over TCP, which works everywhere. Over it they tell which can open each other's memory
(memory_file.py); those that all can make a group. Then it is
* one group: shared memory. On two cores, 3 MB take a quarter of the time that TCP over loopback takes.
* no group of more than one, as with one rank a host, or in containers that are closed to each other: the ring, in which
  each rank sends and receives 2 (n - 1) / n times the buffer, the least there can be.
* several groups: shared memory in each and a ring of their leaders, as that sends the buffer over the network once for
  each host; a ring of all ranks would send it once for each rank whose successor is on another host.
"""

import json
import time
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

import numpy as np

from . import memory_file, parts, wire
from .collective import Collective
from .flow import Flow
from .hierarchy import Hierarchy
from .mesh import PAGE_BYTES, Mesh
from .parts import Part, PeerLost
from .place import HOST, LEADERS, RING, Place
from .ring import LOOPBACK_BLOCKS, LOOPBACK_CHUNK_BYTES, Ring
from .shared_memory import MEMORY_BYTES, SharedMemory

CONNECT_SECONDS = 30.0
_OFFER_BYTES = 4096


def connect(
    place: Place,
    addresses: Sequence[wire.Address],
    timeout: float = CONNECT_SECONDS,
    host: Optional[str] = None,
) -> Collective:
    """Meets the other ranks, whose places are at `addresses` (by rank), and closes this one's place.

    `host` is what ranks that may share memory have in common, and its first word what all on one machine have:
    `memory_file.host_id()` unless given. PeerLost names the rank that did not come within `timeout` seconds, or
    refused.
    """
    try:
        if place.size == 1:
            return Ring(0, 1)
        meeting = _Meeting(place, addresses, time.monotonic() + timeout)
        ring = meeting.ring([[rank] for rank in range(place.size)], RING)
        try:
            groups, memories, machines = _share(ring, memory_file.host_id() if host is None else host)
            if len(groups) == place.size:
                ring.crosses_network = len(machines) > 1
                if not ring.crosses_network:
                    ring.chunk_bytes, ring.blocks = LOOPBACK_CHUNK_BYTES, LOOPBACK_BLOCKS
                return ring
            together = meeting.shared_memory(next(group for group in groups if place.rank in group), memories)
            if len(groups) > 1:
                leads = any(place.rank == group[0] for group in groups)
                leaders = meeting.ring(groups, LEADERS) if leads else None
                together = Hierarchy(together, leaders, groups)
                together.crosses_network = len(machines) > 1
        except BaseException as error:
            ring.close("it failed to connect: %s" % error)
            raise
        ring.close("it has gone another way")
        return together
    finally:
        place.close()


class _Meeting:
    """Makes this rank's connections to those that it will work with."""

    def __init__(self, place: Place, addresses: Sequence[wire.Address], deadline: float) -> None:
        self._place, self._addresses, self._deadline = place, addresses, deadline

    def ring(self, groups: Sequence[Sequence[int]], purpose: int) -> Ring:
        """A ring of the first rank of each group."""
        place = self._place
        index = next(i for i, group in enumerate(groups) if place.rank == group[0])
        before, after = groups[index - 1][0], groups[(index + 1) % len(groups)][0]
        out = self._call(after, purpose)
        try:
            into = place.answer(before, purpose, self._deadline)
        except PeerLost as lost:
            out.socket.sendall(parts.departure(lost))
            out.close()
            raise
        return Ring(place.rank, place.size, Flow(before, into.socket, after, out.socket), groups)

    def shared_memory(self, group: Sequence[int], memories: Dict[int, np.ndarray]) -> SharedMemory:
        """The ranks of one host, each connected to each."""
        rank = self._place.rank
        channels = {peer: self._call(peer, HOST) for peer in group if peer > rank}
        channels.update({peer: self._place.answer(peer, HOST, self._deadline) for peer in group if peer < rank})
        sockets = {group.index(peer): channel.socket for peer, channel in channels.items()}
        pages = [memories[peer][:PAGE_BYTES] for peer in group]
        return SharedMemory(rank, Mesh(group.index(rank), group, sockets, pages), [memories[peer] for peer in group])

    def _call(self, peer: int, purpose: int) -> wire.Channel:
        return self._place.call(peer, self._addresses[peer], purpose, self._deadline)


def _share(ring: Ring, host: str) -> Tuple[List[List[int]], Dict[int, np.ndarray], Set[str]]:
    """The ranks in groups that share memory, the memory of each rank of this one's group, and the machines."""
    try:
        mine: Optional[memory_file.MemoryFile] = memory_file.MemoryFile(MEMORY_BYTES)
    except OSError:
        mine = None
    memories = {ring.rank: mine.bytes if mine else np.zeros(MEMORY_BYTES, np.uint8)}
    offers = _tell_all(ring, {"host": host, "memory": mine.offer() if mine else None})
    for rank, offer in enumerate(offers):
        if mine and rank != ring.rank and offer["host"] == host and offer["memory"]:
            memory = memory_file.attach(offer["memory"])
            if memory is not None:
                memories[rank] = memory
    groups = _groups([set(opened) for opened in _tell_all(ring, sorted(memories))])
    if mine:
        mine.close()
    return groups, memories, {offer["host"].split()[0] for offer in offers}


def _tell_all(ring: Ring, value: Any) -> List[Any]:
    limit = _OFFER_BYTES + 8 * ring.size
    return [json.loads(told) for told in ring.gather(json.dumps(value).encode(), Part(parts.MEETING), limit)]


def _groups(opened: Sequence[Set[int]]) -> List[List[int]]:
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
