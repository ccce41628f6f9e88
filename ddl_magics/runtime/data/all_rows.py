"""The rows of all ranks on each rank: for `ddl.all_rows`, and for layers that `adapt` to the whole data.

The ranks bring their shares block by block, and each stores all blocks on its disk; from then on a set is read without
the others. The rows are in the order of the DataFrame or the files, and a batch has as many as in a run of one worker,
so that what is learnt from them does not depend on the number of workers.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List

import numpy as np

from ..keras_types import Dataset, TensorFlow
from . import packing, rank_data, reader, share_files
from .plan import DEAL_SEED
from .row_order import class_count

if TYPE_CHECKING:
    import numpy.typing as npt

    from .records import Manifest, SetName

    #: Of the rows start to stop - 1 in their original order, the positions among all ranks' rows: int64, 1-D.
    Positions = Callable[[int, int], npt.NDArray[np.int64]]

#: A rank brings about so many bytes at a time, and receives as many of each other rank.
BLOCK_BYTES = 4 << 20

#: What all ranks bring of a set in the block of this number, in order of rank.
Gather = Callable[["SetName", int, bytes], List[bytes]]


class AllRows:
    """folder: with the rank's share, as `share_files.store` wrote it; those of all are put there, too.

    batch_size: of --batch-size. gather: every rank calls it equally often.
    """

    def __init__(self, manifest: Manifest, folder: str, rank: int, batch_size: int | None, gather: Gather) -> None:
        self._manifest, self._folder, self._rank, self._gather = manifest, folder, rank, gather
        self._batch = rank_data.batch_rows(batch_size, 1, True)
        self._shares: Dict[SetName, reader.StoredShare] = {}

    def is_whole(self, name: SetName) -> bool:
        """Whether the rank's share of a set has all rows."""
        return self._manifest["size"] == 1 or (name == "validation" and self._manifest["validation_whole"])

    def dataset(self, tf: TensorFlow, name: SetName) -> Dataset:
        """All rows of a set, in their original order: batches as `rank_data.datasets` has them.

        The first call for a set is a collective, unless `is_whole`. Raises `share_files.NoRoom`, one line.
        """
        if name not in self._shares:
            self._shares[name] = self._share(tf, name)
        rows = self._rows(name)
        steps = rank_data.edges(rows, 0, 1, self._batch, True)
        return reader.in_order(tf, self._shares[name], steps, self._positions(name))

    def _rows(self, name: SetName) -> int:
        return self._manifest["rows"] if name == "train" else self._manifest["validation_rows"]

    def _share(self, tf: TensorFlow, name: SetName) -> reader.StoredShare:
        own_share = rank_data.share(tf, self._folder, name, self._manifest)
        if self.is_whole(name):
            return own_share
        # Begins with a dot: what else is in the folder may be linked into the cache meanwhile.
        folder, manifest = os.path.join(self._folder, ".all-%s" % name), self._of_one_rank(name)
        share_files.store(self._blobs(name, own_share), folder, manifest, 0)
        if self._manifest.get("sequences") is not None:
            np.save(share_files.starts_path(folder, name), self._starts(name, own_share))
        return rank_data.share(tf, folder, name, manifest)

    def _of_one_rank(self, name: SetName) -> Manifest:
        """The manifest of a run of one worker that has nothing but this set."""
        changes: dict[str, Any] = {"size": 1, "rows": 0, "validation_rows": 0, "files": None}
        changes["rows" if name == "train" else "validation_rows"] = self._rows(name)
        sequences = self._manifest.get("sequences")
        if sequences is not None:
            stored = {other_name: [0] for other_name in share_files.SETS}
            stored[name] = [sum(sequences["stored"][name])]
            changes["sequences"] = {**sequences, "stored": stored}
        return {**self._manifest, **changes}  # type: ignore[typeddict-item]

    def _blobs(self, name: SetName, share: reader.StoredShare) -> Iterator[bytes]:
        """For `share_files.store`: the rows of all ranks."""
        for payloads in self._exchanged(name, self._payloads(name, share)):
            yield from filter(None, payloads)

    def _payloads(self, name: SetName, share: reader.StoredShare) -> Iterator[bytes]:
        """The rank's stored rows in blobs, with their places among those of all ranks."""
        start, first, stride = 0, self._rank, self._manifest["size"]
        if self._manifest.get("sequences") is not None:  # whose rows of one rank stay together
            first, stride = self._first_stored(name, self._rank), 1
        while start < len(share.arrays[0]):
            stop = share.block_stop(start, BLOCK_BYTES)
            places = first + stride * np.arange(start, stop)
            yield packing.encode({"set": name}, [places, *share.stored(start, stop)])
            start = stop

    def _first_stored(self, name: SetName, rank: int) -> int:
        """Where the rows that a rank stores for its windows begin among those of all ranks."""
        return sum(share_files.stored_rows(self._manifest, name, other_rank) for other_rank in range(rank))

    def _starts(self, name: SetName, share: reader.StoredShare) -> npt.NDArray[np.int64]:
        """With which of the stored rows of all ranks each window begins."""
        size, step = self._manifest["size"], BLOCK_BYTES // 8
        starts, own_starts = np.empty(self._rows(name), np.int64), share.window_starts
        blocks = (own_starts[begin : begin + step].tobytes() for begin in range(0, len(own_starts), step))
        for number, payloads in enumerate(self._exchanged(name, blocks)):
            for rank, payload in enumerate(payloads):
                values = np.frombuffer(payload, np.int64) + self._first_stored(name, rank)
                starts[rank::size][number * step : number * step + len(values)] = values
        return starts

    def _exchanged(self, name: SetName, payloads: Iterator[bytes]) -> Iterator[list[bytes]]:
        """What all ranks bring, block by block, until none has any more."""
        number = 0
        while True:
            gathered = self._gather(name, number, next(payloads, b""))
            if not any(gathered):
                return
            yield gathered
            number += 1

    def _positions(self, name: SetName) -> Positions | None:
        """None where the rows are stored in their original order."""
        rows = self._rows(name)
        if self._manifest.get("sequences") is not None:
            if self.is_whole(name) and name == "validation":
                return None
            size = self._manifest["size"]
            classes = class_count(rows, size) if name == "train" else size
            order = np.concatenate([np.arange(number, rows, classes) for number in range(classes)])
            return lambda start, stop: order[start:stop]
        if name == "validation":
            return None
        return lambda start, stop: packing.shuffled(start, stop, rows, DEAL_SEED)
