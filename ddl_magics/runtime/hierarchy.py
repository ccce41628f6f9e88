"""All-reduce over several hosts, some with more than one rank: shared memory on each host, TCP between the hosts.

The ranks of a host sum among themselves, the first of each, its leader, sums with the other leaders in a ring, and what
comes out goes to the ranks of its host. So a buffer crosses the network once for each host, not for each rank, however
the ranks are spread.
"""

from typing import List, Optional, Sequence, Union

import numpy as np

from . import parts
from .collective import Collective
from .flow import Flow
from .mesh import Mesh
from .parts import Diverged, Entry, PeerLost
from .ring import Ring
from .shared_memory import SharedMemory


class Links:
    """The connections of a rank to the others of its host, and of a leader to those of its ring as one."""

    def __init__(self, mesh: Mesh, flow: Optional[Flow]) -> None:
        self.mesh, self.flow = mesh, flow
        self._all: List[Union[Mesh, Flow]] = [mesh, flow] if flow is not None else [mesh]

    @property
    def completed(self) -> int:
        return self.mesh.completed

    @completed.setter
    def completed(self, count: int) -> None:
        for link in self._all:
            link.completed = count

    @property
    def clean(self) -> bool:
        return all(link.clean for link in self._all)

    @property
    def waiting(self) -> float:
        return sum(link.waiting for link in self._all)

    @property
    def wire(self) -> float:
        return sum(link.wire for link in self._all)

    def begin(self) -> None:
        for link in self._all:
            link.begin()

    def tell(self, news: Union[PeerLost, Diverged], forward: bool) -> None:
        for link in self._all:
            link.tell(news, forward)

    def settle(self) -> None:
        for link in self._all:
            link.settle()

    def hang_up(self) -> None:
        for link in self._all:
            link.hang_up()

    def close(self) -> None:
        for link in self._all:
            link.close()


class Hierarchy(Collective[Links]):
    """A rank's place among `size` ranks on several hosts.

    host: this rank's place among those of its host; ring: its place among the leaders, if it is one.
    groups: the ranks of each host.
    """

    def __init__(self, host: SharedMemory, ring: Optional[Ring], groups: Sequence[Sequence[int]]) -> None:
        super().__init__(host.rank, sum(map(len, groups)), Links(host.link, ring.link if ring else None))
        self._host, self._ring, self._groups = host, ring, groups
        self._group = next(group for group in groups if host.rank in group)

    def _meet(self, link: Links, mine: Sequence[Entry]) -> List[Entry]:
        entries = self._host._meet(link.mesh, mine)
        if self._ring is not None:
            entries = self._ring._meet(link.flow, entries)
        return self._told(link, entries)

    def _allreduce(
        self, link: Links, buffer: np.ndarray, mine: Sequence[Entry], residual: Optional[np.ndarray]
    ) -> List[Entry]:
        entries = self._host._allreduce(link.mesh, buffer, mine, None)
        if self._ring is not None:
            entries = self._ring._allreduce(link.flow, buffer, entries, residual)
        entries = self._told(link, entries)
        self._host._broadcast(link.mesh, buffer.view(np.uint8), self._group[0])
        return entries

    def _broadcast(self, link: Links, data: np.ndarray, root: int) -> None:
        if root in self._group:
            self._host._broadcast(link.mesh, data, root)
        if self._ring is not None:
            self._ring._broadcast(link.flow, data, root)
        if root not in self._group:
            self._host._broadcast(link.mesh, data, self._group[0])

    def _gather(self, link: Links, data: np.ndarray, entries: Sequence[Entry]) -> List[np.ndarray]:
        everything = np.empty(sum(entry.size for entry in entries), np.uint8)
        mine = np.concatenate(self._host._gather(link.mesh, data, [entries[rank] for rank in self._group]))
        if self._ring is not None:
            np.concatenate(self._ring._gather(link.flow, mine, entries), out=everything)
        self._host._broadcast(link.mesh, everything, self._group[0])
        ranks = [rank for group in self._groups for rank in group]
        ends = np.cumsum([entries[rank].size for rank in ranks])
        pieces = dict(zip(ranks, np.split(everything, ends[:-1])))
        return [pieces[rank] for rank in range(self.size)]

    def _told(self, link: Links, entries: List[Entry]) -> List[Entry]:
        """The entries of all ranks, which the leader knows, on every rank of its host."""
        told = np.empty((self.size, parts.RECORD_BYTES), np.uint8)
        if self._ring is not None:
            told[:] = np.frombuffer(b"".join(map(parts.announcement, entries)), np.uint8).reshape(told.shape)
        self._host._broadcast(link.mesh, told.reshape(-1), self._group[0])
        return [parts.parse(bytearray(record)) for record in told]
