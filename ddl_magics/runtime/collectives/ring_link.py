"""A rank's two sockets in a ring: data flow to the next rank, notices of trouble to the previous one.

One thread sends and receives at the same time, so a ring cannot deadlock, however much data each rank sends.
"""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import time
from typing import Deque, Iterator

from ..transport import link_watch
from ..transport.sockets import drain, drop_sent, hang_up
from ..transport.tls import unsent
from ..transport.wire import ProtocolError
from . import announcement
from .announcement import Diverged, PeerLost

#: A rank that finds a neighbour gone waits so long for a notice that names the rank that went first.
NOTICE_SECONDS = 0.5
#: A rank that leaves waits so long until its last data have arrived.
LINGER_SECONDS = 2.0
_VIEWS_AT_ONCE = 16

#: What is to be sent. The receiving side appends what is to be forwarded.
Queue = Deque[memoryview]


class RingLink:
    """A `collective.Link` over two connected sockets, to the ranks before and after this one in the ring.

    announcing: set while the ring exchanges calls, so that waiting counts as waiting for the other ranks.
    """

    def __init__(
        self, previous_rank: int, previous_socket: socket.socket, next_rank: int, next_socket: socket.socket
    ) -> None:
        self._previous_socket, self._next_socket = previous_socket, next_socket
        self._previous_rank, self._next_rank = previous_rank, next_rank
        previous_socket.setblocking(False)
        next_socket.setblocking(False)
        self.completed = 0
        self.can_notify_forward = True
        self.announcing = False
        self.wait_seconds = self.wire_seconds = 0.0
        self._notice = bytearray()  # the beginning of a record from the next rank
        self._departed: PeerLost | None = None  # a rank that has left, but not before it had completed this collective

    def begin(self) -> None:
        self.can_notify_forward = True
        self.wait_seconds = self.wire_seconds = 0.0

    def transfer(self, outgoing: Queue, incoming: Iterator[memoryview]) -> None:
        """Sends `outgoing` and fills the views that `incoming` yields, until both are done.

        Raises PeerLost, Diverged, ProtocolError, and what `incoming` raises.
        """
        if self._departed is not None:
            raise self._departed
        view = next(incoming, None)
        while view is not None or outgoing or unsent(self._next_socket):
            sending = bool(outgoing) or unsent(self._next_socket)
            progressed = sending and self._send(outgoing)
            if view is not None:
                count = self._receive(view)
                if count:
                    progressed = True
                    view = view[count:] if count < len(view) else next(incoming, None)
            if not progressed:
                self._wait(sending, view is not None)

    def notify(self, error: PeerLost | Diverged, forward: bool) -> None:
        record = announcement.departure(error) if isinstance(error, PeerLost) else error.record
        for sock in (self._previous_socket, self._next_socket) if forward else (self._previous_socket,):
            with contextlib.suppress(OSError):  # it is gone, or does not read: then it finds the connection closed
                sock.send(record)

    def drain(self) -> None:
        drain(self._next_socket, LINGER_SECONDS)

    def hang_up(self) -> None:
        hang_up(self._next_socket)
        hang_up(self._previous_socket)

    def close(self) -> None:
        self._next_socket.close()
        self._previous_socket.close()

    def _send(self, outgoing: Queue) -> bool:
        try:
            count = self._next_socket.sendmsg(list(itertools.islice(outgoing, _VIEWS_AT_ONCE)))
        except BlockingIOError:
            return False
        except OSError:
            raise self._lost(self._next_rank) from None
        self.can_notify_forward = False
        drop_sent(outgoing, count)
        return True

    def _receive(self, view: memoryview) -> int:
        try:
            count = self._previous_socket.recv_into(view)
        except BlockingIOError:
            return 0
        except OSError:
            count = 0
        if not count:
            raise self._lost(self._previous_rank)
        return count

    def _wait(self, sending: bool, receiving: bool) -> None:
        poll = select.poll()
        if receiving:
            poll.register(self._previous_socket, select.POLLIN)
        if sending or self._departed is None:
            poll.register(self._next_socket, select.POLLIN | (select.POLLOUT if sending else 0))
        start = time.perf_counter()
        events = poll.poll()
        if self.announcing:
            self.wait_seconds += time.perf_counter() - start
        else:
            self.wire_seconds += time.perf_counter() - start
        for descriptor, event in events:
            if descriptor == self._next_socket.fileno() and event & ~select.POLLOUT:
                self._read_notice()

    def _lost(self, rank: int) -> PeerLost:
        """The error for a closed connection to `rank`; raises that of a notice instead if one arrives in time.

        A neighbour may have gone because another rank went before it. The notice of that comes from the next rank.
        """
        deadline = time.monotonic() + NOTICE_SECONDS
        poll = select.poll()
        poll.register(self._next_socket, select.POLLIN)
        while self._departed is None and poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            self._read_notice()
        return self._closed_connection(rank)

    def _closed_connection(self, rank: int) -> PeerLost:
        sockets = [(self._previous_rank, self._previous_socket), (self._next_rank, self._next_socket)]
        cut = any(peer == rank and link_watch.was_cut(sock) for peer, sock in sockets)
        return PeerLost(rank, announcement.UNREACHABLE if cut else announcement.CLOSED)

    def _read_notice(self) -> None:
        """Reads from the next rank, and raises the error that a complete notice holds."""
        try:
            received = self._next_socket.recv(announcement.RECORD_BYTES - len(self._notice))
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if not received:
            raise self._closed_connection(self._next_rank)
        self._notice += received
        if len(self._notice) < announcement.RECORD_BYTES:
            return
        record, self._notice = self._notice, bytearray()
        try:
            announcement.parse(record)
        except PeerLost as lost:
            # A rank that had completed more collectives than this one has sent all its data of the present one. So has
            # each rank that forwards its notice. This rank can therefore complete the collective.
            if lost.completed <= self.completed:
                raise
            self._departed = lost
        else:
            raise ProtocolError("rank %d sent data backwards" % self._next_rank)
