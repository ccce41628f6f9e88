"""All-reduce on one host: the ranks lay their data into shared memory, each sums a slice of it, and all read the sums.

A buffer goes through in pieces that stay in the processor's cache, so that main memory is read once and written once
whatever the number of ranks. Of a piece a rank copies in what others sum, sums its own slice straight from its buffer
and what they have laid out, and copies out what they have summed. Three pieces are under way at a time, one in each of
these stages, and a barrier follows each stage: that all have come tells both that the next stage can read, and that
what was read before can be overwritten. As every slice is summed by one rank, all end with equal bits.

What each rank says of itself, its `Part`, is known and compared at the first barrier, before any data is read.
"""

from typing import Iterator, List, Optional, Sequence

import numpy as np

from .collective import Collective
from .mesh import PAGE_BYTES, Mesh
from .parts import Entry

#: Of all ranks together these should fit the cache that the cores share.
PIECE_BYTES = 1 << 20
_SLICE_BYTES = PIECE_BYTES // 2 + 64  # of at least two ranks, and an element more where they do not divide

#: What a rank brings: its page, two pieces that it lays out in turn, two slices that it sums.
MEMORY_BYTES = PAGE_BYTES + 2 * PIECE_BYTES + 2 * _SLICE_BYTES


class SharedMemory(Collective[Mesh]):
    """A rank's place among the ranks of one host. memories: MEMORY_BYTES of each rank, in order of rank."""

    def __init__(self, rank: int, mesh: Mesh, memories: Sequence[np.ndarray]) -> None:
        super().__init__(rank, mesh.size, mesh)
        self._place = mesh.place
        self._laid = [_areas(memory, PAGE_BYTES, PIECE_BYTES) for memory in memories]
        self._summed = [_areas(memory, PAGE_BYTES + 2 * PIECE_BYTES, _SLICE_BYTES) for memory in memories]
        self._turn = 0  # counts pieces: which of the two areas is next

    def _meet(self, link: Mesh, mine: Sequence[Entry]) -> List[Entry]:
        return link.meet(mine[0])

    def _allreduce(
        self, link: Mesh, buffer: np.ndarray, mine: Sequence[Entry], residual: Optional[np.ndarray]
    ) -> List[Entry]:
        entries: List[Entry] = []
        pieces = [self._piece(data) for data in self._pieces(buffer)]
        for stage in range(len(pieces) + 2):
            if stage > 1:
                link.barrier()
                pieces[stage - 2].copy_out()
            if 1 <= stage <= len(pieces):
                pieces[stage - 1].add()
            if stage < len(pieces):
                pieces[stage].lay_out()
            if stage == 0:
                entries = link.meet(mine[0])
        return entries

    def _broadcast(self, link: Mesh, data: np.ndarray, root: int) -> None:
        place = link.ranks.index(root)
        for piece in self._pieces(data):
            area = self._laid[place][self._next()][: len(piece)]
            if self._place == place:
                area[:] = piece
            link.barrier()
            if self._place != place:
                piece[:] = area

    def _gather(self, link: Mesh, data: np.ndarray, entries: Sequence[Entry]) -> List[np.ndarray]:
        gathered = [np.empty(entry.size, np.uint8) for entry in entries]
        gathered[self._place] = data
        for begin in range(0, max(entry.size for entry in entries), PIECE_BYTES):
            turn = self._next()
            mine = data[begin : begin + PIECE_BYTES]
            self._laid[self._place][turn][: len(mine)] = mine
            link.barrier()
            for place, whole in enumerate(gathered):
                if place != self._place:
                    piece = whole[begin : begin + PIECE_BYTES]
                    piece[:] = self._laid[place][turn][: len(piece)]
        return gathered

    def _pieces(self, data: np.ndarray) -> Iterator[np.ndarray]:
        if self.size == 1:  # of a host among others: there is nobody to share with
            return iter(())
        step = PIECE_BYTES // data.itemsize
        return (data[begin : begin + step] for begin in range(0, len(data), step))

    def _piece(self, data: np.ndarray) -> "_Piece":
        turn = self._next()
        return _Piece(self._place, data, [areas[turn] for areas in self._laid], [areas[turn] for areas in self._summed])

    def _next(self) -> int:
        self._turn = 1 - self._turn
        return self._turn


class _Piece:
    """A piece of a buffer on its way through shared memory; rank p of the host sums slice p."""

    def __init__(self, place: int, data: np.ndarray, laid: List[np.ndarray], summed: List[np.ndarray]) -> None:
        size = len(laid)
        bounds = [len(data) * i // size for i in range(size + 1)]
        slices = [data[bounds[i] : bounds[i + 1]] for i in range(size)]
        whole = [area[: data.nbytes].view(data.dtype) for area in laid]
        sums = [area[: one.nbytes].view(data.dtype) for area, one in zip(summed, slices)]
        begin, end = bounds[place], bounds[place + 1]
        self._out = [(whole[place][:begin], data[:begin]), (whole[place][end:], data[end:])]
        self._addends = [slices[p] if p == place else whole[p][begin:end] for p in range(size)]
        self._sum, self._slice = sums[place], slices[place]
        self._back = [(slices[p], sums[p]) for p in range(size) if p != place]

    def lay_out(self) -> None:
        """Copies what the others sum into this rank's memory."""
        for there, here in self._out:
            there[:] = here

    def add(self) -> None:
        """Sums this rank's slice, in order of rank."""
        np.add(self._addends[0], self._addends[1], out=self._sum)
        for addend in self._addends[2:]:
            np.add(self._sum, addend, out=self._sum)
        self._slice[:] = self._sum

    def copy_out(self) -> None:
        """Copies what the others have summed into this rank's buffer."""
        for here, there in self._back:
            here[:] = there


def _areas(memory: np.ndarray, begin: int, size: int) -> List[np.ndarray]:
    return [memory[begin + i * size : begin + (i + 1) * size] for i in range(2)]
