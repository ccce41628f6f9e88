"""Gradients in fewer bytes: rounded to bfloat16 on the network, or only the largest ones, both with error feedback.

Error feedback: a rank keeps what it did not send in a residual, and adds it to its next gradients. So a gradient that
was rounded away or too small is not lost, but reaches the sum some steps late (Seide et al. 2014, "1-bit stochastic
gradient descent", section 3, for quantization; Aji and Heafield 2017, "Sparse communication for distributed gradient
descent", for the largest values; Stich et al. 2018, "Sparsified SGD with memory", proves convergence of the latter).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from .announcement import Announcement

if TYPE_CHECKING:
    import numpy.typing as npt

    from .collective import Collective

BFLOAT16, TOPK = "bf16", "topk"

_LOW_HALF, _NAN = np.uint32(0x7FFF), np.uint16(0x7FC0)
_LOWEST_BIT, _HALF_WORD = np.uint32(1), np.uint32(16)
_NO_INDICES = np.zeros(0, np.uint32)


class Compression(NamedTuple):
    """The value of --compression. name: BFLOAT16 or TOPK; share: of its gradients that a rank sends, in (0, 1]."""

    name: str
    share: float = 1.0

    @property
    def text(self) -> str:
        """As --compression takes it."""
        return "%s:%g" % self if self.name == TOPK else self.name


def read(text: str) -> Compression:
    """The compression that "bf16" or "topk:0.01" names. Raises ValueError that says what is wanted."""
    name, colon, share = text.partition(":")
    if name == BFLOAT16 and not colon:
        return Compression(name)
    try:
        number = float(share)
    except ValueError:
        number = 0.0
    if name == TOPK and 0 < number <= 1:
        return Compression(name, number)
    raise ValueError("bf16, or topk with the share of the gradients to send, as in topk:0.01")


def to_bfloat16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """The bits of `values` (1-D) as bfloat16, the upper half of a float32, rounded to nearest, ties to even.

    NaN becomes the quiet NaN 0x7FC0. A value that rounds above the largest bfloat16 becomes infinite.
    """
    words = values.view(np.uint32)
    rounded: npt.NDArray[np.uint32] = words >> _HALF_WORD
    rounded &= _LOWEST_BIT
    rounded += _LOW_HALF
    rounded += words
    rounded >>= _HALF_WORD
    halves = rounded.astype(np.uint16)
    nan = np.isnan(values)
    if nan.any():
        halves[nan] = _NAN
    return halves


def from_bfloat16(
    halves: npt.NDArray[np.uint16], out: npt.NDArray[np.float32] | None = None
) -> npt.NDArray[np.float32]:
    """The float32 values of bfloat16 bits (1-D), exactly; in `out`, of the same length, if given."""
    if out is None:
        out = np.empty(len(halves), np.float32)
    words = out.view(np.uint32)
    words[:] = halves
    words <<= _HALF_WORD
    return out


class BlockCodec(Protocol):
    """How the blocks of a 1-D buffer travel around the ring: `adding` on the way to their sum, then as a copy of it.

    What is sent and what it lands in have the same dtype: the buffer's, or that of its compressed form.
    """

    def encode(self, block: slice) -> np.ndarray:
        """What this rank sends of a block that it is the first to send."""

    def landing(self, block: slice, adding: bool) -> np.ndarray:
        """The array into which a block is received."""

    def accept(self, block: slice, received: np.ndarray, adding: bool) -> np.ndarray:
        """Adds or copies a received block into the buffer. Returns what the next rank gets."""


class ExactCodec:
    """A `BlockCodec` that sends blocks of `buffer` (any dtype) as they are. landing: bytes for the largest block."""

    def __init__(self, buffer: np.ndarray, landing: npt.NDArray[np.uint8]) -> None:
        self._buffer, self._landing = buffer, landing

    def encode(self, block: slice) -> np.ndarray:
        return self._buffer[block]

    def landing(self, block: slice, adding: bool) -> np.ndarray:
        values = self._buffer[block]
        return self._landing[: values.nbytes].view(values.dtype) if adding else values

    def accept(self, block: slice, received: np.ndarray, adding: bool) -> np.ndarray:
        values = self._buffer[block]
        if adding:
            np.add(values, received, out=values)
        return values


class Bfloat16Codec:
    """A `BlockCodec` that sends blocks of a float32 `buffer` as bfloat16. It adds in float32, and rounds what it sends.

    Each rank rounds each block once, as a partial or as the complete sum, and keeps in `residual` (float32, as the
    buffer) what rounding removes. One rank rounds the complete sum and the others copy it, so all get equal bits.
    """

    def __init__(self, buffer: npt.NDArray[np.float32], residual: npt.NDArray[np.float32]) -> None:
        self._buffer, self._residual = buffer, residual
        buffer += residual

    def encode(self, block: slice) -> npt.NDArray[np.uint16]:
        values, residual = self._buffer[block], self._residual[block]
        halves = to_bfloat16(values)
        rounded = from_bfloat16(halves)
        np.subtract(values, rounded, out=residual)
        _clear_non_finite(residual)
        values[:] = rounded
        return halves

    def landing(self, block: slice, adding: bool) -> npt.NDArray[np.uint16]:
        return np.empty(block.stop - block.start, np.uint16)

    def accept(self, block: slice, received: npt.NDArray[np.uint16], adding: bool) -> npt.NDArray[np.uint16]:
        values = self._buffer[block]
        if not adding:
            from_bfloat16(received, out=values)
            return received
        np.add(values, from_bfloat16(received), out=values)
        return self.encode(block)


def topk_allreduce(
    collective: Collective,
    buffer: npt.NDArray[np.float32],
    announcement: Announcement,
    residual: npt.NDArray[np.float32],
    share: float,
) -> list[Announcement]:
    """Replaces `buffer` by the sum over ranks of each rank's largest values.

    buffer, residual: 1-D, of the same length on all ranks. A rank adds its residual to its buffer, sends the `share`
    (0 to 1) of largest magnitude, at least one, as indices (uint32) and values (float32), and keeps the others in the
    residual. All ranks add what all have sent in order of rank, so the sum has equal bits on all. Nothing else of Lin
    et al. 2018, "Deep gradient compression", is done (momentum correction, clipping, warm-up).

    Returns the announcements of all ranks, in order of rank. Raises what every collective raises.
    """
    buffer += residual
    count = max(1, int(len(buffer) * share)) if len(buffer) else 0
    size = len(buffer)
    indices = np.argpartition(np.abs(buffer), size - count)[size - count :].astype(np.uint32) if count else _NO_INDICES
    values = buffer[indices]
    residual[:] = buffer
    residual[indices] = 0
    _clear_non_finite(residual)
    payload = indices.tobytes() + values.tobytes()
    payloads, announcements = collective.gather_with_announcements(payload, announcement, 8 * size + 8)
    buffer.fill(0)
    for payload in payloads:
        count_sent = len(payload) // 8
        buffer[np.frombuffer(payload, np.uint32, count_sent)] += np.frombuffer(
            payload, np.float32, count_sent, 4 * count_sent
        )
    return announcements


def _clear_non_finite(residual: npt.NDArray[np.float32]) -> None:
    """A step that overflowed is skipped or ends the run, so later steps must not inherit its NaN and infinities."""
    finite = np.isfinite(residual)
    if not finite.all():
        residual[~finite] = 0
