"""Ring all-reduce over TCP: each rank sends to the next rank of the ring, and receives from the previous one.

The algorithm is that of Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of
workstations": a reduce-scatter, then an all-gather, in which each of n ranks sends and receives 2 (n - 1) / n times the
buffer.

A buffer goes around in pieces. A piece has a chunk of each rank's part (parts.py). Rank r sends chunk r - 1, then chunk
r - 2, r - 3, ...: it adds each chunk that it receives to its own, and sends the sum to the next rank in the next hop.
After n - 1 hops chunk r is complete on rank r (reduce-scatter). In n - 1 more hops the complete chunks are copied to
all ranks (all-gather), so all ranks end with equal bits. Chunks travel in blocks, so that a rank forwards the beginning
of a chunk while it still receives the rest. The first hop of a piece is sent before the last hops of the piece before.

A rank sends its call of the collective before its data. A rank in another collective is thus found before its data are
read, and a rank that is gone by its closed connection; a slow rank is waited for. Notices of either travel against the
direction of the data, where no half-sent data can stand before them.
"""

from __future__ import annotations

import collections
import itertools
from typing import TYPE_CHECKING, Iterator, Sequence

import numpy as np

from . import announcement, parts
from .announcement import CollectiveCall
from .collective import Collective
from .compression import Bfloat16Codec, BlockCodec, ExactCodec
from .ring_link import Queue, RingLink

if TYPE_CHECKING:
    import numpy.typing as npt

#: Size of a chunk. On one machine small chunks are 1.5 times as fast, as all data under way should fit the cache;
#: between machines each hop waits less with large ones.
CHUNK_BYTES = 2 << 20
LOOPBACK_CHUNK_BYTES = 256 << 10

#: Blocks of a chunk. Between machines they hide the time from when data have arrived to when they are sent on. On one
#: machine there is no such time, and each block has a cost.
BLOCKS, LOOPBACK_BLOCKS = 4, 1
MIN_BLOCK_BYTES, BLOCK_BYTES = 128 << 10, 512 << 10


class Ring(Collective):
    """Collectives over a ring of at least two members.

    groups: for each member of the ring, the ranks that it speaks for, in order; by default the ranks are the members.
    """

    link: RingLink

    def __init__(self, rank: int, size: int, link: RingLink, groups: Sequence[Sequence[int]] | None = None) -> None:
        super().__init__(rank, size, link)
        self._groups = groups or [[member] for member in range(size)]
        self._ring_size = len(self._groups)
        self._ring_rank = next(member for member, group in enumerate(self._groups) if rank in group)
        self._landing = np.empty(BLOCK_BYTES, np.uint8)
        self.chunk_bytes = CHUNK_BYTES  # the same on all ranks
        self.blocks = BLOCKS

    def _announce(self, calls: Sequence[CollectiveCall]) -> list[CollectiveCall]:
        all_calls = list(calls)
        outgoing = _queue(*map(announcement.encode, calls))
        hops = (self._receive_calls(hop, all_calls, outgoing) for hop in range(self._ring_size - 1))
        self.link.transfer(outgoing, itertools.chain.from_iterable(hops))
        return sorted(all_calls)

    def _allreduce(
        self, buffer: np.ndarray, calls: Sequence[CollectiveCall], residual: npt.NDArray[np.float32] | None
    ) -> list[CollectiveCall]:
        codec: BlockCodec
        codec = ExactCodec(buffer, self._landing) if residual is None else Bfloat16Codec(buffer, residual)
        bounds = parts.even(len(buffer), self._ring_size)
        return self._circulate(codec, buffer.itemsize, bounds, calls, range(2 * self._ring_size - 2))

    def _reduce_scatter(
        self, buffer: np.ndarray, bounds: parts.Bounds, calls: Sequence[CollectiveCall]
    ) -> list[CollectiveCall]:
        codec = ExactCodec(buffer, self._landing)
        return self._circulate(codec, buffer.itemsize, bounds, calls, range(self._ring_size - 1))

    def _all_gather(
        self, buffer: np.ndarray, bounds: parts.Bounds, calls: Sequence[CollectiveCall]
    ) -> list[CollectiveCall]:
        codec = ExactCodec(buffer, self._landing)
        hops = range(self._ring_size - 1, 2 * self._ring_size - 2)
        return self._circulate(codec, buffer.itemsize, bounds, calls, hops)

    def _circulate(
        self, codec: BlockCodec, itemsize: int, bounds: parts.Bounds, calls: Sequence[CollectiveCall], hops: range
    ) -> list[CollectiveCall]:
        """Exchanges the calls, and takes all pieces through these hops of an all-reduce."""
        pieces = [
            [self._blocks(chunk, itemsize) for chunk in chunks]
            for chunks in parts.pieces(bounds, self.chunk_bytes // itemsize)
        ] or [[[]] * self._ring_size]  # at least one, with which the calls are exchanged
        all_calls = list(calls)
        outgoing = _queue(*map(announcement.encode, calls))
        self.link.transfer(outgoing, self._hops(hops, outgoing, all_calls, pieces, codec))
        return sorted(all_calls)

    def _blocks(self, chunk: slice, itemsize: int) -> list[slice]:
        size = (chunk.stop - chunk.start) * itemsize // self.blocks
        return _cut(chunk, min(max(size, MIN_BLOCK_BYTES), BLOCK_BYTES) // itemsize)

    def _broadcast(self, data: npt.NDArray[np.uint8], root: int) -> None:
        if root in self._groups[self._ring_rank]:
            self.link.transfer(_queue(data), iter(()))
        else:
            outgoing = _queue()
            forwarded = 0 if root in self._groups[(self._ring_rank + 1) % self._ring_size] else 1
            self.link.transfer(outgoing, self._receive_and_forward(outgoing, [data], forwarded))

    def _gather(self, data: npt.NDArray[np.uint8], calls: Sequence[CollectiveCall]) -> Sequence[npt.NDArray[np.uint8]]:
        sizes = [sum(calls[rank].size for rank in group) for group in self._groups]
        gathered = [np.empty(size, np.uint8) for size in sizes]
        gathered[self._ring_rank] = data
        outgoing = _queue(data)
        arriving = [gathered[(self._ring_rank - hop) % self._ring_size] for hop in range(1, self._ring_size)]
        self.link.transfer(outgoing, self._receive_and_forward(outgoing, arriving, self._ring_size - 2))
        return gathered

    def _scatter(self, rows: npt.NDArray[np.uint8], own_rows: npt.NDArray[np.uint8]) -> None:
        """The rows for the last member of the ring go first: each member passes on all but the last that come."""
        behind = [self._groups[member] for member in range(self._ring_size - 1, self._ring_rank, -1)]
        if self._ring_rank == 0:
            own_rows[:] = rows[self._groups[0]]
            self.link.transfer(_queue(*(rows[group].reshape(-1) for group in behind)), iter(()))
        else:
            passing = [np.empty(len(group) * own_rows.shape[1], np.uint8) for group in behind]
            outgoing = _queue()
            arriving = self._receive_and_forward(outgoing, [*passing, own_rows.reshape(-1)], len(passing))
            self.link.transfer(outgoing, arriving)

    # Generators of what is received, as views that the link fills in turn. They append what is forwarded to `outgoing`.

    def _receive_calls(self, hop: int, calls: list[CollectiveCall], outgoing: Queue) -> Iterator[memoryview]:
        """The calls that arrive in a hop, which must match this rank's."""
        for _ in self._groups[(self._ring_rank - 1 - hop) % self._ring_size]:
            record = bytearray(announcement.RECORD_BYTES)
            self.link.announcing = True
            yield memoryview(record)
            self.link.announcing = False
            call = announcement.parse(record)
            if not call.matches(calls[0]):
                raise announcement.disagreement(calls[0], call)
            calls.append(call)
            if hop < self._ring_size - 2:
                outgoing.append(memoryview(record))

    def _hops(
        self,
        hops: range,
        outgoing: Queue,
        calls: list[CollectiveCall],
        pieces: list[list[list[slice]]],
        codec: BlockCodec,
    ) -> Iterator[memoryview]:
        """The hops of all pieces: in each stage the first hop of a piece, then the other hops of the previous piece."""
        first_chunk = (self._ring_rank - 1 - hops[0]) % self._ring_size
        delayed = _queue()  # forwarded by the first hop of a piece, but sent behind the beginning of the next piece
        for stage in range(len(pieces) + 1):
            if stage < len(pieces):
                outgoing.extend(_queue(*map(codec.encode, pieces[stage][first_chunk])))
            outgoing.extend(delayed)
            delayed.clear()
            if stage < len(pieces):
                if stage == 0:
                    yield from self._receive_calls(0, calls, delayed)
                yield from self._hop(hops[0], delayed, pieces[stage], codec, hops[0] != hops[-1])
            if stage > 0:
                for index, hop in enumerate(hops[1:], 1):
                    if stage == 1 and index < self._ring_size - 1:
                        yield from self._receive_calls(index, calls, outgoing)
                    yield from self._hop(hop, outgoing, pieces[stage - 1], codec, hop != hops[-1])

    def _hop(
        self, hop: int, outgoing: Queue, chunks: list[list[slice]], codec: BlockCodec, forwards: bool
    ) -> Iterator[memoryview]:
        """The blocks that arrive in a hop of a piece."""
        adding = hop < self._ring_size - 1
        for block in chunks[(self._ring_rank - 2 - hop) % self._ring_size]:
            landing = codec.landing(block, adding)
            yield landing.view(np.uint8).data
            forwarded = codec.accept(block, landing, adding)
            if forwards:
                outgoing.append(forwarded.view(np.uint8).data)

    def _receive_and_forward(
        self, outgoing: Queue, arrays: Sequence[npt.NDArray[np.uint8]], forwarded: int
    ) -> Iterator[memoryview]:
        """Fills `arrays`, and forwards the first `forwarded` of them."""
        for index, data in enumerate(arrays):
            for block in _cut(slice(0, len(data)), BLOCK_BYTES):
                view = data[block].data
                yield view
                if index < forwarded:
                    outgoing.append(view)


def _queue(*buffers: bytes | np.ndarray) -> Queue:
    views = (memoryview(b) if isinstance(b, bytes) else b.view(np.uint8).data for b in buffers)
    return collections.deque(view for view in views if view)


def _cut(span: slice, step: int) -> list[slice]:
    """Consecutive slices of `step` elements."""
    return [slice(start, min(start + step, span.stop)) for start in range(span.start, span.stop, step)]
