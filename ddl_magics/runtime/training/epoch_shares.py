"""A rank's share of each epoch's batches where ranks come and go, of a dataset whose random operations keep drawing."""

from __future__ import annotations

from typing import Any, Callable

from ..keras_types import Dataset
from . import share


class EpochShares:
    """What an epoch iterator reads instead of the dataset. One iterator goes through all epochs, as a new one would
    begin with the draws of the first; when the ranks are others, a new one skips what was drawn before.
    """

    def __init__(self, dataset: Dataset, count: int, place: Callable[[], tuple[int, int]], of_arrays: bool) -> None:
        """count: batches of an epoch. place(): the rank's position and the number of ranks, in the epoch that begins.
        of_arrays: as `share.cut` has it.
        """
        self._count, self._place = count, place
        self._dataset, self._gather = share.before_gathering(dataset) if of_arrays else (dataset, None)
        self.element_spec = self._from(0, 0, 1).element_spec
        self._epoch = 0
        self._made_for: tuple[int, int] | None = None
        self._iterator: Any = None

    def skip(self, epochs: int) -> None:
        """Begin so many epochs later."""
        self._epoch += epochs

    def begin_epoch(self) -> None:
        place = self._place()
        if place != self._made_for:
            self._iterator, self._made_for = iter(self._from(self._epoch, *place)), place
        self._epoch += 1

    def __iter__(self) -> Any:
        return self._iterator

    def _from(self, epoch: int, rank: int, size: int) -> Dataset:
        """The rank's share of that epoch and all that follow: every `size`-th batch, beginning with number `rank`."""
        following = self._dataset.repeat().skip(self._count * epoch)
        own = share.every_nth(following, rank, size, self._count) if rank < size else self._dataset.take(0)
        return share.gathered(own, self._gather)
