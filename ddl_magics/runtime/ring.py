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

BLOCK_BYTES = 512 << 10  # small enough to be added while it is in the cache of a core, and few enough calls


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

    def _meet(self, link: Flow, mine: Sequence[Entry]) -> List[Entry]:
        entries = list(mine)
        outgoing = _outgoing(*map(parts.announcement, mine))
        hops = (self._announced(link, hop, entries, outgoing) for hop in range(self._places - 1))
        link.circulate(outgoing, itertools.chain.from_iterable(hops))
        return sorted(entries)

    def _allreduce(self, link: Flow, buffer: np.ndarray, mine: Sequence[Entry]) -> List[Entry]:
        entries = list(mine)
        bounds = [len(buffer) * i // self._places for i in range(self._places + 1)]
        chunks = [buffer[bounds[i] : bounds[i + 1]] for i in range(self._places)]
        outgoing = _outgoing(*map(parts.announcement, mine), chunks[self._place])
        link.circulate(outgoing, self._reduce(link, outgoing, entries, chunks))
        return sorted(entries)

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
        self, link: Flow, outgoing: Queue, entries: List[Entry], chunks: List[np.ndarray]
    ) -> Iterator[memoryview]:
        last = 2 * self._places - 3
        for hop in range(last + 1):
            adding = hop < self._places - 1
            if adding:
                yield from self._announced(link, hop, entries, outgoing)
            for block in _blocks(chunks[(self._place - 1 - hop) % self._places]):
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
