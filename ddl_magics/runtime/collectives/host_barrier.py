"""A barrier for the ranks of one host, whose data go through shared memory. It also notices when a rank ends.

Each rank has a page of shared memory, with the number of the barrier that it has reached, its call of the collective,
and the reason why it ended. The last rank to arrive sees by the numbers that all have arrived, and sends a byte to
those that sleep. Ranks sleep on sockets, one between every two ranks: a socket also shows within milliseconds that a
peer was killed, which memory alone would never show.

The numbers work only if a rank that reads one also sees what its owner wrote before. x86 guarantees that, but may read
before an earlier write is visible to others, which `_fence` prevents. On other processors no number is believed: each
rank sends a byte to all others, and the system call orders memory.
"""

from __future__ import annotations

import contextlib
import os
import platform
import select
import socket
import threading
import time
from typing import TYPE_CHECKING, Sequence

import numpy as np

from ..transport.sockets import drain, hang_up
from . import announcement
from .announcement import CollectiveCall, Diverged, PeerLost

if TYPE_CHECKING:
    import numpy.typing as npt

#: A rank spins so long before it sleeps, as waking up takes some 70 us. With more ranks than cores it sleeps at once,
#: as another rank may need its core.
SPIN_SECONDS = 50e-6
LINGER_SECONDS = 2.0

#: Whether this processor shows writes to other cores in the order in which they were made.
ORDERED = platform.machine() in ("x86_64", "AMD64")

#: A rank's page: the token of memory_file.py, the barrier that the rank has reached and the one that it sleeps at (each
#: in a cache line of its own), two records for calls, used in turn, and the notice with which it ended.
PAGE_BYTES = 4096
_ARRIVED, _ASLEEP = 64, 128
_CALLS = 256
_NOTICE = _CALLS + 2 * announcement.RECORD_BYTES


class HostBarrier:
    """A `collective.Link` between the ranks of a host: `ranks` (ascending), of which this is number `group_rank`.

    sockets: connected, to each other rank, by its number in the group. pages: of all ranks, PAGE_BYTES of uint8 each.
    """

    can_notify_forward = True  # notices have a place of their own
    wire_seconds = 0.0  # there is no network

    def __init__(
        self,
        group_rank: int,
        ranks: Sequence[int],
        sockets: dict[int, socket.socket],
        pages: Sequence[npt.NDArray[np.uint8]],
    ) -> None:
        self.group_rank, self.ranks, self.size = group_rank, ranks, len(ranks)
        self._sockets, self._pages = sockets, pages
        self._ordered = ORDERED
        self._spin = SPIN_SECONDS if ORDERED and self.size <= len(os.sched_getaffinity(0)) else 0.0
        self._number = 0  # of the barrier that this rank has reached
        self._arrived = [_counter(page if ORDERED else np.zeros(PAGE_BYTES, np.uint8), _ARRIVED) for page in pages]
        self._asleep = [_counter(page, _ASLEEP) for page in pages]
        self._lock = threading.Lock()
        self._poll = select.poll()
        self._peers: dict[int, int] = {}  # by file descriptor
        for peer, sock in sockets.items():
            sock.setblocking(False)
            self._peers[sock.fileno()] = peer
            self._poll.register(sock, select.POLLIN | select.POLLRDHUP)
        self.completed = 0
        self.wait_seconds = 0.0

    def begin(self) -> None:
        self.wait_seconds = 0.0

    def announce(self, call: CollectiveCall) -> list[CollectiveCall]:
        """Exchanges the calls of all ranks, with a barrier; returns them in the order of `ranks`.

        Raises Diverged if they do not match. What any rank wrote to memory before can be read after it.
        """
        begin = _CALLS + self.completed % 2 * announcement.RECORD_BYTES
        self._pages[self.group_rank][begin : begin + announcement.RECORD_BYTES] = np.frombuffer(
            announcement.encode(call), np.uint8
        )
        self.wait()
        records = [page[begin : begin + announcement.RECORD_BYTES] for page in self._pages]
        calls = [announcement.parse(bytearray(record)) for record in records]
        for peer_call in calls:
            if not peer_call.matches(call):
                raise announcement.disagreement(call, peer_call)
        return calls

    def wait(self) -> None:
        """Waits until all ranks have come here. Raises PeerLost or Diverged if one has ended instead."""
        start = time.perf_counter()
        self._number += 1
        self._fence()
        self._arrived[self.group_rank][0] = self._number
        self._fence()
        is_last = self._all_arrived()
        for peer in self._sockets:
            if not self._ordered or (is_last and self._asleep[peer][0] == self._number):
                self._wake(peer)
        if not is_last:
            self._wait_for_others(start)
        self.wait_seconds += time.perf_counter() - start

    def notify(self, error: PeerLost | Diverged, forward: bool) -> None:
        record = announcement.departure(error) if isinstance(error, PeerLost) else error.record
        page = self._pages[self.group_rank][_NOTICE : _NOTICE + announcement.RECORD_BYTES]
        if page[0]:
            return  # the first reason is the one that counts
        page[1:] = np.frombuffer(record, np.uint8)[1:]
        page[0] = record[0]  # last: a rank that is killed before leaves no notice
        for sock in self._sockets.values():
            with contextlib.suppress(OSError):  # the peer is gone
                sock.shutdown(socket.SHUT_WR)

    def drain(self) -> None:
        deadline = time.monotonic() + LINGER_SECONDS
        for sock in self._sockets.values():
            drain(sock, max(0.0, deadline - time.monotonic()))

    def hang_up(self) -> None:
        for sock in self._sockets.values():
            hang_up(sock)

    def close(self) -> None:
        for sock in self._sockets.values():
            sock.close()

    def _all_arrived(self) -> bool:
        # A rank that has reached the next barrier already has passed this one.
        return all(count[0] >= self._number for count in self._arrived)

    def _wait_for_others(self, start: float) -> None:
        while time.perf_counter() < start + self._spin:
            if self._all_arrived():
                return
        self._asleep[self.group_rank][0] = self._number
        self._fence()  # so that the last rank sees this one asleep, or this one sees that the last has arrived
        while not self._all_arrived():
            for descriptor, _ in self._poll.poll():
                self._read(self._peers[descriptor])

    def _read(self, peer: int) -> None:
        try:
            count = len(self._sockets[peer].recv(64))
        except BlockingIOError:
            return
        except OSError:
            count = 0
        if not self._ordered:
            self._arrived[peer][0] += count
        if not count:
            self._poll.unregister(self._sockets[peer])
            self._raise_end(peer)
            if self._arrived[peer][0] < self._number:
                raise PeerLost(self.ranks[peer], announcement.CLOSED)  # it has left without reaching this barrier

    def _wake(self, peer: int) -> None:
        try:
            self._sockets[peer].send(b"\1")
        except BlockingIOError:
            pass  # the peer has bytes to read, which wake it as well
        except OSError:
            self._raise_end(peer)

    def _fence(self) -> None:
        """Makes this rank's writes visible to the others before it reads again."""
        with self._lock:  # takes an instruction with x86's LOCK prefix, which is a full barrier
            pass

    def _raise_end(self, peer: int) -> None:
        """Raises why `peer` has ended; returns if this rank can still complete the current collective."""
        record = bytearray(self._pages[peer][_NOTICE : _NOTICE + announcement.RECORD_BYTES])
        if not record[0]:
            raise PeerLost(self.ranks[peer], announcement.CLOSED)
        try:
            announcement.parse(record)
        except PeerLost as lost:
            # A rank that had completed more collectives than this one took part in all of the current one. So did each
            # rank that passed its notice on.
            if lost.completed <= self.completed:
                raise


def _counter(page: npt.NDArray[np.uint8], offset: int) -> memoryview:
    """A number of 64 bits in a page, which is read and written as a whole."""
    return page[offset : offset + 8].data.cast("B").cast("Q")
