"""All-reduce over TCP: the ranks stand in a ring, each sends to the next and receives from the one before it.

A buffer goes through in pieces, each cut into as many chunks as there are ranks. Rank r sends chunk r, then r-1, r-2,
...; each chunk that comes in is added to the own one and goes on to the next rank: after size-1 hops every chunk is
complete on one rank (reduce-scatter), and size-1 hops more bring it to all (all-gather). What a rank sends in one hop
is what it received in the hop before: so data flow through in blocks, without waiting for a hop to end, and since a
complete chunk is only ever copied, all ranks end with equal bits. The first hop of a piece goes ahead of the others of
the piece before.

With its data a rank sends what it says of itself, its `Part` (parts.py). A rank that stands in another collective is
known before its data is read, one that is gone by its closed connection; one that is slow is waited for. News of either
goes around the ring against the flow of the data, where nothing is ever half sent.
"""

import collections
import itertools
from typing import Iterator, List, Optional, Sequence, Union

import numpy as np

from . import parts
from .collective import Collective
from .compression import Exact, Rounded
from .flow import Flow, Queue
from .parts import Entry

#: A buffer goes around in pieces of a chunk for each rank. On one machine, where all that is under way should be in the
#: cache, small ones are half as fast again; between machines each hop waits for less with large ones.
CHUNK_BYTES = 2 << 20
LOOPBACK_CHUNK_BYTES = 256 << 10

#: A chunk goes on in blocks, each while the next one comes in: between machines that hides the time from when a block
#: has arrived to when it is sent on. On one machine there is no such time, but each block costs some.
BLOCKS, LOOPBACK_BLOCKS = 4, 1
LEAST_BLOCK_BYTES, BLOCK_BYTES = 128 << 10, 512 << 10


class Ring(Collective[Flow]):
    """A rank's place in a ring; alone it needs no `flow`.

    groups: which ranks each place of the ring speaks for, where that is not one each.
    """

    def __init__(
        self, rank: int, size: int, flow: Optional[Flow] = None, groups: Optional[Sequence[Sequence[int]]] = None
    ) -> None:
        super().__init__(rank, size, flow)
        self._groups = groups or [[place] for place in range(size)]
        self._places = len(self._groups)
        self._place = next(place for place, group in enumerate(self._groups) if rank in group)
        self._landing = np.empty(BLOCK_BYTES, np.uint8)
        self.chunk_bytes = CHUNK_BYTES  # the same on all ranks
        self.blocks = BLOCKS

    def _meet(self, link: Flow, mine: Sequence[Entry]) -> List[Entry]:
        entries = list(mine)
        outgoing = _outgoing(*map(parts.announcement, mine))
        hops = (self._announced(link, hop, entries, outgoing) for hop in range(self._places - 1))
        link.circulate(outgoing, itertools.chain.from_iterable(hops))
        return sorted(entries)

    def _allreduce(
        self, link: Flow, buffer: np.ndarray, mine: Sequence[Entry], residual: Optional[np.ndarray]
    ) -> List[Entry]:
        entries = list(mine)
        ways = Exact(buffer, self._landing) if residual is None else Rounded(buffer, residual)
        pieces = [self._chunks(piece, buffer.itemsize) for piece in self._pieces(buffer)]
        outgoing = _outgoing(*map(parts.announcement, mine))
        link.circulate(outgoing, self._reduce(link, outgoing, entries, pieces, ways))
        return sorted(entries)

    def _pieces(self, buffer: np.ndarray) -> List[slice]:
        """At least one, in which the ranks meet."""
        return _cut(slice(0, len(buffer)), self.chunk_bytes * self._places // buffer.itemsize) or [slice(0, 0)]

    def _chunks(self, piece: slice, itemsize: int) -> List[List[slice]]:
        """A piece's chunks, each as its blocks."""
        length = piece.stop - piece.start
        bounds = [piece.start + length * i // self._places for i in range(self._places + 1)]
        size = length * itemsize // self._places // self.blocks
        step = min(max(size, LEAST_BLOCK_BYTES), BLOCK_BYTES) // itemsize
        return [_cut(slice(bounds[i], bounds[i + 1]), step) for i in range(self._places)]

    def _broadcast(self, link: Flow, data: np.ndarray, root: int) -> None:
        if root in self._groups[self._place]:
            link.circulate(_outgoing(data), iter(()))
        else:
            outgoing = _outgoing()
            onward = 0 if root in self._groups[(self._place + 1) % self._places] else 1
            link.circulate(outgoing, self._pass_on(outgoing, [data], onward))

    def _gather(self, link: Flow, data: np.ndarray, entries: Sequence[Entry]) -> List[np.ndarray]:
        sizes = [sum(entries[rank].size for rank in group) for group in self._groups]
        gathered = [np.empty(size, np.uint8) for size in sizes]
        gathered[self._place] = data
        outgoing = _outgoing(data)
        others = [gathered[(self._place - hop) % self._places] for hop in range(1, self._places)]
        link.circulate(outgoing, self._pass_on(outgoing, others, self._places - 2))
        return gathered

    # What comes in, as views to be filled one after the other; what goes out is what came in one hop before.

    def _announced(self, link: Flow, hop: int, entries: List[Entry], outgoing: Queue) -> Iterator[memoryview]:
        """The announcements that come in at this hop: they must agree with our own."""
        for _ in self._groups[(self._place - 1 - hop) % self._places]:
            record = bytearray(parts.RECORD_BYTES)
            link.meeting = True
            yield memoryview(record)
            link.meeting = False
            entry = parts.parse(record)
            if not entry.agrees(entries[0]):
                raise parts.disagreement(entries[0], entry)
            entries.append(entry)
            if hop < self._places - 2:
                outgoing.append(memoryview(record))

    def _reduce(
        self,
        link: Flow,
        outgoing: Queue,
        entries: List[Entry],
        pieces: List[List[List[slice]]],
        ways: Union[Exact, Rounded],
    ) -> Iterator[memoryview]:
        """The first hop of each piece, then the further hops of the piece before."""
        held = _outgoing()  # of the first hop, until the next piece has been sent on its way
        for stage in range(len(pieces) + 1):
            if stage < len(pieces):
                outgoing.extend(_outgoing(*map(ways.leaving, pieces[stage][self._place])))
            outgoing.extend(held)
            held.clear()
            if stage < len(pieces):
                if stage == 0:
                    yield from self._announced(link, 0, entries, held)
                yield from self._hop(0, held, pieces[stage], ways)
            if stage > 0:
                for hop in range(1, 2 * self._places - 2):
                    if stage == 1 and hop < self._places - 1:
                        yield from self._announced(link, hop, entries, outgoing)
                    yield from self._hop(hop, outgoing, pieces[stage - 1], ways)

    def _hop(
        self, hop: int, outgoing: Queue, chunks: List[List[slice]], ways: Union[Exact, Rounded]
    ) -> Iterator[memoryview]:
        """What comes in at one hop of a piece."""
        adding = hop < self._places - 1
        for block in chunks[(self._place - 1 - hop) % self._places]:
            landing = ways.landing(block, adding)
            yield landing.view(np.uint8).data
            onward = ways.landed(block, landing, adding)
            if hop < 2 * self._places - 3:
                outgoing.append(onward.view(np.uint8).data)

    def _pass_on(self, outgoing: Queue, arrays: Sequence[np.ndarray], onward: int) -> Iterator[memoryview]:
        """Fills `arrays`; the first `onward` of them go on to the next rank."""
        for index, data in enumerate(arrays):
            for place in _cut(slice(0, len(data)), BLOCK_BYTES):
                block = data[place].data
                yield block
                if index < onward:
                    outgoing.append(block)


def _outgoing(*buffers) -> Queue:
    views = (memoryview(b) if isinstance(b, bytes) else b.view(np.uint8).data for b in buffers)
    return collections.deque(view for view in views if view)


def _cut(whole: slice, step: int) -> List[slice]:
    """Slices of `step` elements, one after the other."""
    return [slice(start, min(start + step, whole.stop)) for start in range(whole.start, whole.stop, step)]
