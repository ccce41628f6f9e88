"""All-reduce through shared memory on one host: a reduce-scatter and an all-gather whose data never leave memory.

A buffer goes through in pieces that fit the processor's cache, so main memory is read once and written once for any
number of ranks. Of each piece, rank r sums slice r. A piece takes three stages: each rank copies the slices that others
sum into its shared memory, sums its own slice directly from its buffer and their memory, and copies their sums back.
Three consecutive pieces are in these stages at a time, with a barrier after each stage: when all ranks have arrived,
the next stage can read what this one wrote, and can overwrite what this one read. One rank sums each slice, so all
ranks end with equal bits.

The calls of the ranks are exchanged and compared with the first barrier, before any data are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterator, Sequence

import numpy as np

from .announcement import CollectiveCall
from .collective import Collective
from .host_barrier import PAGE_BYTES, HostBarrier

if TYPE_CHECKING:
    import numpy.typing as npt

    Bytes = npt.NDArray[np.uint8]

#: The pieces of all ranks together should fit the cache that the cores share.
PIECE_BYTES = 1 << 20
_SLICE_BYTES = PIECE_BYTES // 2 + 64  # for two ranks or more, and one element more if they do not divide the piece

#: Shared memory of a rank: its page, two areas for its pieces and two for the slices that it sums, each used in turn.
MEMORY_BYTES = PAGE_BYTES + 2 * PIECE_BYTES + 2 * _SLICE_BYTES


class SharedMemory(Collective):
    """Collectives among the ranks of one host. memories: MEMORY_BYTES of uint8 for each, in the order of the ranks."""

    link: HostBarrier

    def __init__(self, rank: int, barrier: HostBarrier, memories: Sequence[Bytes]) -> None:
        super().__init__(rank, barrier.size, barrier)
        self._group_rank = barrier.group_rank
        self._inputs = [_areas(memory, PAGE_BYTES, PIECE_BYTES) for memory in memories]
        self._sums = [_areas(memory, PAGE_BYTES + 2 * PIECE_BYTES, _SLICE_BYTES) for memory in memories]
        self._area = 0  # which of the two areas the last piece used

    def _announce(self, calls: Sequence[CollectiveCall]) -> list[CollectiveCall]:
        return self.link.announce(calls[0])

    def _allreduce(
        self, buffer: np.ndarray, calls: Sequence[CollectiveCall], residual: npt.NDArray[np.float32] | None
    ) -> list[CollectiveCall]:
        barrier = self.link
        all_calls: list[CollectiveCall] = []
        pieces = [self._piece(data) for data in self._pieces(buffer)]
        for stage in range(len(pieces) + 2):
            if stage > 1:
                barrier.wait()
                pieces[stage - 2].copy_out()
            if 1 <= stage <= len(pieces):
                pieces[stage - 1].add()
            if stage < len(pieces):
                pieces[stage].copy_in()
            if stage == 0:
                all_calls = barrier.announce(calls[0])
        return all_calls

    def _broadcast(self, data: Bytes, root: int) -> None:
        root_in_group = self.link.ranks.index(root)
        for piece in self._pieces(data):
            shared = self._inputs[root_in_group][self._next_area()][: len(piece)]
            if self._group_rank == root_in_group:
                shared[:] = piece
            self.link.wait()
            if self._group_rank != root_in_group:
                piece[:] = shared

    def _gather(self, data: Bytes, calls: Sequence[CollectiveCall]) -> Sequence[Bytes]:
        gathered = [np.empty(call.size, np.uint8) for call in calls]
        gathered[self._group_rank] = data
        for begin in range(0, max(call.size for call in calls), PIECE_BYTES):
            area = self._next_area()
            own_piece = data[begin : begin + PIECE_BYTES]
            self._inputs[self._group_rank][area][: len(own_piece)] = own_piece
            self.link.wait()
            for peer, peer_data in enumerate(gathered):
                if peer != self._group_rank:
                    piece = peer_data[begin : begin + PIECE_BYTES]
                    piece[:] = self._inputs[peer][area][: len(piece)]
        return gathered

    def _scatter(self, rows: Bytes, own_rows: Bytes) -> None:
        width = PIECE_BYTES // self.size
        for begin in range(0, own_rows.shape[1] if self.size > 1 else 0, width):
            piece = own_rows[0, begin : begin + width]
            shared = self._inputs[0][self._next_area()][: self.size * len(piece)].reshape(self.size, len(piece))
            if self._group_rank == 0:
                shared[1:] = rows[1:, begin : begin + width]
            self.link.wait()
            if self._group_rank != 0:
                piece[:] = shared[self._group_rank]
        if self._group_rank == 0:
            own_rows[:] = rows[:1]

    def _pieces(self, data: np.ndarray) -> Iterator[np.ndarray]:
        if self.size == 1:  # the only rank of its host in a hierarchy has nothing to exchange
            return iter(())
        step = PIECE_BYTES // data.itemsize
        return (data[begin : begin + step] for begin in range(0, len(data), step))

    def _piece(self, data: np.ndarray) -> _Piece:
        area = self._next_area()
        inputs, sums = [areas[area] for areas in self._inputs], [areas[area] for areas in self._sums]
        return _Piece(self._group_rank, data, inputs, sums)

    def _next_area(self) -> int:
        self._area = 1 - self._area
        return self._area


class _Piece:
    """A piece of a buffer on its way through shared memory. inputs, sums: the areas of all ranks for it."""

    def __init__(self, group_rank: int, data: np.ndarray, inputs: list[Bytes], sums: list[Bytes]) -> None:
        size = len(inputs)
        bounds = [len(data) * i // size for i in range(size + 1)]
        slices = [data[bounds[i] : bounds[i + 1]] for i in range(size)]
        shared = [area[: data.nbytes].view(data.dtype) for area in inputs]
        summed = [area[: rank_slice.nbytes].view(data.dtype) for area, rank_slice in zip(sums, slices)]
        begin, stop = bounds[group_rank], bounds[group_rank + 1]
        self._in = [(shared[group_rank][:begin], data[:begin]), (shared[group_rank][stop:], data[stop:])]
        self._addends = [slices[p] if p == group_rank else shared[p][begin:stop] for p in range(size)]
        self._sum, self._slice = summed[group_rank], slices[group_rank]
        self._out = [(slices[p], summed[p]) for p in range(size) if p != group_rank]

    def copy_in(self) -> None:
        """Copies the slices that others sum into this rank's shared memory."""
        for shared, source in self._in:
            shared[:] = source

    def add(self) -> None:
        """Sums this rank's slice, in order of rank."""
        np.add(self._addends[0], self._addends[1], out=self._sum)
        for addend in self._addends[2:]:
            np.add(self._sum, addend, out=self._sum)
        self._slice[:] = self._sum

    def copy_out(self) -> None:
        """Copies the sums of the others into this rank's buffer."""
        for target, shared in self._out:
            target[:] = shared


def _areas(memory: Bytes, begin: int, size: int) -> list[Bytes]:
    return [memory[begin + i * size : begin + (i + 1) * size] for i in range(2)]
