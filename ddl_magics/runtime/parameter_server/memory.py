"""Shared memory for vectors between the parameter server and the ranks on its host.

All of it is the server's and has no name (memory_file.py). The server lends a rank a staging buffer for the next
update. Once that is committed and checked, its memory becomes the next centre, and ranks read the centre where it lies:
a vector is moved once, by the rank that computed it. Messages go over the connection and say which vector lies where. A
rank on another host, or one that cannot open the memory, exchanges its vectors over the connection.

The server uses memory again only after the rank has reported that it no longer reads it, and never after the connection
broke. A rank could write to a staging buffer after its commit: it can spoil the centre by what it commits just as well.
"""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Sequence

import numpy as np

from ..transport import memory_file
from ..transport.buffers import ALIGNMENT_BYTES, Buffers
from . import protocol

if TYPE_CHECKING:
    import numpy.typing as npt

    from ..transport.wire import Channel
    from .vector import Vector

_TOKEN = slice(0, ALIGNMENT_BYTES)  # of memory_file.py; an array begins behind it

#: References to opened memory that no vector uses: the dict's, and getrefcount's argument.
_UNUSED = 2


class Pool(Buffers):
    """The server's `Buffers`, in memory that other processes can open; ordinary memory where the system has none."""

    def _new(self, size: int) -> npt.NDArray[np.uint8]:
        try:
            file = memory_file.MemoryFile(_TOKEN.stop + size)
        except OSError:
            return super()._new(size)
        array = np.frombuffer(file.bytes.data[_TOKEN.stop :], np.uint8)
        _SHARED[id(array)] = weakref.ref(self), file
        weakref.finalize(array, lambda key: _SHARED.pop(key)[1].close(), id(array))
        return array

    def discard(self, vector: Vector) -> None:
        """Do not hand the memory of this vector out again."""
        with self._lock:
            self._arrays = [array for array in self._arrays if array is not vector.base]


#: The pool and the file of each array in shared memory, by the array's id.
_SHARED: dict[int, tuple[weakref.ref[Pool], memory_file.MemoryFile]] = {}


def _offer(vector: Vector) -> memory_file.MemoryOffer | None:
    """What a rank needs to open the memory of a vector, or None where that is not shared."""
    shared = _SHARED.get(id(vector.base))
    return shared[1].offer() if shared else None


class ServerBuffer:
    """The server's side of one connection: how vectors reach its rank and come from it.

    pool: for vectors that come over the connection. Staging buffers have a pool for each rank: the rank then writes to
    the same few, and the first touch of memory costs more than a copy.
    """

    def __init__(self, channel: Channel, pool: Pool) -> None:
        self.channel, self.rank, self.attempt = channel, channel.peer.rank, channel.peer.attempt
        self._pool, self._staging_pool = pool, Pool()
        self._host = memory_file.host_id()
        self._same_host = False
        self._staging: Vector | None = None
        self._exposed: dict[str, Vector] = {}  # vectors that the rank may read, by the token of their memory

    def note_state(self, state: protocol.MemoryState | None) -> None:
        """Take in what the rank reports of shared memory in a request."""
        self._same_host = state is not None and state["host"] == self._host
        holds = set(state["holds"]) if state else ()
        self._exposed = {token: vector for token, vector in self._exposed.items() if token in holds}

    def vector(self, header: protocol.BeginRequest | protocol.CommitRequest) -> Vector:
        """The vector of a request, which the caller may change. ValueError where it is not as announced."""
        if not header["lent"]:
            vector = protocol.new_vector(self._pool, header["dtype"], header["size"])
            return protocol.recv_vector(self.channel, vector)
        if self._staging is None or not self._fits(header["dtype"], header["size"]):
            raise ValueError("a vector is announced in memory that was not lent")
        staging, self._staging = self._staging, None
        return staging

    def lend(self, dtype: str, size: int) -> memory_file.MemoryOffer | None:
        """The offer of a staging buffer for the next update; None where the rank has one, or cannot use it."""
        if not self._same_host or self._fits(dtype, size):
            return None
        staging = self._staging_pool.take(dtype, size)
        offer = _offer(staging)
        self._staging = staging if offer else None
        return offer

    def answer(self, reply: protocol.Reply, vectors: Sequence[Vector]) -> None:
        """Send the reply to a request, and the vectors that belong to it."""
        offers = [_offer(vector) if self._same_host else None for vector in vectors]
        self._exposed.update((offer["token"], vector) for offer, vector in zip(offers, vectors) if offer)
        reply["vectors"] = [(vector.dtype.name, vector.size, offer) for offer, vector in zip(offers, vectors)]
        self.channel.send_json(protocol.REPLY, reply)
        for offer, vector in zip(offers, vectors):
            if not offer:
                protocol.send_vector(self.channel, vector)

    def close(self) -> None:
        """Give up the memory that the rank may still read or write: nobody else gets it."""
        for vector in self._exposed.values():
            pool = _SHARED[id(vector.base)][0]()
            if pool:
                pool.discard(vector)
        self._exposed = {}

    def _fits(self, dtype: str, size: int) -> bool:
        return self._staging is not None and (self._staging.dtype.name, self._staging.size) == (dtype, size)


class ClientBuffer:
    """A rank's side of its connection: the memory of the server that it has open."""

    def __init__(self) -> None:
        self._host: str | None = memory_file.host_id()
        self._open: dict[str, npt.NDArray[np.uint8]] = {}  # by token
        self._staging: Vector | None = None

    def state(self) -> protocol.MemoryState | None:
        """What the server must know at every request; None once memory could not be opened."""
        return {"host": self._host, "holds": self._tokens_in_use()} if self._host else None

    def write(self, update: Vector) -> bool:
        """Write an update into the staging buffer; False where there is none that fits."""
        staging, self._staging = self._staging, None
        if staging is None or (staging.dtype, staging.size) != (update.dtype, update.size):
            return False
        staging[:] = update
        return True

    def accept(self, offer: memory_file.MemoryOffer, dtype: str, size: int) -> None:
        """Open the staging buffer that the server lends for the next update."""
        self._staging = self._vector(offer, dtype, size)

    def read(self, offer: memory_file.MemoryOffer, dtype: str, size: int) -> Vector | None:
        """The vector that the server offers, read-only; None where it cannot be opened, and then no more is tried."""
        vector = self._vector(offer, dtype, size)
        if vector is None:
            self._host = None
        else:
            vector.setflags(write=False)
        return vector

    def disconnected(self) -> None:
        """Give up the staging buffer: the server has withdrawn it."""
        self._staging = None
        self.release_unused()

    def release_unused(self) -> None:
        """Close memory that no vector uses: the server may not use it again."""
        self._open = {token: self._open[token] for token in (self._tokens_in_use() if self._host else ())}

    def _tokens_in_use(self) -> list[str]:
        return [token for token in self._open if sys.getrefcount(self._open[token]) > _UNUSED]

    def _vector(self, offer: memory_file.MemoryOffer, dtype: str, size: int) -> Vector | None:
        token = offer["token"]
        if token not in self._open:
            memory = memory_file.attach(offer)
            if memory is None:
                return None
            self._open[token] = memory
        return self._open[token][_TOKEN.stop :][: np.dtype(dtype).itemsize * size].view(dtype)
