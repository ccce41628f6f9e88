"""The step that is being traced: this rank's share of its batch, and how its loss is reduced."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator

import tensorflow as tf

from ..trial import SimulatedGather
from .batch import Share

AS_DECLARED, OF_CUT, OF_LOCAL = "declared", "cut", "local"


class TracedStep:
    """State of a rank between `enter` and `leave`.

    Attributes:
        share: None outside of a step on cut data.
        graph: The graph that the step becomes a part of; in an eager step the default one.
        sums: The loss of a train_step of the cell is a sum over rows, not a mean.
        declared: The cell has passed `reduction` to `ddl.distribute`: gradients are scaled, not losses that sum.
        as_sum: How a compiled loss that sums was treated since the last update: `AS_DECLARED`, or scaled by the rows of
            a cut batch (`OF_CUT`) or of the rank's own data (`OF_LOCAL`). None: no loss has summed.
        alone: Nothing is exchanged: this rank has the whole batch, or the code is not training.
        trial: The code runs on made-up rows.
        weighed: The code is part of a loss that is weighed as a whole.
        factor: In the trial of a step: all rows of the trial over the rows of the slice.
        added: In the trial of a step: the kinds of losses that layers add, as far as they are known.
        gathers: In the trial of a step: the step has called `ddl.all_gather`.
        gathering: In the trial of a step: stands in for the exchange of rows between ranks.
    """

    def __init__(self) -> None:
        self.share: Share | None = None
        self.graph: Any = None
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
        self.graph = tf.compat.v1.get_default_graph()

    def leave(self) -> None:
        self.share = self.graph = None

    @contextlib.contextmanager
    def state(self, **values: Any) -> Iterator[None]:
        """Give attributes values for a while."""
        before = {name: getattr(self, name) for name in values}
        self.__dict__.update(values)
        try:
            yield
        finally:
            self.__dict__.update(before)
