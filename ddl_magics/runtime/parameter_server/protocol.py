"""The messages between a rank and the parameter server: a frame of JSON, then the vectors it announces as raw frames.

The rank sends a request, the server answers it: with any number of ALIVE while the rank waits for others, then with one
REPLY or REFUSED. Neither side sends anything unasked, and each request is idempotent: a rank whose connection breaks
connects again and repeats its request. On one host a vector may stay in shared memory, and the message says where
(memory.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from ..transport.wire import Channel, Identity, ProtocolError

if TYPE_CHECKING:
    from ..transport.buffers import Buffers
    from ..transport.memory_file import MemoryOffer
    from .centre import RefusalKind
    from .vector import Vector

#: Who the server is, in every attempt of the run.
SERVER = Identity("server", -1, 0)

# rank -> server
BEGIN = 1  # BeginRequest, then the initial weights if there are any
PULL = 2  # PullRequest
COMMIT = 3  # CommitRequest, then the delta unless it is lent
EPOCH_END = 4  # EpochEndRequest, then sums and means, float64
BROADCAST = 5  # BroadcastRequest
LEAVE = 6  # {}

# server -> rank
REPLY = 16  # Reply, then its vectors without an offer
REFUSED = 17  # RefusalMessage
ALIVE = 18  # {}: the server lives, and others are waited for

# both ways
VECTOR = 32

#: In the answer to BEGIN: the epoch of a fit that has been stopped.
NO_MORE_EPOCHS = 1 << 31
#: The largest frame of JSON, and the largest vector: sizes are checked before memory is taken.
HEADER_LIMIT_BYTES = 1 << 20
VECTOR_LIMIT_BYTES = 1 << 34
DTYPES = frozenset(("float16", "float32", "float64"))


class MemoryState(TypedDict):
    """A rank's report on shared memory: its `memory_file.host_id`, and the tokens of the memory that it still reads."""

    host: str
    holds: list[str]


class RequestHeader(TypedDict):
    """In every request.

    memory: None once the rank could not open the server's memory. lent: whether the vector of the request lies in the
    staging buffer that an answer lent.
    """

    memory: MemoryState | None
    lent: bool


class BeginRequest(RequestHeader):
    """initial: whether the rank brings the initial weights. rate: its learning rate, if it has one."""

    fit: int
    dtype: str
    size: int
    initial: bool
    rate: float | None


class PullRequest(RequestHeader):
    """local_version: that of the rank's centre; if it is the newest, the reply has no centre."""

    fit: int
    local_version: int | None


class CommitRequest(RequestHeader):
    """version: of the centre that the delta was computed against. late: added to the staleness that follows from it.
    want: whether the reply has the new centre.
    """

    fit: int
    seq: int
    version: int
    late: int
    dtype: str
    size: int
    want: bool


class EpochEndRequest(RequestHeader):
    """sums, means: the sizes of the two vectors. trained: whether the rank had a share of the epoch. steps: that all
    have made, by its count.
    """

    fit: int
    epoch: int
    sums: int
    means: int
    stop: bool
    trained: bool
    steps: int


class BroadcastRequest(RequestHeader):
    """value: JSON, which counts from rank 0 alone."""

    fit: int
    tag: str
    value: Any


class Reply(TypedDict, total=False):
    """vectors: (dtype, size, the offer of its memory or None) of each. room: the offer of a staging buffer, or None.

    The other fields as the request has it: `Client` says.
    """

    vectors: list[tuple[str, int, MemoryOffer | None]]
    room: MemoryOffer | None
    version: int
    epoch: int
    ranks: list[int]
    steps: int
    staleness: int
    stop: bool
    value: Any


class RefusalMessage(TypedDict):
    """As a `centre.Refusal`."""

    kind: RefusalKind
    rank: int
    message: str


def send_vector(channel: Channel, vector: Vector) -> None:
    """Send a 1-D contiguous array; an empty one takes no frame, as both sides know its size."""
    if vector.size:
        channel.send(VECTOR, vector.data.cast("B"))


def recv_vector(channel: Channel, vector: Vector) -> Vector:
    """Fill a 1-D contiguous array from the next frame, and return it. ProtocolError where that is no vector."""
    if vector.size:
        kind = channel.recv_into(vector.data.cast("B"))
        if kind != VECTOR:
            raise ProtocolError("a vector was announced, and a frame of kind %d came" % kind)
    return vector


def new_vector(buffers: Buffers, dtype: str, size: int) -> Vector:
    """An array from `buffers` for a vector that a peer announces. ValueError for a dtype or size out of bounds."""
    if dtype not in DTYPES:
        raise ValueError("weights of %s are not supported by the parameter server" % dtype)
    if not isinstance(size, int) or not 0 <= size * np.dtype(dtype).itemsize <= VECTOR_LIMIT_BYTES:
        raise ValueError("a vector of %r elements is above the limit" % (size,))
    return buffers.take(dtype, size)
