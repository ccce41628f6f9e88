"""The exchange of gradients between ranks that come and go: it completes a step for all of them, or for none."""

from __future__ import annotations

from typing import Callable, Protocol, Sequence

import numpy as np

from ..collectives.announcement import STEP
from ..keras_types import Tensor
from ..rank.peers import Peers, flags_of
from ..rank.rank import HookErrors
from .exchange import GradientExchange, WeightedBatch


class Carried(Protocol):
    """What an exchange carries beside gradients: `repeated_steps.RepeatedSteps`."""

    def tensors(self) -> list[Tensor]: ...

    def summands(self, arrays: Sequence[np.ndarray]) -> np.ndarray: ...

    def complete(self, totals: np.ndarray, arrays: Sequence[np.ndarray]) -> None: ...


class RepeatedExchange(GradientExchange):
    """A rank that has the sums keeps them until the next step is complete, for one that has not."""

    def __init__(self, peers: Peers, errors: HookErrors, check_finite: bool, steps: Callable[[], Carried]) -> None:
        """steps: of the fit in progress, as several fits of a model have one graph."""
        super().__init__(peers, errors, check_finite)
        self._steps = steps

    def carried(self) -> list[Tensor]:
        return self._steps().tensors()

    def exchanged(
        self,
        batch: WeightedBatch,
        dense: Sequence[np.ndarray],
        sparse: Sequence[np.ndarray],
        carried: Sequence[np.ndarray],
    ) -> Sequence[np.ndarray]:
        peers, steps = self._peers, self._steps()
        count = peers.progress.exchanges

        def make() -> list[np.ndarray]:
            peers.progress.exchanges = count
            sums = self._exchange(batch, dense, sparse)
            totals = steps.summands(carried)
            announced = peers.collective.allreduce(totals, peers.announcement(STEP, batch.rows))
            # TensorFlow may change what it is given.
            return [*(np.array(array) for array in sums), totals, np.array([flags_of(announced)])]

        try:
            *sums, totals, flags = peers.complete(make, repeats=False)
        except BaseException:
            peers.progress.exchanges = count
            raise
        peers.progress.exchanges = count + 1
        peers.note_flags(int(flags[0]))
        steps.complete(totals, carried)
        return sums
