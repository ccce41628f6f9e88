"""What travels between a rank and the parameter server: a JSON frame, then the vectors it announces as raw frames.

The rank asks, the server answers: any number of ALIVE, while it waits for others, then one REPLY or REFUSED. Nobody has
anything in flight unasked, so that a connection that breaks can be replaced and the question put again: each
request is idempotent. On one host a vector may stay where it is and only be told of (parameter_memory.py).
"""

import numpy as np

from .wire import Identity

#: Who the server is, in every attempt of the run.
SERVER = Identity("server", -1, 0)

# rank -> server; each with "memory" (`Borrower.says`); a delta that is "lent" is in the room that an answer offered
BEGIN = 1  # {"fit", "dtype", "size", "initial": bool, "rate"}, then the initial weights
PULL = 2  # {"fit", "known"}: the reply has no centre if that version is still the newest
COMMIT = 3  # {"fit", "seq", "version", "late", "batches", "dtype", "size", "want": bool, "lent": bool}, then the delta
EPOCH_END = 4  # {"fit", "epoch", "sums", "means", "stop"}: sizes, then both vectors (float64)
SHARE = 5  # {"fit", "tag", "value"}: the value counts from rank 0 alone
LEAVE = 6  # {}

# server -> rank
REPLY = 16  # {..., "vectors": a list of [dtype, size, offer], "room": offer}, then those vectors whose offer is null
REFUSED = 17  # {"kind", "rank", "message"}
ALIVE = 18  # {}: others are waited for

# both
VECTOR = 32

#: The largest JSON frame, and the largest vector: sizes are checked before memory is taken.
HEADER_LIMIT_BYTES = 1 << 20
VECTOR_LIMIT_BYTES = 1 << 34
DTYPES = frozenset(("float16", "float32", "float64"))


def send_vector(channel, vector):
    """Send a 1-D contiguous array; an empty one takes no frame, as both sides know its size."""
    if vector.size:
        channel.send(VECTOR, memoryview(vector).cast("B"))


def recv_vector(channel, vector):
    """Fill a 1-D contiguous array from the next frame, and return it."""
    if vector.size:
        kind = channel.recv_into(memoryview(vector).cast("B"))
        if kind != VECTOR:
            raise ValueError("a vector was announced, a frame of kind %d came" % kind)
    return vector


def new_vector(buffers, dtype, size):
    """An array of `buffers` for a vector that a peer announces. ValueError where dtype or size cannot be right."""
    if dtype not in DTYPES:
        raise ValueError("weights of %s are not supported by the parameter server" % dtype)
    if not isinstance(size, int) or not 0 <= size * np.dtype(dtype).itemsize <= VECTOR_LIMIT_BYTES:
        raise ValueError("a vector of %r elements is above the limit" % (size,))
    return buffers.take(dtype, size)
