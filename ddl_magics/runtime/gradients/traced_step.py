"""The step that is being traced: which share of the batch is in work, and how its loss turns out to be reduced."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator

from ..trial import SimulatedGather
from .batch import Share

AS_DECLARED, OF_CUT, OF_LOCAL = "declared", "cut", "local"


class TracedStep:
    """State of a rank between `enter` and `leave`.

    share: None outside of a step on cut data. sums: the loss of an own train_step is a sum over rows, not a mean.
    declared: `ddl.distribute` has been told so, or that it is a mean: then no sum is scaled before its gradients are.
    as_sum: how a compiled loss that is a sum was treated since the last update: `AS_DECLARED`, or scaled by the rows of
    a cut batch (`OF_CUT`) or of the rank's own data (`OF_LOCAL`); None where there was none.
    alone: what is being computed has the whole batch, or is none of the job's: ranks exchange nothing for it. trial: it
    is computed on made-up rows. weighed: it is part of a loss that is weighed as a whole. Where a step is tried,
    factor: the rows of the trial over those in work; added: the kinds of losses that layers add, as far as they are
    known; gathers: it has wanted rows of all ranks by `ddl.all_gather`; gathering: gives it those for losses that every
    rank computes of the rows of all ranks.
    """

    def __init__(self) -> None:
        self.share: Share | None = None
        self.sums = self.declared = self.alone = self.trial = self.weighed = self.gathers = False
        self.factor: float | None = None
        self.as_sum: str | None = None
        self.added: dict[int, str] = {}
        self.gathering = SimulatedGather()

    @contextlib.contextmanager
    def step_on(self, share: Share) -> Iterator[None]:
        """A step on `share` is being traced."""
        self.enter(share)
        try:
            yield
        finally:
            self.leave()

    def enter(self, share: Share) -> None:
        self.share, self.sums, self.declared, self.as_sum = share, False, False, None

    def leave(self) -> None:
        self.share = None

    @contextlib.contextmanager
    def state(self, **values: Any) -> Iterator[None]:
        """Give attributes values for a while."""
        before = {name: getattr(self, name) for name in values}
        self.__dict__.update(values)
        try:
            yield
        finally:
            self.__dict__.update(before)
