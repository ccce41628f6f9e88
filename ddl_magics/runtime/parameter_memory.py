"""Vectors between the parameter server and ranks of its host: they stay in memory that both have open.

All of it is the server's and has no name (memory_file.py). A rank is lent room for its next update; once committed and
checked, that memory becomes the next centre, as any update's does, and the ranks read the centre where it lies. So a
vector is moved once, by the rank that has made it. Messages go over the connection and say what lies where. A rank on
another host, or that cannot open the memory, gets and sends its vectors over the connection.

What is lent or read is used again only when its rank has said that it no longer looks at it, and never where the
connection broke before. A rank could write on after its commit: it can spoil the centre without, by what it commits.
"""

import sys
import weakref

import numpy as np

from . import memory_file
from . import parameter_protocol as protocol
from .buffers import ALIGNMENT_BYTES, Buffers

_TOKEN = slice(0, ALIGNMENT_BYTES)  # of memory_file.py; an array begins behind it

#: References to opened memory where no vector lies in it: the dict's, and getrefcount's argument.
_UNUSED = 2


class Pool(Buffers):
    """The server's `Buffers`, in memory that other processes can open. Ordinary memory where the system gives none."""

    def _new(self, size):
        try:
            file = memory_file.MemoryFile(_TOKEN.stop + size)
        except OSError:
            return super()._new(size)
        array = np.frombuffer(memoryview(file.bytes)[_TOKEN.stop :], np.uint8)
        _SHARED[id(array)] = weakref.ref(self), file
        weakref.finalize(array, lambda key: _SHARED.pop(key)[1].close(), id(array))
        return array

    def discard(self, array):
        """Do not hand this array out again."""
        with self._lock:
            self._arrays = [other for other in self._arrays if other is not array]


#: The pool and the file of each array that is shared, by the array's id.
_SHARED = {}


def _offer(vector):
    """What a rank needs to open the memory of a vector, or None where it is not shared."""
    _, file = _SHARED.get(id(vector.base), (None, None))
    return file.offer() if file else None


class Lender:
    """The server's side of one connection: how its rank's vectors come and go. `pool` is for those that are received.

    Rooms have a pool of their own: so a rank writes to, and as its commit's answer reads, always the same few, as the
    first touch of memory costs more than a copy.
    """

    def __init__(self, channel, pool):
        self.channel, self.rank, self.attempt = channel, channel.peer.rank, channel.peer.attempt
        self._pool, self._rooms = pool, Pool()
        self._host = memory_file.host_id()
        self._near = False
        self._room = None
        self._shown = {}  # vectors that the rank may read, by what proves their memory

    def hear(self, memory):
        """Note what the rank says in a request of memory (`Borrower.says`)."""
        self._near = memory is not None and memory["host"] == self._host
        holds = set(memory["holds"]) if memory else ()
        self._shown = {token: vector for token, vector in self._shown.items() if token in holds}

    def vector(self, header):
        """The vector that a request brings, to be changed at will. ValueError where it is not as was said."""
        if not header["lent"]:
            vector = protocol.new_vector(self._pool, header["dtype"], header["size"])
            return protocol.recv_vector(self.channel, vector)
        if not self._has_room(header["dtype"], header["size"]):
            raise ValueError("a vector is said to be in memory that was not lent")
        room, self._room = self._room, None
        return room

    def lend(self, dtype, size):
        """The offer of room for the next update, or None where the rank has it already, or cannot use it."""
        if not self._near or self._has_room(dtype, size):
            return None
        room = self._rooms.take(dtype, size)
        offer = _offer(room)
        self._room = room if offer else None
        return offer

    def answer(self, reply, vectors):
        """Send the reply (a dict) to a request, and the vectors that belong to it."""
        offers = [_offer(vector) if self._near else None for vector in vectors]
        self._shown.update((offer["token"], vector) for offer, vector in zip(offers, vectors) if offer)
        announced = [(vector.dtype.name, vector.size, offer) for offer, vector in zip(offers, vectors)]
        self.channel.send_json(protocol.REPLY, dict(reply, vectors=announced))
        for offer, vector in zip(offers, vectors):
            if not offer:
                protocol.send_vector(self.channel, vector)

    def end(self):
        """The connection is over; its rank may still write to its rooms, which nobody else gets, and read."""
        for vector in self._shown.values():
            pool = _SHARED[id(vector.base)][0]()
            if pool:
                pool.discard(vector.base)
        self._shown = {}

    def _has_room(self, dtype, size):
        return self._room is not None and (self._room.dtype.name, self._room.size) == (dtype, size)


class Borrower:
    """A rank's side: what it has open of the server's memory."""

    def __init__(self):
        self._host = memory_file.host_id()
        self._open = {}  # memory by what proves it
        self._room = None

    def says(self):
        """What the server must know at every request; None once memory could not be opened."""
        holds = [token for token in self._open if sys.getrefcount(self._open[token]) > _UNUSED]
        return {"host": self._host, "holds": holds} if self._host else None

    def put(self, update):
        """Write an update into the room that is lent; False where there is none."""
        room, self._room = self._room, None
        if room is None or (room.dtype, room.size) != (update.dtype, update.size):
            return False
        room[:] = update
        return True

    def lent(self, offer, dtype, size):
        """Take the room that the server offers."""
        self._room = self._vector(offer, dtype, size)

    def read(self, offer, dtype, size):
        """The vector that the server shows, read-only; None where it cannot be opened, and then nothing can."""
        vector = self._vector(offer, dtype, size)
        if vector is None:
            self._host = None
        else:
            vector.setflags(write=False)
        return vector

    def disconnected(self):
        """What was lent is lent no more."""
        self._room = None
        self.tidy()

    def tidy(self):
        """Let go of memory in which nothing is held: the server may not use it again."""
        holds = (self.says() or {"holds": ()})["holds"]
        self._open = {token: self._open[token] for token in holds}

    def _vector(self, offer, dtype, size):
        token = offer["token"]
        if token not in self._open:
            memory = memory_file.attach(offer)
            if memory is None:
                return None
            self._open[token] = memory
        return self._open[token][_TOKEN.stop :][: np.dtype(dtype).itemsize * size].view(dtype)
