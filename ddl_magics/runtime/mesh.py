"""Where the ranks of one host wait for each other, while their data go through memory: barriers, and who has left.

Each rank has a page in shared memory, with a count of the barriers that it has come to, what it says of itself, and
why it left. Whoever comes last to a barrier finds by the counts that all have come, and sends a byte to those that have
gone to sleep meanwhile. They sleep on sockets, one between every two ranks, as these also tell within milliseconds that
a peer was killed, which one that only watches memory would never know.

That a count is seen means that what its rank wrote before is seen too: x86 keeps that order, and `_order` the one case
that it does not. Elsewhere no count is believed: each rank sends a byte to all others, which orders memory as well.
"""

import os
import platform
import select
import socket
import threading
import time
from typing import Dict, List, Sequence, Union

import numpy as np

from . import parts
from .parts import Diverged, Entry, PeerLost
from .sockets import hang_up, settle

#: How long a rank looks for its peer before it gives up its core: to be woken takes some 70 us. Where there are more
#: ranks than cores it gives it up at once, as the peer may need it.
SPIN_SECONDS = 50e-6
LINGER_SECONDS = 2.0

#: Whether this processor shows others what it writes in the order in which it was written.
ORDERED = platform.machine() in ("x86_64", "AMD64")

#: The page of a rank: what memory_file.py has there, the barrier it has come to and the one it sleeps at, each in a
#: cache line of its own, two announcements in turn, and the news of its end.
PAGE_BYTES = 4096
_COME, _ASLEEP = 64, 128
_ANNOUNCEMENTS = 256
_NEWS = _ANNOUNCEMENTS + 2 * parts.RECORD_BYTES


class Mesh:
    """This rank's place among `ranks` (their numbers in the job, in order), as number `place`.

    sockets: a connected one for each of the others, by place. pages: each rank's page, by place. `completed` counts the
    collectives; `waiting` are the seconds of the present one in which this rank waited for others.
    """

    clean = True  # what a collective sends cannot be half a message
    wire = 0.0  # seconds on the network: there is none

    def __init__(self, place: int, ranks: Sequence[int], sockets: Dict[int, socket.socket], pages: List[np.ndarray]):
        self.place, self.ranks, self.size = place, ranks, len(ranks)
        self._sockets, self._pages = sockets, pages
        self._ordered = ORDERED
        self._spin = SPIN_SECONDS if ORDERED and self.size <= len(os.sched_getaffinity(0)) else 0.0
        self._barrier = 0  # counts them
        self._come = [_counter(page if ORDERED else np.zeros(PAGE_BYTES, np.uint8), _COME) for page in pages]
        self._asleep = [_counter(page, _ASLEEP) for page in pages]
        self._lock = threading.Lock()
        self._poll = select.poll()
        self._places = {}
        for peer, sock in sockets.items():
            sock.setblocking(False)
            self._places[sock.fileno()] = peer
            self._poll.register(sock, select.POLLIN | select.POLLRDHUP)
        self.completed = 0
        self.waiting = 0.0

    def begin(self) -> None:
        """A collective begins."""
        self.waiting = 0.0

    def meet(self, entry: Entry) -> List[Entry]:
        """Tells the others what this rank is in; what they are in, by place, once all have come.

        Diverged where they are not in the same collective. What each wrote into memory before can be read after.
        """
        begin = _ANNOUNCEMENTS + self.completed % 2 * parts.RECORD_BYTES
        self._pages[self.place][begin : begin + parts.RECORD_BYTES] = np.frombuffer(parts.announcement(entry), np.uint8)
        self.barrier()
        records = [page[begin : begin + parts.RECORD_BYTES] for page in self._pages]
        entries = [parts.parse(bytearray(record)) for record in records]
        for other in entries:
            if not other.agrees(entry):
                raise parts.disagreement(entry, other)
        return entries

    def barrier(self) -> None:
        """Returns when all have come here; PeerLost or Diverged where one never will."""
        start = time.perf_counter()
        self._barrier += 1
        self._order()
        self._come[self.place][0] = self._barrier
        self._order()
        last = self._all_come()
        for peer in self._sockets:
            if not self._ordered or (last and self._asleep[peer][0] == self._barrier):
                self._wake(peer)
        if not last:
            self._wait(start)
        self.waiting += time.perf_counter() - start

    def tell(self, news: Union[PeerLost, Diverged], forward: bool) -> None:
        """Says for good why this rank leaves the common path; whoever waits for it will read that."""
        record = parts.departure(news) if isinstance(news, PeerLost) else news.record
        page = self._pages[self.place][_NEWS : _NEWS + parts.RECORD_BYTES]
        if page[0]:
            return
        page[1:] = np.frombuffer(record, np.uint8)[1:]
        page[0] = record[0]  # last: a rank that is killed in between has said nothing
        for sock in self._sockets.values():
            try:
                sock.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # it is gone itself

    def settle(self) -> None:
        """Waits, for a bounded time, until all that was sent has arrived."""
        deadline = time.monotonic() + LINGER_SECONDS
        for sock in self._sockets.values():
            settle(sock, max(0.0, deadline - time.monotonic()))

    def hang_up(self) -> None:
        """Ends all connections; a thread that waits in a barrier gets PeerLost."""
        for sock in self._sockets.values():
            hang_up(sock)

    def close(self) -> None:
        """Frees the sockets; no thread may be in a barrier."""
        for sock in self._sockets.values():
            sock.close()

    def _all_come(self) -> bool:
        # One that has come to the next barrier already has been to this one.
        return all(count[0] >= self._barrier for count in self._come)

    def _wait(self, start: float) -> None:
        while time.perf_counter() < start + self._spin:
            if self._all_come():
                return
        self._asleep[self.place][0] = self._barrier
        self._order()  # either the last one sees that this rank sleeps, or this rank that the last one has come
        while not self._all_come():
            for descriptor, _ in self._poll.poll():
                self._hear(self._places[descriptor])

    def _hear(self, peer: int) -> None:
        try:
            count = len(self._sockets[peer].recv(64))
        except BlockingIOError:
            return
        except OSError:
            count = 0
        if not self._ordered:
            self._come[peer][0] += count
        if not count:
            self._poll.unregister(self._sockets[peer])
            self._ended(peer)
            if self._come[peer][0] < self._barrier:
                raise PeerLost(self.ranks[peer], parts.CLOSED)  # it has left, but has not been here

    def _wake(self, peer: int) -> None:
        try:
            self._sockets[peer].send(b"\1")
        except BlockingIOError:
            pass  # so much unread will wake it
        except OSError:
            self._ended(peer)

    def _order(self) -> None:
        """Makes what was written visible to others before anything is read that comes after."""
        with self._lock:  # an instruction with x86's LOCK prefix, which is a full barrier
            pass

    def _ended(self, peer: int) -> None:
        """Raises why the peer has left, unless it had all it needs of the present collective, and others of it."""
        record = bytearray(self._pages[peer][_NEWS : _NEWS + parts.RECORD_BYTES])
        if not record[0]:
            raise PeerLost(self.ranks[peer], parts.CLOSED)
        try:
            parts.parse(record)
        except PeerLost as lost:
            # Whoever has completed more collectives than this rank was in all of the present one, and so was whoever
            # passes its news on.
            if lost.completed <= self.completed:
                raise


def _counter(page: np.ndarray, at: int) -> memoryview:
    """A number in a page, read and written as a whole."""
    return page[at : at + 8].data.cast("B").cast("Q")
