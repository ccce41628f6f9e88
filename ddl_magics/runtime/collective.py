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
import contextlib
import itertools
import queue
import threading
import time
from typing import Iterator, List, Optional, Sequence, Tuple, Union

import numpy as np

from . import parts, wire
from .flow import Flow, Queue
from .parts import Diverged, Entry, Part, PeerLost

__all__ = ["Diverged", "Part", "PeerLost", "Ring", "connect_ring", "listen"]

BLOCK_BYTES = 256 << 10  # small enough to be added while it is in the processor's cache
CONNECT_SECONDS = 30.0


class Ring:
    """A rank's place among `size` ranks; every collective must be called by all of them, in the same order.

    Collectives raise `Diverged` where a rank is in another one, `PeerLost` where a rank is gone (its `rank` is this
    one's own after `close`), and the same again ever after. They have no timeout: `close`, from any thread, ends a
    wait. `waited` is the time the last collective took, in seconds.
    """

    def __init__(self, rank: int, size: int, flow: Optional[Flow] = None) -> None:
        self.rank, self.size, self.waited = rank, size, 0.0
        self._flow = flow  # None where there is nobody else
        self._failure: Union[PeerLost, Diverged, None] = None
        self._goodbye: Optional[PeerLost] = None
        self._busy = threading.Lock()
        self._leaving = threading.Lock()
        self._landing = np.empty(BLOCK_BYTES, np.uint8)

    def allreduce(self, buffer: np.ndarray, part: Part) -> List[Part]:
        """Replaces `buffer` (1-D, contiguous, any numeric dtype) by its sum over ranks; the parts in order of rank."""
        size = _bytes(buffer).nbytes
        with self._collective() as flow:
            entries = self._entries(parts.ALLREDUCE, part, size, buffer.dtype)
            if flow is not None:
                bounds = [len(buffer) * i // self.size for i in range(self.size + 1)]
                chunks = [buffer[bounds[i] : bounds[i + 1]] for i in range(self.size)]
                outgoing = _outgoing(parts.announcement(entries[self.rank]), chunks[self.rank])
                with np.errstate(all="ignore"):  # what overflows is the caller's to find in the sum
                    flow.circulate(outgoing, self._reduce(outgoing, entries, chunks))
        return [entry.part for entry in entries]

    def broadcast(self, buffer: np.ndarray, part: Part, root: int = 0) -> List[Part]:
        """Replaces `buffer` on all ranks by the one of rank `root`; the parts in order of rank."""
        data = _bytes(buffer)
        with self._collective() as flow:
            entries = self._entries(parts.BROADCAST, part, data.nbytes, buffer.dtype)
            if flow is not None:
                self._meet(flow, entries)
                if self.rank == root:
                    flow.circulate(_outgoing(data), iter(()))
                else:
                    outgoing = _outgoing()
                    onward = 0 if (self.rank + 1) % self.size == root else 1
                    flow.circulate(outgoing, self._pass_on(outgoing, [data], onward))
        return [entry.part for entry in entries]

    def gather(self, payload: bytes, part: Part, limit: int) -> List[bytes]:
        """The payloads of all ranks, in order of rank. ValueError, on every rank, where one is above `limit` bytes."""
        with self._collective() as flow:
            entries = self._entries(parts.GATHER, part, len(payload), None)
            if flow is not None:
                self._meet(flow, entries)
            fits = all(entry.size <= limit for entry in entries)
            if fits:
                gathered = [np.empty(entry.size, np.uint8) for entry in entries]
                gathered[self.rank][:] = np.frombuffer(payload, np.uint8)
                if flow is not None:
                    outgoing = _outgoing(gathered[self.rank])
                    others = [gathered[(self.rank - hop) % self.size] for hop in range(1, self.size)]
                    flow.circulate(outgoing, self._pass_on(outgoing, others, self.size - 2))
        if not fits:
            most = max(entries, key=lambda entry: entry.size)
            raise ValueError("rank %d brings %d bytes, at most %d can be gathered" % (most.rank, most.size, limit))
        return [data.tobytes() for data in gathered]

    def close(self, goodbye: str) -> None:
        """Leaves the ring: the others get `PeerLost` with `goodbye` as the reason in their next collective.

        A collective that waits in another thread ends with PeerLost at once. Data of completed collectives still
        arrive, unless a peer does not read for seconds.
        """
        with self._leaving:
            if self._goodbye is not None:
                return
            self._goodbye = PeerLost(self.rank, goodbye, self._flow.completed if self._flow else 0)
        flow = self._flow
        if flow is None:
            return
        idle = self._busy.acquire(blocking=False)
        if self._failure is None:
            flow.tell(self._goodbye, forward=idle)
            if idle:
                flow.settle()
        flow.hang_up()
        # A signal handler may call this within a collective of its own thread: then the sockets stay until it is left.
        if idle or self._busy.acquire(timeout=1.0):
            flow.close()
            self._busy.release()

    @contextlib.contextmanager
    def _collective(self) -> Iterator[Optional[Flow]]:
        if not self._busy.acquire(blocking=False):
            raise RuntimeError("another thread is in a collective of this ring")
        start = time.perf_counter()
        flow = self._flow
        try:
            failure = self._goodbye or self._failure
            if failure is not None:
                raise failure
            if flow is None:
                yield None
            else:
                flow.clean = True
                yield flow
                flow.completed += 1
        except (PeerLost, Diverged) as error:
            if self._goodbye is not None:  # what broke is that this rank has left
                raise self._goodbye from None
            self._fail(error)
            raise
        except BaseException:
            # The stream of data has stopped at some place that nobody knows: nothing can follow.
            self._fail(PeerLost(self.rank, "interrupted in a collective"))
            if flow is not None:
                flow.hang_up()
            raise
        finally:
            self.waited = time.perf_counter() - start
            self._busy.release()

    def _fail(self, error: Union[PeerLost, Diverged]) -> None:
        if self._failure is None:
            self._failure = error
            if self._flow is not None:
                self._flow.tell(error, forward=self._flow.clean)

    def _entries(self, operation: int, part: Part, size: int, dtype: Optional[np.dtype]) -> List[Entry]:
        code = parts.dtype_code(dtype) if dtype is not None else ""
        return [Entry(self.rank, operation, size, code, part)] * self.size  # each to be replaced by its own rank's

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

    def _meet(self, flow: Flow, entries: List[Entry]) -> None:
        outgoing = _outgoing(parts.announcement(entries[self.rank]))
        hops = (self._announced(hop, entries, outgoing) for hop in range(self.size - 1))
        flow.circulate(outgoing, itertools.chain.from_iterable(hops))

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


def listen(
    host: str, secret: bytes, run: str, rank: int, attempt: int, size: int
) -> "Tuple[wire.Listener, queue.Queue[wire.Channel]]":
    """Opens this rank's place in the ring: a listener that lets in the rank before it, and where that one appears."""
    arrived: "queue.Queue[wire.Channel]" = queue.Queue()
    before = wire.Identity("rank", (rank - 1) % size, attempt)

    def admit(peer: wire.Identity) -> Optional[str]:
        if peer != before:
            return "attempt %d of rank %d is expected here" % (attempt, before.rank)
        return None if arrived.empty() else "rank %d is here already" % before.rank

    return wire.Listener(host, secret, run, wire.Identity("rank", rank, attempt), admit, arrived.put), arrived


def connect_ring(
    listener: Optional[wire.Listener],
    arrived: "Optional[queue.Queue[wire.Channel]]",
    rank: int,
    size: int,
    addresses: Sequence[wire.Address],
    secret: bytes,
    run: str,
    attempt: int,
    timeout: float = CONNECT_SECONDS,
) -> Ring:
    """Closes the ring: connects to the next rank, waits for the one before, and stops listening.

    `listener` and `arrived` come from `listen` (None for size 1), `addresses` are those of all listeners by rank.
    Raises PeerLost for the neighbour that did not come within `timeout` seconds, or refused.
    """
    if listener is None or arrived is None:
        return Ring(rank, size)
    deadline = time.monotonic() + timeout
    after = (rank + 1) % size
    me, expected = wire.Identity("rank", rank, attempt), wire.Identity("rank", after, attempt)
    host, port = addresses[after]
    try:
        out = wire.connect((host, port), secret, run, me, expected, timeout)
        try:
            into = arrived.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            out.close(0)
            raise PeerLost((rank - 1) % size, "it did not connect within %g s" % timeout) from None
    except (wire.ConnectionLost, wire.Refused) as error:
        raise PeerLost(after, str(error)) from error
    finally:
        listener.close()
    return Ring(rank, size, Flow(rank, size, into.socket, out.socket))


def _outgoing(*buffers) -> Queue:
    views = (memoryview(b) if isinstance(b, bytes) else b.view(np.uint8).data for b in buffers)
    return collections.deque(view for view in views if view)


def _blocks(data: np.ndarray) -> Iterator[np.ndarray]:
    step = BLOCK_BYTES // data.itemsize
    return (data[start : start + step] for start in range(0, len(data), step))


def _bytes(buffer: np.ndarray) -> np.ndarray:
    """`buffer` as bytes, without a copy; ValueError where that cannot be, or where it holds no numbers."""
    if buffer.ndim != 1 or not buffer.flags.c_contiguous or not buffer.flags.writeable:
        raise ValueError("a collective needs a writable, contiguous array of one dimension")
    # bfloat16 and the like, which numpy knows through ml_dtypes, are of kind V but no np.void
    if buffer.dtype.kind not in "iufc" and (buffer.dtype.kind != "V" or buffer.dtype.type is np.void):
        raise ValueError("a collective needs numbers, not %s" % buffer.dtype)
    return buffer.view(np.uint8)
