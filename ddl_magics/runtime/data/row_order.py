"""The order in which an epoch goes through the rows of a set: a function of the seed and the epoch.

Row r of a set is row r // n of rank r % n. To be the same for n = 1, 2, 3, ..., the order leaves each row in its class,
r % C, where n divides C: position p of an epoch has one of the rows of class p % C. Which one is drawn anew in each
epoch. A rank can therefore draw the order of its own rows without knowing the others', and all ranks together make the
order that one process makes. The rows of a class are a random part of the data, as feed.py mixes rows before it deals
them.

A set that is larger than `WINDOW_BYTES` is not read in random order, which would cost a page of the disk a row: it is
cut into blocks of consecutive rows, and an epoch goes through them in a random order, a window of blocks at a time,
whose rows are shuffled together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Tuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

#: Classes of rows, the first that the rows suffice for. The divisors of these are the numbers of ranks with one order.
CLASSES = (48, 12)
#: A class has at least so many rows.
ROWS_PER_CLASS = 16
#: Of all ranks together. Both are constants, so that the order does not depend on a machine's memory.
WINDOW_BYTES = 128 << 20
BLOCK_BYTES = 128 << 10
#: Apart from each other, from the draw for validation and from `packing.shuffled`.
_BLOCK_DRAW, _ROW_DRAW = 2, 3

#: Consecutive rows of a rank's share: (first, behind the last).
Piece = Tuple[int, int]


def class_count(rows: int, size: int) -> int:
    """C for `rows` rows of all `size` ranks together. A multiple of `size`."""
    for count in CLASSES:
        if rows >= count * ROWS_PER_CLASS:
            return count if count % size == 0 else size
    return size


class RowOrder:
    """The orders of a rank's share.

    rows: of all `size` ranks together. row_bytes: of one row, on disk. Windows of an epoch are numbered from 0; all
    ranks have equally many. own_classes: number of the rank's classes.
    """

    def __init__(self, rows: int, rank: int, size: int, row_bytes: int, seed: int) -> None:
        self._rank, self._size, self._seed = rank, size, seed
        self._classes = class_count(rows, size)
        self.own_classes = self._classes // size
        self._share = (rows - rank + size - 1) // size
        of_classes = max(1, BLOCK_BYTES // (max(1, row_bytes) * self._classes))  # rows of each class in a block
        self.windows = max(1, -(-rows * row_bytes // WINDOW_BYTES))
        self._blocks = rows // (of_classes * self._classes) if self.windows > 1 else 0
        self.windows = max(1, min(self.windows, self._blocks))
        self._block_rows = of_classes * self._classes // size  # of the rank's

    def pieces(self, epoch: int, window: int) -> List[Piece]:
        """The share's rows that are shuffled together. Those behind the last whole block are in the last window."""
        blocks = np.random.default_rng([self._seed, _BLOCK_DRAW, epoch]).permutation(self._blocks)
        chosen_blocks = np.sort(np.array_split(blocks, self.windows)[window]).tolist()
        pieces = [(block * self._block_rows, (block + 1) * self._block_rows) for block in chosen_blocks]
        if window == self.windows - 1 and self._blocks * self._block_rows < self._share:
            pieces.append((self._blocks * self._block_rows, self._share))
        return pieces

    def window_edges(self) -> npt.NDArray[np.int64]:
        """The first position of each window in the epoch of the rank, and the rows of its share; int64."""
        lengths = [len(split) for split in np.array_split(np.arange(self._blocks), self.windows)]
        edges = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64) * self._block_rows
        edges[-1] = self._share
        return edges

    def draw(self, epoch: int, window: int) -> npt.NDArray[np.int64]:
        """The rows of the share in their order, 1-D."""
        classes = self.own_classes  # whose rows are so many apart in the share
        pieces = self.pieces(epoch, window)
        order = np.empty(sum(stop - start for start, stop in pieces), np.int64)
        for index in range(classes):
            rows = np.concatenate([np.arange(start + index, stop, classes) for start, stop in pieces])
            number = self._rank + self._size * index
            draw = np.random.default_rng([self._seed, _ROW_DRAW, epoch, window, number])
            order[index::classes] = draw.permutation(rows)
        return order
