"""What ranks can do together: sum a buffer, hand one out, collect small ones.

How the data travel depends on where the ranks are: rendezvous.py chooses. Common to all ways is what stands here: who
may call when, and that a rank which leaves the common path is named on every other one.
"""

import abc
import contextlib
import threading
import time
from typing import Generic, Iterator, List, NamedTuple, Optional, Sequence, Tuple, TypeVar, Union

import numpy as np

from . import parts
from .parts import Diverged, Entry, Part, PeerLost

__all__ = ["Collective", "Diverged", "Part", "PeerLost"]

Link = TypeVar("Link")  # the connections to the peers: `Flow`, `Mesh`, or both


class Spent(NamedTuple):
    """Where the time of a collective went, in seconds.

    copy: to move and add data on this host; wait: until other ranks came; wire: on the network.
    """

    copy: float = 0.0
    wait: float = 0.0
    wire: float = 0.0


class Collective(abc.ABC, Generic[Link]):
    """A rank's place among `size` ranks; every collective must be called by all of them, in the same order.

    Collectives raise `Diverged` where a rank is in another one, `PeerLost` where a rank is gone (its `rank` is this
    one's own after `close`), and the same again ever after. They have no timeout: a rank that is slow is waited for,
    and `close`, from any thread, ends a wait. `waited` is the time the last collective took, in seconds, and `spent`
    where it went. `crosses_network`: not all ranks are on one machine.
    """

    crosses_network = False

    def __init__(self, rank: int, size: int, link: Optional[Link] = None) -> None:
        self.rank, self.size = rank, size
        self.waited, self.spent = 0.0, Spent()
        self.link = link  # None where there is nobody else
        self._failure: Union[PeerLost, Diverged, None] = None
        self._goodbye: Optional[PeerLost] = None
        self._busy = threading.Lock()
        self._leaving = threading.Lock()

    def allreduce(self, buffer: np.ndarray, part: Part, residual: Optional[np.ndarray] = None) -> List[Part]:
        """Replaces `buffer` (1-D, contiguous, any numeric dtype) by its sum over ranks; the parts in order of rank.

        The sum is equal on all ranks to the bit. With a `residual` (float32, as the buffer) what crosses a network does
        so as bfloat16: what rounding takes away on this rank is kept there, and added the next time.
        """
        if residual is not None and not residual.dtype == buffer.dtype == np.float32:
            raise ValueError("only float32 can be sent as bfloat16")
        mine = [self._entry(parts.ALLREDUCE, part, as_bytes(buffer).nbytes, buffer.dtype)]
        with self._collective() as link, np.errstate(all="ignore"):  # what overflows is the caller's to find in the sum
            entries = self._allreduce(link, buffer, mine, residual) if link else mine
        return [entry.part for entry in entries]

    def broadcast(self, buffer: np.ndarray, part: Part, root: int = 0) -> List[Part]:
        """Replaces `buffer` on all ranks by the one of rank `root`; the parts in order of rank."""
        data = as_bytes(buffer)
        mine = [self._entry(parts.BROADCAST, part, data.nbytes, buffer.dtype)]
        with self._collective() as link:
            entries = self._meet(link, mine) if link else mine
            if link:
                self._broadcast(link, data, root)
        return [entry.part for entry in entries]

    def gather(self, payload: bytes, part: Part, limit: int) -> List[bytes]:
        """The payloads of all ranks, in order of rank. ValueError, on every rank, where one is above `limit` bytes."""
        return self.gather_with_parts(payload, part, limit)[0]

    def gather_with_parts(self, payload: bytes, part: Part, limit: int) -> Tuple[List[bytes], List[Part]]:
        """As `gather`, and the parts, in order of rank."""
        mine = [self._entry(parts.GATHER, part, len(payload), None)]
        data = np.frombuffer(payload, np.uint8)
        with self._collective() as link:
            entries = self._meet(link, mine) if link else mine
            most = max(entries, key=lambda entry: entry.size)
            if most.size <= limit:
                gathered = self._gather(link, data, entries) if link else [data]
        if most.size > limit:
            raise ValueError("rank %d brings %d bytes, at most %d can be gathered" % (most.rank, most.size, limit))
        return [data.tobytes() for data in gathered], [entry.part for entry in entries]

    # How it is done. `mine` are the entries that this rank speaks for; what comes back are those of all, in order.

    @abc.abstractmethod
    def _meet(self, link: Link, mine: Sequence[Entry]) -> List[Entry]:
        """Tells the others what this rank is in; Diverged where they are in something else."""

    @abc.abstractmethod
    def _allreduce(
        self, link: Link, buffer: np.ndarray, mine: Sequence[Entry], residual: Optional[np.ndarray]
    ) -> List[Entry]:
        """`_meet`, and the sum."""

    @abc.abstractmethod
    def _broadcast(self, link: Link, data: np.ndarray, root: int) -> None:
        """The bytes of rank `root`, once all have met."""

    @abc.abstractmethod
    def _gather(self, link: Link, data: np.ndarray, entries: Sequence[Entry]) -> List[np.ndarray]:
        """The bytes of all ranks, whose sizes are in their entries, once all have met."""

    def _entry(self, operation: int, part: Part, size: int, dtype: Optional[np.dtype]) -> Entry:
        return Entry(self.rank, operation, size, parts.dtype_code(dtype) if dtype is not None else "", part)

    def close(self, goodbye: str) -> None:
        """Leaves the ranks: the others get `PeerLost` with `goodbye` as the reason in their next collective.

        A collective that waits in another thread ends with PeerLost at once. Data of completed collectives still
        arrive, unless a peer does not read for seconds.
        """
        with self._leaving:
            if self._goodbye is not None:
                return
            self._goodbye = PeerLost(self.rank, goodbye, self.link.completed if self.link else 0)
        link = self.link
        if link is None:
            return
        idle = self._busy.acquire(blocking=False)
        if self._failure is None:
            link.tell(self._goodbye, forward=idle)
            if idle:
                link.settle()
        link.hang_up()
        # A signal handler may call this within a collective of its own thread: then the sockets stay until it is left.
        if idle or self._busy.acquire(timeout=1.0):
            link.close()
            self._busy.release()

    @contextlib.contextmanager
    def _collective(self) -> Iterator[Optional[Link]]:
        if not self._busy.acquire(blocking=False):
            raise RuntimeError("another thread is in a collective of this ring")
        start = time.perf_counter()
        link = self.link
        try:
            failure = self._goodbye or self._failure
            if failure is not None:
                raise failure
            if link is None:
                yield None
            else:
                link.begin()
                yield link
                link.completed += 1
        except (PeerLost, Diverged) as error:
            if self._goodbye is not None:  # what broke is that this rank has left
                raise self._goodbye from None
            self._fail(error)
            raise
        except BaseException:
            # The stream of data has stopped at some place that nobody knows: nothing can follow.
            self._fail(PeerLost(self.rank, "interrupted in a collective"))
            if link is not None:
                link.hang_up()
            raise
        finally:
            self.waited = time.perf_counter() - start
            if link is not None:
                self.spent = Spent(self.waited - link.waiting - link.wire, link.waiting, link.wire)
            self._busy.release()

    def _fail(self, error: Union[PeerLost, Diverged]) -> None:
        if self._failure is None:
            self._failure = error
            if self.link is not None:
                self.link.tell(error, forward=self.link.clean)


def as_bytes(buffer: np.ndarray) -> np.ndarray:
    """`buffer` as bytes, without a copy; ValueError where that cannot be, or where it holds no numbers."""
    if buffer.ndim != 1 or not buffer.flags.c_contiguous or not buffer.flags.writeable:
        raise ValueError("a collective needs a writable, contiguous array of one dimension")
    # bfloat16 and the like, which numpy knows through ml_dtypes, are of kind V but no np.void
    if buffer.dtype.kind not in "iufc" and (buffer.dtype.kind != "V" or buffer.dtype.type is np.void):
        raise ValueError("a collective needs numbers, not %s" % buffer.dtype)
    return buffer.view(np.uint8)
