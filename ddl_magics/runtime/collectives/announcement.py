"""What each rank sends with a collective, and how ranks find that they are in different ones, or that one is gone.

The ranks exchange records of one fixed size, so no record has a length that must be read first. A record is a call
(sent before the call's data), a disagreement between two ranks, or the departure of a rank.
"""

from __future__ import annotations

import struct
import sys
from typing import NamedTuple

import numpy as np

# The purpose of a collective: `Announcement.kind`. The caller chooses one; `DOING` names it in messages.
WEIGHTS, STEP, EPOCH, EVALUATION, USER, BARRIER, RENDEZVOUS, CHECKPOINT, WITHIN_STEP, METRICS, ROWS, FEED = range(1, 13)

#: kind -> what a rank in that collective does. Fits, epochs, steps and calls count from 1, as Keras prints them.
DOING = {
    WEIGHTS: "begins fit {fit}",
    STEP: "is at step {step} of epoch {epoch}",
    EPOCH: "has ended epoch {epoch}",
    EVALUATION: "is evaluating in epoch {epoch}",
    USER: "is in ddl.allreduce() (call {step} of the cell)",
    BARRIER: "is in ddl.barrier() (call {step} of the cell)",
    RENDEZVOUS: "is connecting to its peers",
    CHECKPOINT: "takes a checkpoint at step {step} of epoch {epoch}",
    METRICS: "is in train_on_batch(), test_on_batch() or ddl.result() at step {step}",
    FEED: "reads data in fit {fit}",
    WITHIN_STEP: "is within step {step} of epoch {epoch}",
    ROWS: "reads all rows of --data, for adapt() or ddl.all_rows()",
}

# The operation that carries it out.
ALLREDUCE, BROADCAST, GATHER, SCATTER, REDUCE_SCATTER, ALL_GATHER = range(1, 7)

# The kinds of records.
CALL, DISAGREEMENT, DEPARTURE = range(1, 4)
RECORD_BYTES = 256

#: The reasons of a PeerLost for a rank that ended without sending one, and for a rank that is cut off.
CLOSED = "connection closed"
UNREACHABLE = "its host does not answer"

_CALL = struct.Struct("!BBiiqQ16sI")  # operation, kind, fit, epoch, step, bytes, dtype, parts
_ANNOUNCED = struct.Struct("!idIdd")  # rank, weight, flags, check, scale
_DEPARTURE = struct.Struct("!iQH")  # rank, its number of completed collectives, length of the reason
_REASON_BYTES = RECORD_BYTES - 1 - _DEPARTURE.size
_PACKED_CALL_BYTES = _CALL.size + _ANNOUNCED.size


class Announcement(NamedTuple):
    """What a rank announces with a collective. Every rank gets the announcements of all.

    `kind`, `fit`, `epoch` and `step` (from 0) must be equal on all ranks. The caller compares or combines the others:
    `weight` (rows of the batch), `flags` (32 bits, of stopping.py), `check` (fingerprint of the batch) and `scale`.
    """

    kind: int
    fit: int = 0
    epoch: int = 0
    step: int = 0
    weight: float = 0.0
    flags: int = 0
    check: float = 0.0
    scale: float = 0.0


class Diverged(Exception):
    """Ranks `rank` and `other_rank` are in different collectives; the message says what each does."""

    def __init__(self, rank: int, other_rank: int, message: str, record: bytes = b"") -> None:
        super().__init__(message)
        self.rank, self.other_rank, self.record = rank, other_rank, record


class PeerLost(Exception):
    """Rank `rank` is gone. reason: its own, or `CLOSED` if it ended without sending one.

    completed: how many collectives it had completed when it left on purpose.
    """

    def __init__(self, rank: int, reason: str, completed: int = 0) -> None:
        super().__init__("rank %d is gone: %s" % (rank, reason))
        self.rank, self.reason, self.completed = rank, reason, completed


class CollectiveCall(NamedTuple):
    """A rank's call of a collective, as the other ranks get it.

    operation: ALLREDUCE and so on. size: bytes of its data; in a scatter, of the longest payload. dtype: their
    `dtype_code`, "" for a gather or a scatter. parts: the fingerprint of their bounds (parts.py), 0 without parts.
    """

    rank: int
    operation: int
    size: int
    dtype: str
    announcement: Announcement
    parts: int = 0

    def pack(self) -> bytes:
        kind, fit, epoch, step, weight, flags, check, scale = self.announcement
        call = _CALL.pack(self.operation, kind, fit, epoch, step, self.size, self.dtype.encode(), self.parts)
        return call + _ANNOUNCED.pack(self.rank, weight, flags, check, scale)

    def matches(self, peer_call: CollectiveCall) -> bool:
        """Whether both ranks are in the same collective. The data of a gather or a scatter may differ in size."""
        sizes = self.size == peer_call.size or self.operation in (GATHER, SCATTER)
        return (
            sizes
            and self.operation == peer_call.operation
            and self.dtype == peer_call.dtype
            and self.parts == peer_call.parts
            and self.announcement[:4] == peer_call.announcement[:4]
        )


def encode(call: CollectiveCall) -> bytes:
    """The record of a call."""
    return _record(CALL, call.pack())


def disagreement(call: CollectiveCall, peer_call: CollectiveCall) -> Diverged:
    """The exception for two calls that do not match. Its `record` passes it on to other ranks."""
    if call.rank > peer_call.rank:  # the message is the same on every rank
        call, peer_call = peer_call, call
    message = (
        "the ranks are in different collectives: rank %d %s, rank %d %s; every rank must run the same steps, and make "
        "the same calls of ddl.allreduce() and ddl.barrier()"
    ) % (call.rank, _doing(call, peer_call), peer_call.rank, _doing(peer_call, call))
    return Diverged(call.rank, peer_call.rank, message, _record(DISAGREEMENT, call.pack() + peer_call.pack()))


def departure(lost: PeerLost) -> bytes:
    """The record of a rank's departure."""
    reason = lost.reason.encode()[:_REASON_BYTES]
    return _record(DEPARTURE, _DEPARTURE.pack(lost.rank, lost.completed, len(reason)) + reason)


def parse(record: bytearray) -> CollectiveCall:
    """The call in a record.

    Raises the Diverged of a disagreement, the PeerLost of a departure, and ValueError for an unknown record.
    """
    kind, body = record[0], bytes(record[1:])
    if kind == CALL:
        return _unpack(body)
    if kind == DISAGREEMENT:
        raise disagreement(_unpack(body), _unpack(body[_PACKED_CALL_BYTES:]))
    if kind == DEPARTURE:
        rank, completed, length = _DEPARTURE.unpack_from(body)
        reason = body[_DEPARTURE.size : _DEPARTURE.size + length]
        raise PeerLost(rank, reason.decode(errors="replace"), completed)
    raise ValueError("unknown record %d" % kind)


def dtype_code(dtype: np.dtype) -> str:
    """A dtype's name and byte order: ranks can add each other's bytes only if theirs are equal."""
    name: str = dtype.name
    order = sys.byteorder if dtype.byteorder in "=|" else dtype.byteorder
    return (name + order[0])[:16]


def _record(kind: int, body: bytes) -> bytes:
    return (bytes([kind]) + body).ljust(RECORD_BYTES, b"\0")


def _unpack(body: bytes) -> CollectiveCall:
    operation, kind, fit, epoch, step, size, dtype, parts = _CALL.unpack_from(body)
    rank, weight, flags, check, scale = _ANNOUNCED.unpack_from(body, _CALL.size)
    announcement = Announcement(kind, fit, epoch, step, weight, flags, check, scale)
    return CollectiveCall(rank, operation, size, dtype.rstrip(b"\0").decode(errors="replace"), announcement, parts)


def _doing(call: CollectiveCall, peer_call: CollectiveCall) -> str:
    """What the rank of `call` does, in the detail that tells it from what the rank of `peer_call` does."""
    announced, peer_announced = call.announcement, peer_call.announcement
    text = DOING.get(announced.kind, "is in collective {kind}, step {step} of epoch {epoch}")
    text = text.format(kind=announced.kind, fit=announced.fit + 1, epoch=announced.epoch + 1, step=announced.step + 1)
    if announced.kind == peer_announced.kind:
        if announced.fit != peer_announced.fit and "fit" not in text:
            text += " of fit %d" % (announced.fit + 1)
        if announced[:4] == peer_announced[:4]:
            text += " with %d bytes of %s" % (call.size, call.dtype[:-1] or "data")
        if (call.operation, call.size) == (peer_call.operation, peer_call.size) and call.parts != peer_call.parts:
            text += " in parts of its own"
    return text
