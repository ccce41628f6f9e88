"""What ranks do together: all-reduce and its two halves (reduce-scatter, all-gather), broadcast, gather and scatter.

The location of the ranks decides how their data travel (rendezvous.py). This file holds what all ways have in common:
one collective at a time, a check that all ranks are in the same one, and the end of all when a rank ends.
"""

from __future__ import annotations

import abc
import contextlib
import struct
import threading
import time
from typing import TYPE_CHECKING, Iterator, NamedTuple, Protocol, Sequence

import numpy as np

from . import parts
from .announcement import (
    ALL_GATHER,
    ALLREDUCE,
    BROADCAST,
    GATHER,
    REDUCE_SCATTER,
    SCATTER,
    Announcement,
    CollectiveCall,
    Diverged,
    PeerLost,
    dtype_code,
)

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Announcement", "Collective", "Diverged", "PeerLost"]

_LENGTH = struct.Struct("!Q")


class Timings(NamedTuple):
    """Where the time of a collective went, in seconds.

    copy: to move and add data on this host; wait: until the other ranks came; wire: on the network.
    """

    copy: float = 0.0
    wait: float = 0.0
    wire: float = 0.0


class Link(Protocol):
    """A rank's connections to its peers."""

    completed: int  # collectives

    @property
    def wait_seconds(self) -> float:
        """Seconds for which the current collective has waited for the other ranks to come."""

    @property
    def wire_seconds(self) -> float:
        """Seconds for which the current collective has waited for the network since then."""

    @property
    def can_notify_forward(self) -> bool:
        """Whether a notice can be sent in the direction of the data: not after data of the current collective."""

    def begin(self) -> None:
        """A collective begins."""

    def notify(self, error: PeerLost | Diverged, forward: bool) -> None:
        """Sends the peers the reason why this rank ends, without waiting. forward: also in the direction of the data.

        A peer that cannot be sent it finds the connection closed instead.
        """

    def drain(self) -> None:
        """Waits until all sent data have arrived, for a bounded time."""

    def hang_up(self) -> None:
        """Ends the connections. A thread that waits in a collective gets PeerLost."""

    def close(self) -> None:
        """Frees the sockets. No thread may be in a collective."""


class Collective(abc.ABC):
    """This rank (`rank`, from 0) among the `size` ranks that call each collective together, in the same order.

    Every collective raises `Diverged` if the ranks are in different ones, and `PeerLost` if a rank is gone; after
    `close`, its `rank` is this one. All later collectives raise the same error. RuntimeError: another thread is in a
    collective. There is no timeout: a slow rank is waited for. `close`, from any thread, ends the wait.

    Attributes:
        position: this rank's number in the order of the parts of `reduce_scatter` and `all_gather`.
        elapsed: duration of the last collective, in seconds.
        timings: how `elapsed` was spent.
        crosses_network: whether the ranks are on more than one machine.
    """

    def __init__(self, rank: int, size: int, link: Link) -> None:
        self.rank, self.size, self.link = rank, size, link
        self.position = rank
        self.crosses_network = False
        self.elapsed, self.timings = 0.0, Timings()
        self._failure: PeerLost | Diverged | None = None
        self._departure: PeerLost | None = None
        self._busy = threading.Lock()
        self._leaving = threading.Lock()

    @property
    def busy(self) -> bool:
        """Whether a collective is in progress: this rank waits for others, or exchanges data with them."""
        return self._busy.locked()

    def allreduce(
        self, buffer: np.ndarray, announcement: Announcement, residual: npt.NDArray[np.float32] | None = None
    ) -> list[Announcement]:
        """Replaces `buffer` by its sum over all ranks. The sum has equal bits on all ranks.

        Args:
            buffer: 1-D, contiguous and writable, of integers, floats (bfloat16 included) or complex numbers; length and
                dtype are equal on all ranks. It is summed in its own dtype.
            residual: float32, of the shape of `buffer`, which must be float32, too. With it, data cross the network as
                bfloat16. The rounding error of this rank is kept in `residual`, and added by the next call
                (compression.py).

        Returns:
            The announcements of all ranks, in order of rank.

        Raises:
            ValueError: another kind of buffer, or another dtype of the residual; nothing was sent. Otherwise as every
                collective.
        """
        if residual is not None and not residual.dtype == buffer.dtype == np.float32:
            raise ValueError("only float32 can be sent as bfloat16")
        calls = [self._call(ALLREDUCE, buffer, announcement)]
        with self._collective(), np.errstate(all="ignore"):  # an overflow is in the sum, where the caller looks for it
            calls = self._allreduce(buffer, calls, residual)
        return [call.announcement for call in calls]

    def reduce_scatter(
        self, buffer: np.ndarray, bounds: parts.Bounds, announcement: Announcement
    ) -> list[Announcement]:
        """Replaces this rank's part of `buffer` by its sum over all ranks. The other parts are undefined afterwards.

        Args:
            buffer: as in `allreduce`.
            bounds: of the parts, `size` + 1 ascending offsets from 0 to the length of `buffer`; equal on all ranks. The
                part of this rank is buffer[bounds[position] : bounds[position + 1]]. Parts may be unequal, or empty.

        Returns:
            The announcements of all ranks, in order of rank.

        Raises:
            ValueError: another kind of buffer, or other bounds; nothing was sent. Otherwise as every collective.
        """
        calls = [self._call(REDUCE_SCATTER, buffer, announcement, bounds)]
        with self._collective(), np.errstate(all="ignore"):
            calls = self._reduce_scatter(buffer, bounds, calls)
        return [call.announcement for call in calls]

    def all_gather(self, buffer: np.ndarray, bounds: parts.Bounds, announcement: Announcement) -> list[Announcement]:
        """Replaces each part of `buffer` by that of the rank at its position: the second half of an all-reduce.

        Arguments, result and errors are those of `reduce_scatter`. The two together send as much as an `allreduce`.
        """
        calls = [self._call(ALL_GATHER, buffer, announcement, bounds)]
        with self._collective():
            calls = self._all_gather(buffer, bounds, calls)
        return [call.announcement for call in calls]

    def broadcast(self, buffer: np.ndarray, announcement: Announcement, root: int = 0) -> list[Announcement]:
        """Replaces `buffer` by that of rank `root`.

        Args:
            buffer: as in `allreduce`; length and dtype are equal on all ranks.

        Returns:
            The announcements of all ranks, in order of rank.

        Raises:
            ValueError: another kind of buffer; nothing was sent. Otherwise as every collective.
        """
        calls = [self._call(BROADCAST, buffer, announcement)]
        with self._collective():
            calls = self._announce(calls)
            self._broadcast(as_bytes(buffer), root)
        return [call.announcement for call in calls]

    def gather(self, payload: bytes, announcement: Announcement, limit: int) -> list[bytes]:
        """The payloads of all ranks, in order of rank. They may differ in length.

        Raises:
            ValueError: on every rank, if one brings more than `limit` bytes; later collectives still work. Otherwise as
                every collective.
        """
        return self.gather_with_announcements(payload, announcement, limit)[0]

    def gather_with_announcements(
        self, payload: bytes, announcement: Announcement, limit: int
    ) -> tuple[list[bytes], list[Announcement]]:
        """`gather`, and the announcements of all ranks, in order of rank."""
        calls = [CollectiveCall(self.rank, GATHER, len(payload), "", announcement)]
        data = np.frombuffer(payload, np.uint8)
        with self._collective():
            calls = self._announce(calls)
            largest = max(calls, key=lambda call: call.size)
            if largest.size <= limit:
                gathered = self._gather(data, calls)
        if largest.size > limit:
            message = "rank %d brings %d bytes, at most %d can be gathered"
            raise ValueError(message % (largest.rank, largest.size, limit))
        return [chunk.tobytes() for chunk in gathered], [call.announcement for call in calls]

    def scatter(self, payloads: Sequence[bytes], announcement: Announcement, limit: int) -> bytes:
        """Rank 0's payload for this rank.

        Args:
            payloads: On rank 0, one for each rank, in order of rank. They may differ in length. Empty on the others.

        Raises:
            ValueError: on every rank, if one has more than `limit` bytes; later collectives still work. Otherwise as
                every collective.
        """
        longest = max(map(len, payloads), default=0)
        calls = [CollectiveCall(self.rank, SCATTER, longest, "", announcement)]
        with self._collective():
            longest = self._announce(calls)[0].size
            if longest <= limit:
                own_row = np.empty((1, _LENGTH.size + longest), np.uint8)
                self._scatter(_rows_of_bytes(payloads, own_row.shape[1]), own_row)
        if longest > limit:
            raise ValueError("rank 0 has %d bytes for a rank, at most %d can be scattered" % (longest, limit))
        (length,) = _LENGTH.unpack_from(own_row[0].data)
        return own_row[0, _LENGTH.size : _LENGTH.size + length].tobytes()

    def _call(
        self, operation: int, buffer: np.ndarray, announcement: Announcement, bounds: parts.Bounds | None = None
    ) -> CollectiveCall:
        size, dtype, fingerprint = as_bytes(buffer).nbytes, dtype_code(buffer.dtype), 0
        if bounds is not None:
            parts.check(bounds, self.size, len(buffer))
            fingerprint = parts.fingerprint(bounds)
        return CollectiveCall(self.rank, operation, size, dtype, announcement, fingerprint)

    # How a collective is done. `calls` are those that this rank speaks for: its own, or its host's in a ring of hosts.

    @abc.abstractmethod
    def _announce(self, calls: Sequence[CollectiveCall]) -> list[CollectiveCall]:
        """Exchanges the calls; those of all ranks, in order of rank. Raises Diverged if they do not match."""

    @abc.abstractmethod
    def _allreduce(
        self, buffer: np.ndarray, calls: Sequence[CollectiveCall], residual: npt.NDArray[np.float32] | None
    ) -> list[CollectiveCall]:
        """`_announce`, and the sum in `buffer`."""

    @abc.abstractmethod
    def _reduce_scatter(
        self, buffer: np.ndarray, bounds: parts.Bounds, calls: Sequence[CollectiveCall]
    ) -> list[CollectiveCall]:
        """`_announce`, and the sum in this one's part of `buffer`. bounds: of the parts of those who take part."""

    @abc.abstractmethod
    def _all_gather(
        self, buffer: np.ndarray, bounds: parts.Bounds, calls: Sequence[CollectiveCall]
    ) -> list[CollectiveCall]:
        """`_announce`, and the parts of all in `buffer`."""

    @abc.abstractmethod
    def _broadcast(self, data: npt.NDArray[np.uint8], root: int) -> None:
        """The bytes of rank `root` in `data`, after `_announce`."""

    @abc.abstractmethod
    def _gather(self, data: npt.NDArray[np.uint8], calls: Sequence[CollectiveCall]) -> Sequence[npt.NDArray[np.uint8]]:
        """The bytes of all ranks, after `_announce`, whose calls say how many each has."""

    @abc.abstractmethod
    def _scatter(self, rows: npt.NDArray[np.uint8], own_rows: npt.NDArray[np.uint8]) -> None:
        """The rows of rank 0 for the ranks that this one speaks for, in `own_rows`, after `_announce`.

        rows: 2-D, one for each rank; none but on rank 0.
        """

    def close(self, reason: str) -> None:
        """Leaves: the other ranks get `PeerLost` with this reason in their next collective.

        A collective that waits in another thread raises PeerLost at once. Data of completed collectives still arrive,
        unless a peer does not read for seconds.
        """
        with self._leaving:
            if self._departure is not None:
                return
            self._departure = PeerLost(self.rank, reason, self.link.completed)
        idle = self._busy.acquire(blocking=False)
        if self._failure is None:
            self.link.notify(self._departure, forward=idle)
            if idle:
                self.link.drain()
        self.link.hang_up()
        # A signal handler may call this inside a collective of its own thread. The sockets then stay until it returns.
        if idle or self._busy.acquire(timeout=1.0):
            self.link.close()
            self._busy.release()

    @contextlib.contextmanager
    def _collective(self) -> Iterator[None]:
        if not self._busy.acquire(blocking=False):
            raise RuntimeError(
                "another thread of this rank is in a collective; call ddl.allreduce and ddl.barrier from one thread"
            )
        start = time.perf_counter()
        link = self.link
        try:
            failure = self._departure or self._failure
            if failure is not None:
                raise failure
            link.begin()
            yield
            link.completed += 1
        except (PeerLost, Diverged) as error:
            if self._departure is not None:  # the connections broke because this rank has left
                raise self._departure from None
            self._fail(error)
            raise
        except BaseException:
            # Nobody knows how much of the data was sent, so nothing can follow it.
            self._fail(PeerLost(self.rank, "interrupted in a collective"))
            link.hang_up()
            raise
        finally:
            self.elapsed = time.perf_counter() - start
            waited, wire = link.wait_seconds, link.wire_seconds
            self.timings = Timings(self.elapsed - waited - wire, waited, wire)
            self._busy.release()

    def _fail(self, error: PeerLost | Diverged) -> None:
        if self._failure is None:
            self._failure = error
            self.link.notify(error, forward=self.link.can_notify_forward)


class Links:
    """Any number of links as one `Link`: in a `Hierarchy` those to the ranks of the host and to the other leaders."""

    def __init__(self, *links: Link) -> None:
        self._links, self._completed = links, 0

    @property
    def completed(self) -> int:
        return self._completed

    @completed.setter
    def completed(self, count: int) -> None:
        self._completed = count
        for link in self._links:
            link.completed = count

    @property
    def can_notify_forward(self) -> bool:
        return all(link.can_notify_forward for link in self._links)

    @property
    def wait_seconds(self) -> float:
        return sum(link.wait_seconds for link in self._links)

    @property
    def wire_seconds(self) -> float:
        return sum(link.wire_seconds for link in self._links)

    def begin(self) -> None:
        for link in self._links:
            link.begin()

    def notify(self, error: PeerLost | Diverged, forward: bool) -> None:
        for link in self._links:
            link.notify(error, forward)

    def drain(self) -> None:
        for link in self._links:
            link.drain()

    def hang_up(self) -> None:
        for link in self._links:
            link.hang_up()

    def close(self) -> None:
        for link in self._links:
            link.close()


class SingleRank(Collective):
    """The collectives of a rank without peers."""

    def __init__(self) -> None:
        super().__init__(0, 1, Links())

    def _announce(self, calls: Sequence[CollectiveCall]) -> list[CollectiveCall]:
        return list(calls)

    def _allreduce(
        self, buffer: np.ndarray, calls: Sequence[CollectiveCall], residual: npt.NDArray[np.float32] | None
    ) -> list[CollectiveCall]:
        return list(calls)

    def _reduce_scatter(
        self, buffer: np.ndarray, bounds: parts.Bounds, calls: Sequence[CollectiveCall]
    ) -> list[CollectiveCall]:
        return list(calls)

    _all_gather = _reduce_scatter

    def _broadcast(self, data: npt.NDArray[np.uint8], root: int) -> None:
        pass

    def _gather(self, data: npt.NDArray[np.uint8], calls: Sequence[CollectiveCall]) -> Sequence[npt.NDArray[np.uint8]]:
        return [data]

    def _scatter(self, rows: npt.NDArray[np.uint8], own_rows: npt.NDArray[np.uint8]) -> None:
        own_rows[:] = rows


def as_bytes(buffer: np.ndarray) -> npt.NDArray[np.uint8]:
    """`buffer` as bytes, without a copy. Raises ValueError for an array that a collective cannot work on in place."""
    if buffer.ndim != 1 or not buffer.flags.c_contiguous or not buffer.flags.writeable:
        raise ValueError("a collective needs a writable, contiguous array of one dimension")
    # The types of ml_dtypes, such as bfloat16, have kind V, but are not np.void.
    if buffer.dtype.kind not in "iufc" and (buffer.dtype.kind != "V" or buffer.dtype.type is np.void):
        raise ValueError("a collective needs numbers, not %s" % buffer.dtype)
    return buffer.view(np.uint8)


def _rows_of_bytes(payloads: Sequence[bytes], width: int) -> npt.NDArray[np.uint8]:
    """A row of `width` bytes for each payload: its length, and itself."""
    rows = np.zeros((len(payloads), width), np.uint8)
    for row, payload in zip(rows, payloads):
        _LENGTH.pack_into(row.data, 0, len(payload))
        row[_LENGTH.size : _LENGTH.size + len(payload)] = np.frombuffer(payload, np.uint8)
    return rows
