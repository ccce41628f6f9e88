"""Gradients in fewer bytes: bfloat16 on the network, or only the largest of them; with residuals, so nothing is lost.

What a rank does not send in one step, as it was rounded away or too small, it keeps and adds to the gradients of the
next (error feedback: Seide et al. 2014, "1-bit SGD", section 3; Stich et al. 2018, "Sparsified SGD with memory",
algorithm 1). So what reaches the sum late is late by some steps, but it reaches it.
"""

from typing import TYPE_CHECKING, List, NamedTuple, Optional

import numpy as np

from .parts import Part

if TYPE_CHECKING:
    from .collective import Collective

BFLOAT16, TOPK = "bf16", "topk"

_LOW_HALF, _NOT_A_NUMBER = np.uint32(0x7FFF), np.uint16(0x7FC0)
_ONE, _HALF_WORD = np.uint32(1), np.uint32(16)


class Compression(NamedTuple):
    """What --compression asks for. share: of the gradients that topk sends, in (0, 1]."""

    name: str
    share: float = 1.0


def read(text: str) -> Compression:
    """ "bf16" or "topk:0.01". ValueError says what is wanted."""
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


def to_bfloat16(values: np.ndarray) -> np.ndarray:
    """float32 as the upper halves of its words (uint16), rounded to the nearest, ties to even.

    NaN stays NaN, and what is nearer to the next power of two than to the largest number becomes infinite.
    """
    words = values.view(np.uint32)
    rounded = words >> _HALF_WORD
    rounded &= _ONE
    rounded += _LOW_HALF
    rounded += words
    rounded >>= _HALF_WORD
    halves = rounded.astype(np.uint16)
    broken = np.isnan(values)
    if broken.any():
        halves[broken] = _NOT_A_NUMBER
    return halves


def from_bfloat16(halves: np.ndarray, out: Optional[np.ndarray] = None) -> np.ndarray:
    """The float32 values of `to_bfloat16`'s words, in `out` if given."""
    if out is None:
        out = np.empty(len(halves), np.float32)
    words = out.view(np.uint32)
    words[:] = halves
    words <<= _HALF_WORD
    return out


class Exact:
    """How blocks of `buffer` travel as they are. landing: bytes of the largest block."""

    def __init__(self, buffer: np.ndarray, landing: np.ndarray) -> None:
        self._buffer, self._landing = buffer, landing

    def leaving(self, block: slice) -> np.ndarray:
        """What is sent of a block whose sum is to go on."""
        return self._buffer[block]

    def landing(self, block: slice, adding: bool) -> np.ndarray:
        """Where what comes in of a block is to be put, for `landed`."""
        here = self._buffer[block]
        return self._landing[: here.nbytes].view(here.dtype) if adding else here

    def landed(self, block: slice, came: np.ndarray, adding: bool) -> np.ndarray:
        """Takes in what came; returns what goes on."""
        here = self._buffer[block]
        if adding:
            np.add(here, came, out=here)
        return here


class Rounded:
    """How blocks of a float32 `buffer` travel as bfloat16. Sums are made in float32 and rounded when they are sent.

    In a ring each rank sends each block once as a sum, in part or complete: what rounding takes from it, it keeps in
    `residual` for the next time. A complete sum is rounded on one rank and copied to the others, so that all end with
    equal bits.
    """

    def __init__(self, buffer: np.ndarray, residual: np.ndarray) -> None:
        self._buffer, self._residual = buffer, residual
        buffer += residual

    def leaving(self, block: slice) -> np.ndarray:
        here, residual = self._buffer[block], self._residual[block]
        halves = to_bfloat16(here)
        rounded = from_bfloat16(halves)
        np.subtract(here, rounded, out=residual)
        _forget_what_is_no_number(residual)
        here[:] = rounded
        return halves

    def landing(self, block: slice, adding: bool) -> np.ndarray:
        return np.empty(block.stop - block.start, np.uint16)

    def landed(self, block: slice, came: np.ndarray, adding: bool) -> np.ndarray:
        here = self._buffer[block]
        if not adding:
            from_bfloat16(came, out=here)
            return came
        np.add(here, from_bfloat16(came), out=here)
        return self.leaving(block)


def topk_allreduce(
    collective: "Collective", buffer: np.ndarray, part: Part, residual: np.ndarray, share: float
) -> List[Part]:
    """Replaces the float32 `buffer` by the sum over ranks of the largest `share` of each one's values.

    The rest is kept in `residual`. The sum is equal on all ranks to the bit; the parts are in order of rank.
    """
    buffer += residual
    count = max(1, int(len(buffer) * share)) if len(buffer) else 0
    size = len(buffer)
    chosen = np.argpartition(np.abs(buffer), size - count)[size - count :].astype(np.uint32) if count else _NOTHING
    values = buffer[chosen]
    residual[:] = buffer
    residual[chosen] = 0
    _forget_what_is_no_number(residual)
    payloads, told = collective.gather_with_parts(chosen.tobytes() + values.tobytes(), part, 8 * size + 8)
    buffer.fill(0)
    for payload in payloads:
        sent = len(payload) // 8
        buffer[np.frombuffer(payload, np.uint32, sent)] += np.frombuffer(payload, np.float32, sent, 4 * sent)
    return told


_NOTHING = np.zeros(0, np.uint32)


def _forget_what_is_no_number(residual: np.ndarray) -> None:
    """A step that overflowed is skipped or ends the run: it must not be carried into those after it."""
    fine = np.isfinite(residual)
    if not fine.all():
        residual[~fine] = 0
