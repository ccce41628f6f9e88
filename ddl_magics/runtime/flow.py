"""The two sockets of a rank in its ring: data flow to the rank after it, news of trouble to the rank before it.

Sending and receiving go on at the same time in one thread, so that no size of data can lock the ring up.
"""

import itertools
import select
import socket
import time
from typing import Deque, Iterator, Optional, Union

from . import parts
from .parts import Diverged, PeerLost
from .sockets import drop, hang_up, settle
from .wire import ProtocolError

#: How long a rank whose predecessor is gone without a word waits to hear from the other side who left first.
BLAME_SECONDS = 0.5
#: How long a rank that leaves waits for the last of its data to arrive.
LINGER_SECONDS = 2.0
_VIEWS_AT_ONCE = 16

#: What is to be sent; whoever receives adds what is to be passed on.
Queue = Deque[memoryview]


class Flow:
    """`before` and `after` are connected sockets, of `rank_before` and `rank_after` in the ring.

    `completed` counts the collectives. Of the present one `clean` says that nothing has been sent in it: only then can
    a record be put on the forward way; `waiting` are the seconds blocked while `meeting`, until the others came, and
    `wire` those blocked since.
    """

    def __init__(self, rank_before: int, before: socket.socket, rank_after: int, after: socket.socket) -> None:
        self._before, self._after = before, after
        self._rank_before, self._rank_after = rank_before, rank_after
        before.setblocking(False)
        after.setblocking(False)
        self.completed = 0
        self.clean = True
        self.meeting = False
        self.waiting = self.wire = 0.0
        self._news = bytearray()  # the beginning of a record from the rank after
        self._left: Optional[PeerLost] = None  # the news of one that left when it had all it needed of this collective

    def begin(self) -> None:
        """A collective begins."""
        self.clean = True
        self.waiting = self.wire = 0.0

    def circulate(self, queue: Queue, incoming: Iterator[memoryview]) -> None:
        """Sends what is in `queue` and fills the views that `incoming` yields, until there is neither.

        Raises PeerLost, Diverged, ProtocolError, and what `incoming` raises.
        """
        if self._left is not None:
            raise self._left
        view = next(incoming, None)
        while view is not None or queue:
            moved = bool(queue) and self._send(queue)
            if view is not None:
                count = self._receive(view)
                if count:
                    moved = True
                    view = view[count:] if count < len(view) else next(incoming, None)
            if not moved:
                self._wait(bool(queue), view is not None)

    def tell(self, news: Union[PeerLost, Diverged], forward: bool) -> None:
        """Passes on why this rank leaves the common path; what cannot be sent at once stays unsaid."""
        record = parts.departure(news) if isinstance(news, PeerLost) else news.record
        for sock in (self._before, self._after) if forward else (self._before,):
            try:
                sock.send(record)
            except OSError:
                pass  # it is gone itself, or does not read: then it will see the connection close

    def settle(self) -> None:
        """Waits, for a bounded time, until all that was sent has arrived."""
        settle(self._after, LINGER_SECONDS)

    def hang_up(self) -> None:
        """Ends both connections; a thread in `circulate` gets PeerLost."""
        hang_up(self._after)
        hang_up(self._before)

    def close(self) -> None:
        """Frees the sockets; no thread may be in `circulate`."""
        self._after.close()
        self._before.close()

    def _send(self, queue: Queue) -> bool:
        try:
            sent = self._after.sendmsg(list(itertools.islice(queue, _VIEWS_AT_ONCE)))
        except BlockingIOError:
            return False
        except OSError:
            raise self._blame(self._rank_after) from None
        self.clean = False
        drop(queue, sent)
        return True

    def _receive(self, view: memoryview) -> int:
        try:
            count = self._before.recv_into(view)
        except BlockingIOError:
            return 0
        except OSError:
            count = 0
        if not count:
            raise self._blame(self._rank_before)
        return count

    def _wait(self, sending: bool, receiving: bool) -> None:
        poll = select.poll()
        if receiving:
            poll.register(self._before, select.POLLIN)
        if sending or self._left is None:
            poll.register(self._after, select.POLLIN | (select.POLLOUT if sending else 0))
        start = time.perf_counter()
        ready = poll.poll()
        if self.meeting:
            self.waiting += time.perf_counter() - start
        else:
            self.wire += time.perf_counter() - start
        for descriptor, event in ready:
            if descriptor == self._after.fileno() and event & ~select.POLLOUT:
                self._hear()

    def _blame(self, rank: int) -> PeerLost:
        """Raises the news of who left first if some come in time from the rank after; else `rank` is the one."""
        deadline = time.monotonic() + BLAME_SECONDS
        poll = select.poll()
        poll.register(self._after, select.POLLIN)
        while self._left is None and poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            self._hear()
        return PeerLost(rank, parts.CLOSED)

    def _hear(self) -> None:
        """Reads news from the rank after this one, and raises what they tell of."""
        try:
            piece = self._after.recv(parts.RECORD_BYTES - len(self._news))
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            raise PeerLost(self._rank_after, parts.CLOSED)
        self._news += piece
        if len(self._news) < parts.RECORD_BYTES:
            return
        record, self._news = self._news, bytearray()
        try:
            parts.parse(record)
        except PeerLost as lost:
            # Who has completed more collectives than this rank has all it needs for the present one, and so has whoever
            # passes its news on: this one can be completed too.
            if lost.completed <= self.completed:
                raise
            self._left = lost
        else:
            raise ProtocolError("rank %d sent data backwards" % self._rank_after)
