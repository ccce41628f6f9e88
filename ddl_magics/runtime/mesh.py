"""The sockets between every two ranks of one host, on which they wait for each other while data go through memory.

A barrier takes log2(n) rounds: in round k each rank sends a byte to the rank 2^k places after it and waits for one from
the rank 2^k places before it (dissemination barrier, Hensgen, Finkel and Manber 1988). A byte that has arrived tells
that all its sender wrote before can be read, whatever the processor's order of memory: no other signal is used. And
a waiter hears within milliseconds when a peer is killed, which one that watches a place in memory would never.

Each rank has a page in shared memory with what it says: its announcement of the collective it is in, and why it left.
"""

import os
import select
import socket
import time
from typing import Dict, List, Optional, Sequence, Union

import numpy as np

from . import parts
from .parts import Diverged, Entry, PeerLost
from .sockets import hang_up, settle

#: How long a rank looks for its peer before it gives up its core: to be woken takes some 70 us. Where there are more
#: ranks than cores it gives it up at once, as the peer may need it.
SPIN_SECONDS = 20e-6
LINGER_SECONDS = 2.0

#: The page of a rank: what memory_file.py has there, two announcements in turn, and the news of its end.
PAGE_BYTES = 4096
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
        self._spin = SPIN_SECONDS if self.size <= len(os.sched_getaffinity(0)) else 0.0
        self._ahead = dict.fromkeys(sockets, 0)  # bytes that came and were not waited for yet
        self._poll = select.poll()
        self._places = {}
        for peer, sock in sockets.items():
            sock.setblocking(False)
            self._places[sock.fileno()] = peer
            self._poll.register(sock, select.POLLRDHUP)
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
        distance = 1
        while distance < self.size:
            self._send((self.place + distance) % self.size)
            self._await((self.place - distance) % self.size)
            distance *= 2
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

    def _send(self, peer: int) -> None:
        try:
            self._sockets[peer].send(b"\1")
        except OSError:
            self._ended(peer)

    def _await(self, peer: int) -> None:
        spin_until: Optional[float] = None
        while not self._ahead[peer]:
            if self._read(peer):
                continue
            if spin_until is None:
                spin_until = time.perf_counter() + self._spin
            if time.perf_counter() >= spin_until:
                self._block(peer)
        self._ahead[peer] -= 1

    def _read(self, peer: int) -> bool:
        try:
            count = len(self._sockets[peer].recv(64))
        except BlockingIOError:
            return False
        except OSError:
            count = 0
        if not count:
            self._ended(peer)
            raise PeerLost(self.ranks[peer], parts.CLOSED)  # it has left, but not said what it had to say
        self._ahead[peer] += count
        return True

    def _block(self, wanted: int) -> None:
        """Waits until something comes from the peer that is wanted, or one ends."""
        sock = self._sockets[wanted]
        self._poll.modify(sock, select.POLLIN | select.POLLRDHUP)
        try:
            for descriptor, _ in self._poll.poll():
                peer = self._places[descriptor]
                if peer != wanted:
                    self._poll.unregister(descriptor)
                    self._ended(peer)
        finally:
            self._poll.modify(sock, select.POLLRDHUP)

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
