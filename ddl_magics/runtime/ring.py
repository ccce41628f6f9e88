"""All-reduce over TCP: the ranks stand in a ring, each sends to the next and receives from the one before it.

A buffer is cut into as many chunks as there are ranks. Rank r sends chunk r, then r-1, r-2, ...; each chunk that comes
in is added to the own one and goes on to the next rank: after size-1 hops every chunk is complete on one rank
(reduce-scatter), and size-1 hops more bring it to all (all-gather). What a rank sends in one hop is what it received
in the hop before: so data flow through in blocks, without waiting for a hop to end, and since a complete chunk is only
ever copied, all ranks end with equal bits.

With its data a rank sends what it says of itself, its `Part` (parts.py). A rank that stands in another collective is
known before its data is read, one that is gone by its closed connection; one that is slow is waited for. News of either
goes around the ring against the flow of the data, where nothing is ever half sent.
"""

import collections
import itertools
from typing import Iterator, List, Optional, Sequence

import numpy as np

from . import parts
from .collective import Collective
from .flow import Flow, Queue
from .parts import Entry

BLOCK_BYTES = 256 << 10  # small enough to be added while it is in the processor's cache


class Ring(Collective[Flow]):
    """A rank's place in a ring of `size` ranks; alone it needs no `flow`."""

    def __init__(self, rank: int, size: int, flow: Optional[Flow] = None) -> None:
        super().__init__(rank, size, flow)
        self._landing = np.empty(BLOCK_BYTES, np.uint8)

    def _meet(self, link: Flow, mine: Entry) -> List[Entry]:
        entries = [mine] * self.size  # each to be replaced by its own rank's
        outgoing = _outgoing(parts.announcement(mine))
        hops = (self._announced(hop, entries, outgoing) for hop in range(self.size - 1))
        link.circulate(outgoing, itertools.chain.from_iterable(hops))
        return entries

    def _allreduce(self, link: Flow, buffer: np.ndarray, mine: Entry) -> List[Entry]:
        entries = [mine] * self.size
        bounds = [len(buffer) * i // self.size for i in range(self.size + 1)]
        chunks = [buffer[bounds[i] : bounds[i + 1]] for i in range(self.size)]
        outgoing = _outgoing(parts.announcement(mine), chunks[self.rank])
        link.circulate(outgoing, self._reduce(outgoing, entries, chunks))
        return entries

    def _broadcast(self, link: Flow, data: np.ndarray, mine: Entry, root: int) -> List[Entry]:
        entries = self._meet(link, mine)
        if self.rank == root:
            link.circulate(_outgoing(data), iter(()))
        else:
            outgoing = _outgoing()
            onward = 0 if (self.rank + 1) % self.size == root else 1
            link.circulate(outgoing, self._pass_on(outgoing, [data], onward))
        return entries

    def _gather(self, link: Flow, data: np.ndarray, entries: List[Entry]) -> List[np.ndarray]:
        gathered = [np.empty(entry.size, np.uint8) for entry in entries]
        gathered[self.rank] = data
        outgoing = _outgoing(data)
        others = [gathered[(self.rank - hop) % self.size] for hop in range(1, self.size)]
        link.circulate(outgoing, self._pass_on(outgoing, others, self.size - 2))
        return gathered

    # What comes in, as views to be filled one after the other; what goes out is what came in one hop before.

    def _announced(self, hop: int, entries: List[Entry], outgoing: Queue) -> Iterator[memoryview]:
        """The announcement that comes in at this hop: it must agree with our own."""
        record = bytearray(parts.RECORD_BYTES)
        yield memoryview(record)
        entry = parts.parse(record)
        mine = entries[self.rank]
        if not entry.agrees(mine):
            raise parts.disagreement(mine, entry)
        entries[(self.rank - 1 - hop) % self.size] = entry
        if hop < self.size - 2:
            outgoing.append(memoryview(record))

    def _reduce(self, outgoing: Queue, entries: List[Entry], chunks: List[np.ndarray]) -> Iterator[memoryview]:
        last = 2 * self.size - 3
        for hop in range(last + 1):
            adding = hop < self.size - 1
            if adding:
                yield from self._announced(hop, entries, outgoing)
            for block in _blocks(chunks[(self.rank - 1 - hop) % self.size]):
                if adding:
                    landing = self._landing[: block.nbytes]
                    yield landing.data
                    np.add(block, landing.view(block.dtype), out=block)
                else:
                    yield block.view(np.uint8).data
                if hop < last:
                    outgoing.append(block.view(np.uint8).data)

    def _pass_on(self, outgoing: Queue, arrays: Sequence[np.ndarray], onward: int) -> Iterator[memoryview]:
        """Fills `arrays`; the first `onward` of them go on to the next rank."""
        for index, data in enumerate(arrays):
            for block in _blocks(data):
                yield block.data
                if index < onward:
                    outgoing.append(block.data)


def _outgoing(*buffers) -> Queue:
    views = (memoryview(b) if isinstance(b, bytes) else b.view(np.uint8).data for b in buffers)
    return collections.deque(view for view in views if view)


def _blocks(data: np.ndarray) -> Iterator[np.ndarray]:
    step = BLOCK_BYTES // data.itemsize
    return (data[start : start + step] for start in range(0, len(data), step))
