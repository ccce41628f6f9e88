"""All-reduce over several hosts with several ranks each: shared memory on each host, a ring over TCP between hosts.

The ranks of a host sum among themselves. The first of them, the host's leader, sums with the other leaders in a ring,
and broadcasts the result on its host. So a buffer crosses the network once for each host, not once for each rank,
whatever the order of the ranks. The scheme is the hierarchical all-reduce of Jia et al. 2018, "Highly scalable deep
learning training system with mixed-precision".
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Sequence

import numpy as np

from . import announcement
from .announcement import CollectiveCall
from .collective import Collective, Link, Links
from .parts import Bounds
from .ring import Ring
from .shared_memory import SharedMemory

if TYPE_CHECKING:
    import numpy.typing as npt


class Hierarchy(Collective):
    """Collectives over several hosts.

    host: those among the ranks of this host; ring: those among the leaders, if this rank is one; groups: the ranks of
    each host, ascending.
    """

    def __init__(self, host: SharedMemory, ring: Ring | None, groups: Sequence[Sequence[int]]) -> None:
        links: list[Link] = [host.link] if ring is None else [host.link, ring.link]
        super().__init__(host.rank, sum(map(len, groups)), Links(*links))
        self._host, self._ring, self._groups = host, ring, groups
        self._group = next(group for group in groups if host.rank in group)
        self._leader = self._group[0]
        ranks = [rank for group in groups for rank in group]
        self.position = ranks.index(host.rank)
        first = ranks.index(self._leader)
        self._positions = slice(first, first + len(self._group) + 1)  # the bounds of this host's parts

    def _announce(self, calls: Sequence[CollectiveCall]) -> list[CollectiveCall]:
        all_calls = self._host._announce(calls)
        if self._ring is not None:
            all_calls = self._ring._announce(all_calls)
        return self._share(all_calls)

    def _allreduce(
        self, buffer: np.ndarray, calls: Sequence[CollectiveCall], residual: npt.NDArray[np.float32] | None
    ) -> list[CollectiveCall]:
        all_calls = self._host._allreduce(buffer, calls, None)
        if self._ring is not None:
            all_calls = self._ring._allreduce(buffer, all_calls, residual)
        all_calls = self._share(all_calls)
        self._host._broadcast(buffer.view(np.uint8), self._leader)
        return all_calls

    def _reduce_scatter(
        self, buffer: np.ndarray, bounds: Bounds, calls: Sequence[CollectiveCall]
    ) -> list[CollectiveCall]:
        all_calls = self._host._allreduce(buffer, calls, None)
        if self._ring is not None:
            all_calls = self._ring._reduce_scatter(buffer, self._bounds_of_hosts(bounds), all_calls)
        all_calls = self._share(all_calls)
        of_host = bounds[self._positions]
        self._host._broadcast(buffer[of_host[0] : of_host[-1]].view(np.uint8), self._leader)
        return all_calls

    def _all_gather(self, buffer: np.ndarray, bounds: Bounds, calls: Sequence[CollectiveCall]) -> list[CollectiveCall]:
        of_host = bounds[self._positions]
        all_calls = self._host._all_gather(buffer, of_host, calls)
        if self._ring is not None:
            all_calls = self._ring._all_gather(buffer, self._bounds_of_hosts(bounds), all_calls)
        all_calls = self._share(all_calls)
        for of_others in (buffer[: of_host[0]], buffer[of_host[-1] :]):
            self._host._broadcast(of_others.view(np.uint8), self._leader)
        return all_calls

    def _bounds_of_hosts(self, bounds: Bounds) -> list[int]:
        """The bounds of the hosts' parts: those of the ranks of a host are adjacent."""
        return [bounds[position] for position in itertools.accumulate([0, *map(len, self._groups)])]

    def _broadcast(self, data: npt.NDArray[np.uint8], root: int) -> None:
        if root in self._group:
            self._host._broadcast(data, root)
        if self._ring is not None:
            self._ring._broadcast(data, root)
        if root not in self._group:
            self._host._broadcast(data, self._leader)

    def _gather(self, data: npt.NDArray[np.uint8], calls: Sequence[CollectiveCall]) -> Sequence[npt.NDArray[np.uint8]]:
        everything = np.empty(sum(call.size for call in calls), np.uint8)
        of_host = np.concatenate(self._host._gather(data, [calls[rank] for rank in self._group]))
        if self._ring is not None:
            np.concatenate(self._ring._gather(of_host, calls), out=everything)
        self._host._broadcast(everything, self._leader)
        ranks = [rank for group in self._groups for rank in group]
        offsets = np.cumsum([calls[rank].size for rank in ranks])
        pieces = dict(zip(ranks, np.split(everything, offsets[:-1])))
        return [pieces[rank] for rank in range(self.size)]

    def _scatter(self, rows: npt.NDArray[np.uint8], own_rows: npt.NDArray[np.uint8]) -> None:
        of_host = np.empty((len(self._group), own_rows.shape[1]), np.uint8)
        if self._ring is not None:
            self._ring._scatter(rows, of_host)
        self._host._scatter(of_host, own_rows)

    def _share(self, calls: list[CollectiveCall]) -> list[CollectiveCall]:
        """The calls of all ranks, which the leader knows, on every rank of its host."""
        records = np.empty((self.size, announcement.RECORD_BYTES), np.uint8)
        if self._ring is not None:
            records[:] = np.frombuffer(b"".join(map(announcement.encode, calls)), np.uint8).reshape(records.shape)
        self._host._broadcast(records.reshape(-1), self._leader)
        return [announcement.parse(bytearray(record)) for record in records]
