"""Where the other ranks reach a rank while they meet: a port that lets in the ranks of its attempt and nobody else."""

import threading
import time
from typing import Dict, Optional, Tuple

from . import wire
from .parts import PeerLost

_PURPOSE_SECONDS = 5.0

#: What a connection between two ranks is for.
RING, HOST, LEADERS = range(1, 4)


class Place:
    """Where the other ranks of this run's attempt reach this rank: at `address`, while the place is open."""

    def __init__(self, host: str, secret: bytes, run: str, rank: int, attempt: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._secret, self._run, self._attempt = secret, run, attempt
        self._others = set(range(size)) - {rank}
        self._arrived: Dict[Tuple[int, int], wire.Channel] = {}  # by rank and purpose
        self._changed = threading.Condition()
        self._closed = False
        self._listener = wire.Listener(host, secret, run, self._identity(rank), self._admit, self._accept)
        self.address = self._listener.address

    def call(self, peer: int, address: wire.Address, purpose: int, deadline: float) -> wire.Channel:
        """A connection to rank `peer`; PeerLost where none can be made until `deadline` (of time.monotonic)."""
        left = max(0.0, deadline - time.monotonic())
        try:
            me, expected = self._identity(self.rank), self._identity(peer)
            channel = wire.connect((address[0], address[1]), self._secret, self._run, me, expected, left)
            channel.send(purpose)
        except (wire.ConnectionLost, wire.Refused) as error:
            raise PeerLost(peer, str(error)) from error
        return channel

    def answer(self, peer: int, purpose: int, deadline: float) -> wire.Channel:
        """The connection that rank `peer` makes to this one; PeerLost where it does not until `deadline`."""
        with self._changed:
            start = time.monotonic()
            if not self._changed.wait_for(lambda: (peer, purpose) in self._arrived, max(0.0, deadline - start)):
                raise PeerLost(peer, "it did not connect in time")
            return self._arrived.pop((peer, purpose))

    def close(self) -> None:
        self._listener.close()
        with self._changed:
            self._closed = True
            for channel in self._arrived.values():
                channel.close(0)
            self._arrived.clear()

    def _identity(self, rank: int) -> wire.Identity:
        return wire.Identity("rank", rank, self._attempt)

    def _admit(self, peer: wire.Identity) -> Optional[str]:
        if peer.role == "rank" and peer.attempt == self._attempt and peer.rank in self._others:
            return None
        return "the other ranks of attempt %d are expected here" % self._attempt

    def _accept(self, channel: wire.Channel) -> None:
        channel.settimeout(_PURPOSE_SECONDS)
        try:
            purpose, _ = channel.recv(0)
        except (wire.ConnectionLost, wire.ProtocolError, OSError):
            channel.close(0)
            return
        channel.settimeout(None)
        with self._changed:
            if self._closed or (channel.peer.rank, purpose) in self._arrived:
                channel.close(0)
            else:
                self._arrived[channel.peer.rank, purpose] = channel
                self._changed.notify_all()
