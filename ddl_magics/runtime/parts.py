"""What a rank says of itself in a collective, and how ranks that left the common path are told apart and named.

The ranks of a ring speak in records of one fixed size, so that nothing they read has a length of its own: an
announcement (before data), the news that two ranks disagree, or that a rank is gone.
"""

import struct
import sys
from typing import NamedTuple, Tuple

import numpy as np

# What a collective is for: `Part.kind`. The caller chooses; the words below make the messages.
WEIGHTS, STEP, EPOCH, EVALUATION, USER, BARRIER, MEETING, CHECKPOINT, WITHIN_STEP = range(1, 10)

#: kind -> what a rank in that collective is doing, counted from 1 as Keras does on the screen.
DOING = {
    WEIGHTS: "begins fit {fit}",
    STEP: "is at step {step} of epoch {epoch}",
    EPOCH: "has ended epoch {epoch}",
    EVALUATION: "is evaluating in epoch {epoch}",
    USER: "is in ddl.allreduce() (call {step} of the cell)",
    BARRIER: "is in ddl.barrier() (call {step} of the cell)",
    MEETING: "is meeting its peers",
    CHECKPOINT: "takes a checkpoint at step {step} of epoch {epoch}",
    WITHIN_STEP: "is within step {step} of epoch {epoch}",
}

# How it is done, beneath `kind`.
ALLREDUCE, BROADCAST, GATHER = range(1, 4)

ANNOUNCEMENT, DISAGREEMENT, DEPARTURE = range(1, 4)
RECORD_BYTES = 256

#: The reason of a PeerLost for a rank that left without a word.
CLOSED = "connection closed"

_TAG = struct.Struct("!BBiiqQ16s")  # operation, kind, fit, epoch, step, bytes, dtype
_PART = struct.Struct("!idIdd")  # rank, weight, flags, check, scale
_DEPARTURE = struct.Struct("!iQH")  # rank, collectives it had completed, length of the reason
_REASON_BYTES = RECORD_BYTES - 1 - _DEPARTURE.size
_ENTRY_BYTES = _TAG.size + _PART.size


class Part(NamedTuple):
    """What a rank says of itself in a collective. Everybody gets everybody's.

    `kind`, `fit`, `epoch` and `step` (from 0) must be the same on all ranks. `weight`, `flags` (32 bits), `check` and
    `scale` are the caller's to compare or to combine: rows of the batch, wish to stop, fingerprint, loss scale.
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
    """Two ranks, `rank` and `other`, met in different collectives; the message says what each was doing."""

    def __init__(self, rank: int, other: int, message: str, record: bytes = b"") -> None:
        super().__init__(message)
        self.rank, self.other, self.record = rank, other, record


class PeerLost(Exception):
    """Rank `rank` is gone: it said `reason` as it left, or `CLOSED` for one that could say nothing.

    `completed` is how many collectives it had completed when it left of its own will.
    """

    def __init__(self, rank: int, reason: str, completed: int = 0) -> None:
        super().__init__("rank %d is gone: %s" % (rank, reason))
        self.rank, self.reason, self.completed = rank, reason, completed


class Entry(NamedTuple):
    """One rank's announcement: which collective it is in, with how much data, and its part."""

    rank: int
    operation: int
    size: int  # bytes
    dtype: str
    part: Part

    def pack(self) -> bytes:
        part = self.part
        tag = _TAG.pack(self.operation, part.kind, part.fit, part.epoch, part.step, self.size, self.dtype.encode())
        return tag + _PART.pack(self.rank, part.weight, part.flags, part.check, part.scale)

    def agrees(self, other: "Entry") -> bool:
        """Whether both are in the same collective; only what is gathered may differ in size."""
        sizes = self.size == other.size or self.operation == GATHER
        return sizes and self[1:2] + self[3:4] + self.part[:4] == other[1:2] + other[3:4] + other.part[:4]


def announcement(entry: Entry) -> bytes:
    return _record(ANNOUNCEMENT, entry.pack())


def disagreement(one: Entry, other: Entry) -> Diverged:
    """The exception for two announcements that do not agree; its `record` passes the news on."""
    pair = one, other = (one, other) if one.rank < other.rank else (other, one)  # the same words on every rank
    doing = [_doing(entry, pair) for entry in pair]
    message = "the ranks took different ways: rank %d %s, rank %d %s" % (one.rank, doing[0], other.rank, doing[1])
    return Diverged(one.rank, other.rank, message, _record(DISAGREEMENT, one.pack() + other.pack()))


def departure(lost: PeerLost) -> bytes:
    reason = lost.reason.encode()[:_REASON_BYTES]
    return _record(DEPARTURE, _DEPARTURE.pack(lost.rank, lost.completed, len(reason)) + reason)


def parse(record: bytearray) -> Entry:
    """The entry of an announcement; raises the Diverged or PeerLost that the record tells of."""
    kind, body = record[0], bytes(record[1:])
    if kind == ANNOUNCEMENT:
        return _entry(body)
    if kind == DISAGREEMENT:
        raise disagreement(_entry(body), _entry(body[_ENTRY_BYTES:]))
    if kind == DEPARTURE:
        rank, completed, length = _DEPARTURE.unpack_from(body)
        reason = body[_DEPARTURE.size : _DEPARTURE.size + length]
        raise PeerLost(rank, reason.decode(errors="replace"), completed)
    raise ValueError("unknown record %d" % kind)


def dtype_code(dtype: np.dtype) -> str:
    """Name and byte order: what two ranks must share to add their bytes."""
    order = sys.byteorder if dtype.byteorder in "=|" else dtype.byteorder
    return (dtype.name + order[0])[:16]


def _record(kind: int, body: bytes) -> bytes:
    return (bytes([kind]) + body).ljust(RECORD_BYTES, b"\0")


def _entry(body: bytes) -> Entry:
    operation, kind, fit, epoch, step, size, dtype = _TAG.unpack_from(body)
    rank, weight, flags, check, scale = _PART.unpack_from(body, _TAG.size)
    part = Part(kind, fit, epoch, step, weight, flags, check, scale)
    return Entry(rank, operation, size, dtype.rstrip(b"\0").decode(errors="replace"), part)


def _doing(entry: Entry, pair: Tuple[Entry, Entry]) -> str:
    part = entry.part
    words = DOING.get(part.kind, "is in collective {kind}, step {step} of epoch {epoch}")
    words = words.format(kind=part.kind, fit=part.fit + 1, epoch=part.epoch + 1, step=part.step + 1)
    if pair[0].part.kind == pair[1].part.kind:
        if pair[0].part.fit != pair[1].part.fit and "fit" not in words:
            words += " of fit %d" % (part.fit + 1)
        if pair[0].part[:4] == pair[1].part[:4]:
            words += " with %d bytes of %s" % (entry.size, entry.dtype[:-1] or "data")
    return words
