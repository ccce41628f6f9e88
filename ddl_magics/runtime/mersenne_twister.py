"""Whether somebody has seeded a Mersenne Twister, as Python's `random` and NumPy's global functions have: no flag of
theirs says so, but the recurrence runs backwards as well, to the block of 624 words that the seed has filled.

The generator is MT19937: M. Matsumoto and T. Nishimura, "Mersenne Twister: a 623-dimensionally equidistributed uniform
pseudorandom number generator", 1998. A block is an integer here, whose lowest 32 bits are the first word.
"""

from __future__ import annotations

import struct
from typing import Sequence

#: Blocks that are looked back for a seed: 600,000 words, of which `random.random()` takes two. Once per process: a
#: later search ends where the one before has begun.
MAX_BLOCKS = 1000

_WORDS, _HALF, _MIDDLE = 624, 312, 397
_MASK = 0xFFFFFFFF
_MATRIX = 0x9908B0DF
#: A key repeats itself in the block after so many words: that of a text of up to 16 characters has 16 to 20, of a
#: number one or two, which are in 16. The operating system's has 624.
_PERIODS = range(16, 21)
#: Words of a block that are looked at, the first one of which has told nothing since the block after it.
_LOOKED_AT = 6 + _PERIODS[-1]


def _repeated(lane: int, count: int) -> int:
    return sum(lane << 32 * index for index in range(count))


_ONES, _UPPER, _LOWER = _repeated(1, _HALF + 1), _repeated(0x80000000, _HALF), _repeated(0x7FFFFFFF, _HALF)


class SeedSearch:
    """Tells of one stream of a process whether it was seeded."""

    def __init__(self) -> None:
        self._newest: int | None = None
        self._was_seeded = False

    def note_seeded(self, words: Sequence[int]) -> None:
        """That the stream was set to this state, of which we know that it follows from a seed."""
        self._newest, self._was_seeded = _comparable(_block(words)), True

    def is_seeded(self, words: Sequence[int]) -> bool:
        """words: the 624 of the stream's state, wherever in them it has come to."""
        block = newest = _block(words)
        is_seeded = False
        for _ in range(MAX_BLOCKS):
            if _comparable(block) == self._newest:
                is_seeded = self._was_seeded
                break
            if _is_of_seed(block):
                is_seeded = True
                break
            block = _half_before(_half_before(block))
        self._newest, self._was_seeded = _comparable(newest), is_seeded
        return is_seeded


def _block(words: Sequence[int]) -> int:
    return int.from_bytes(struct.pack("<%dI" % _WORDS, *words), "little")


def _comparable(block: int) -> int:
    """Without the first word, of which the words after it tell one bit."""
    return block >> 32


def _half_before(block: int) -> int:
    """The 624 words that begin 312 earlier: word k + 624 is word k + 397 xor the upper bit of word k and the lower ones
    of word k + 1, shifted, and xor _MATRIX if its lowest bit is set. All words at once."""
    shifted = (block >> 32 * (_HALF - 1)) ^ (block >> 32 * (_MIDDLE - _HALF - 1))
    shifted &= (1 << 32 * (_HALF + 1)) - 1
    lowest = (shifted >> 31) & _ONES
    joined = (shifted ^ lowest * _MATRIX) << 1 | lowest
    half = (joined >> 32) & _UPPER | joined & _LOWER
    return (block << 32 * _HALF | half) & ((1 << 32 * _WORDS) - 1)


def _is_of_seed(block: int) -> bool:
    """Whether a key that repeats itself has filled the block, or its first word, as NumPy's legacy seeds do."""
    looked_at = block & ((1 << 32 * _LOOKED_AT) - 1)
    words = struct.unpack("<%dI" % _LOOKED_AT, looked_at.to_bytes(4 * _LOOKED_AT, "little"))
    if all(words[index] == _generated(words[index - 1], index) for index in (2, 3)):
        return True
    key_word = _of_key(words, 4)
    return any(
        key_word == _of_key(words, 4 + period) and _of_key(words, 5) == _of_key(words, 5 + period)
        for period in _PERIODS
    )


def _generated(previous: int, index: int) -> int:
    """The word at `index`, after `previous`, as `init_genrand` makes it."""
    return (_mixed(previous, 1812433253) + index) & _MASK


def _mixed(bits: int, factor: int) -> int:
    return (bits ^ bits >> 30) * factor & _MASK


#: With these words, `init_by_array` begins.
_BEGINNING = [19650218]
for _index in range(1, _LOOKED_AT):
    _BEGINNING.append(_generated(_BEGINNING[-1], _index))


def _of_key(words: Sequence[int], index: int) -> int:
    """The word of the key from which `init_by_array` has made that at `index`, from 4 on, plus its place in the key."""
    earlier, middle = [(words[at] + at) & _MASK ^ _mixed(words[at - 1], 1566083941) for at in (index - 1, index)]
    return (middle - (_BEGINNING[index] ^ _mixed(earlier, 1664525))) & _MASK
