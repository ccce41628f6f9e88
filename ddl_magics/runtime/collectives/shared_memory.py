"""All-reduce through shared memory on one host: a reduce-scatter and an all-gather whose data never leave memory.

A buffer goes through in pieces that fit the processor's cache, so main memory is read once and written once for any
number of ranks. A piece has a slice of each rank's part (parts.py), which this rank sums. A piece takes three stages:
each rank copies the slices that others sum into its shared memory, sums its own slice directly from its buffer and
their memory, and copies their sums back. Three consecutive pieces are in these stages at a time, with a barrier after
each stage: when all ranks have arrived, the next stage can read what this one wrote, and can overwrite what this one
read. One rank sums each slice, so all ranks end with equal bits.

A reduce-scatter alone ends with the sum, an all-gather begins with it: each takes two stages. As neither needs room for
both, its pieces are larger, and the two together have as many barriers as one all-reduce.

The calls of the ranks are exchanged and compared with the first barrier, before any data are read.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Callable, Iterator, Sequence

import numpy as np

from . import parts
from .announcement import CollectiveCall
from .collective import Collective
from .host_barrier import PAGE_BYTES, HostBarrier

if TYPE_CHECKING:
    import numpy.typing as npt

    Bytes = npt.NDArray[np.uint8]

#: The pieces of all ranks together should fit the cache that the cores share.
PIECE_BYTES = 1 << 20
_SLICE_BYTES = PIECE_BYTES // 2  # that a rank sums: there are two ranks or more

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
        pieces = self._sliced(buffer, parts.even(len(buffer), self.size), PIECE_BYTES // self.size, self._sums)
        return self._pipeline(calls[0], pieces, [_Piece.copy_in, _Piece.add_and_share, _Piece.copy_out])

    def _reduce_scatter(
        self, buffer: np.ndarray, bounds: parts.Bounds, calls: Sequence[CollectiveCall]
    ) -> list[CollectiveCall]:
        slice_bytes = PIECE_BYTES // max(1, self.size - 1)  # those of the others fill an area
        pieces = self._sliced(buffer, bounds, slice_bytes, self._sums)
        return self._pipeline(calls[0], pieces, [_Piece.copy_in, _Piece.add])

    def _all_gather(
        self, buffer: np.ndarray, bounds: parts.Bounds, calls: Sequence[CollectiveCall]
    ) -> list[CollectiveCall]:
        pieces = self._sliced(buffer, bounds, PIECE_BYTES, self._inputs)  # the larger areas, as nothing is summed
        return self._pipeline(calls[0], pieces, [_Piece.share, _Piece.copy_out])

    def _sliced(
        self, buffer: np.ndarray, bounds: parts.Bounds, slice_bytes: int, sums: list[list[Bytes]]
    ) -> list[_Piece]:
        """The pieces of a buffer, whose slices have `slice_bytes` at most. sums: the areas for what ranks share."""
        pieces = []
        for slices in parts.pieces(bounds, slice_bytes // buffer.itemsize) if self.size > 1 else ():
            area = self._next_area()
            areas = [areas[area] for areas in self._inputs], [areas[area] for areas in sums]
            pieces.append(_Piece(self._group_rank, [buffer[rank_slice] for rank_slice in slices], *areas))
        return pieces

    def _pipeline(
        self, call: CollectiveCall, pieces: Sequence[_Piece], steps: Sequence[Callable[[_Piece], None]]
    ) -> list[CollectiveCall]:
        """Takes each piece through `steps`, in each stage one step behind the piece before it. Exchanges the calls."""
        all_calls: list[CollectiveCall] = []
        for stage in range(len(pieces) + len(steps) - 1):
            if stage > 1:
                self.link.wait()
            for index in reversed(range(len(steps))):
                if 0 <= stage - index < len(pieces):
                    steps[index](pieces[stage - index])
            if stage == 0:
                all_calls = self.link.announce(call)
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

    def _next_area(self) -> int:
        self._area = 1 - self._area
        return self._area


class _Piece:
    """A piece of a buffer on its way through shared memory.

    slices: of the buffer, for each rank the one that it sums; inputs, sums: the areas of all ranks for this piece.
    """

    def __init__(self, group_rank: int, slices: list[np.ndarray], inputs: list[Bytes], sums: list[Bytes]) -> None:
        self._group_rank, self._slices, self._inputs, self._sums = group_rank, slices, inputs, sums
        self._own = slices[group_rank]
        self._starts = list(itertools.accumulate((rank_slice.nbytes for rank_slice in slices), initial=0))

    def copy_in(self) -> None:
        """Copies the slices that others sum into this rank's shared memory."""
        for peer, rank_slice in self._others():
            self._input(self._group_rank, peer)[:] = rank_slice

    def add(self) -> None:
        """Sums this rank's slice in its buffer, in order of rank."""
        addends = [self._input(peer, self._group_rank) for peer, _ in self._others()]
        before, after = addends[: self._group_rank], addends[self._group_rank :]
        if before:
            total = before[0]
            for addend in before[1:]:
                total = np.add(total, addend, out=self._sum(self._group_rank))
            np.add(total, self._own, out=self._own)
        for addend in after:
            np.add(self._own, addend, out=self._own)

    def share(self) -> None:
        """Copies this rank's slice to where the others read it."""
        self._sum(self._group_rank)[:] = self._own

    def add_and_share(self) -> None:
        self.add()
        self.share()

    def copy_out(self) -> None:
        """Copies the slices that the others share into this rank's buffer."""
        for peer, rank_slice in self._others():
            rank_slice[:] = self._sum(peer)

    def _others(self) -> list[tuple[int, np.ndarray]]:
        return [(peer, rank_slice) for peer, rank_slice in enumerate(self._slices) if peer != self._group_rank]

    def _input(self, rank: int, summing: int) -> np.ndarray:
        """The slice that `summing`, another rank, sums, in the shared memory of `rank`, which has all but its own."""
        begin = self._starts[summing] - (self._slices[rank].nbytes if rank < summing else 0)
        return self._view(self._inputs[rank][begin:], summing)

    def _sum(self, rank: int) -> np.ndarray:
        return self._view(self._sums[rank], rank)

    def _view(self, area: Bytes, rank: int) -> np.ndarray:
        """The beginning of an area as the slice that `rank` sums."""
        return area[: self._slices[rank].nbytes].view(self._own.dtype)


def _areas(memory: Bytes, begin: int, size: int) -> list[Bytes]:
    return [memory[begin + i * size : begin + (i + 1) * size] for i in range(2)]
