"""A rank's port during the rendezvous: it admits the other ranks of the run's attempt and nobody else."""

from __future__ import annotations

import threading
import time

from ..transport import wire
from ..transport.sockets import NO_ANSWER
from .announcement import PeerLost

_PURPOSE_SECONDS = 5.0
_SILENT_PEER = "; is its process stopped, or the way between the two hosts closed?"

#: The purpose of a connection between two ranks: the ring of all, shared memory of a host, the ring of leaders.
RING, HOST, LEADERS = range(1, 4)


class PeerListener:
    """Connects rank `rank` of `size` to the others, which reach it at `address` until `close`.

    host: where to listen; credentials, attempt: those of the run, which the other ranks must share. A connection with
    the purpose HOST is not encrypted: it stays on the host, and no data travel on it.
    """

    def __init__(self, host: str, credentials: wire.Credentials, rank: int, attempt: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._credentials, self._attempt = credentials, attempt
        self._peers = set(range(size)) - {rank}
        self._arrived: dict[tuple[int, int], wire.Channel] = {}  # by rank and purpose
        self._changed = threading.Condition()
        self._closed = False
        self._listener = wire.Listener(host, credentials, self._identity(rank), self._admit, self._accept, plain=True)
        self.address = self._listener.address

    def connect_to(self, peer: int, address: wire.Address, purpose: int, deadline: float) -> wire.Channel:
        """Connects to rank `peer`. Raises PeerLost if that fails until `deadline`, a time of time.monotonic()."""
        remaining = max(0.0, deadline - time.monotonic())
        try:
            me, expected, plain = self._identity(self.rank), self._identity(peer), purpose == HOST
            channel = wire.connect((address[0], address[1]), self._credentials, me, expected, remaining, plain)
            channel.send(purpose)
        except (wire.ConnectionLost, wire.PeerRefused) as error:
            silent = str(error).endswith(NO_ANSWER)
            raise PeerLost(peer, str(error) + (_SILENT_PEER if silent else "")) from error
        return channel

    def wait_for(self, peer: int, purpose: int, deadline: float) -> wire.Channel:
        """The connection that rank `peer` makes to this rank. Raises PeerLost if it does not until `deadline`."""
        with self._changed:
            remaining = max(0.0, deadline - time.monotonic())
            if not self._changed.wait_for(lambda: (peer, purpose) in self._arrived, remaining):
                raise PeerLost(peer, "it did not connect in time")
            return self._arrived.pop((peer, purpose))

    def close(self) -> None:
        """Stops listening, and closes the connections that nobody has waited for."""
        self._listener.close()
        with self._changed:
            self._closed = True
            for channel in self._arrived.values():
                channel.close(0)
            self._arrived.clear()

    def _identity(self, rank: int) -> wire.Identity:
        return wire.Identity("rank", rank, self._attempt)

    def _admit(self, peer: wire.Identity) -> str | None:
        if peer.role == "rank" and peer.attempt == self._attempt and peer.rank in self._peers:
            return None
        return "only the other ranks of attempt %d may connect here" % self._attempt

    def _accept(self, channel: wire.Channel) -> None:
        channel.settimeout(_PURPOSE_SECONDS)
        try:
            purpose, _ = channel.recv(0)
        except (wire.ConnectionLost, wire.ProtocolError, OSError):
            channel.close(0)
            return
        channel.settimeout(None)
        secured = channel.encrypted or purpose == HOST or self._credentials.certificate is None
        with self._changed:
            expected = purpose in (RING, HOST, LEADERS) and (channel.peer.rank, purpose) not in self._arrived
            if self._closed or not expected or not secured:
                channel.close(0)
            else:
                self._arrived[channel.peer.rank, purpose] = channel
                self._changed.notify_all()
