"""The steps of a fit whose ranks come and go: a step that is not complete when a rank is lost is made again.

Keras' own step computes gradients and updates metrics, and the optimizer's update follows the exchange of gradients.
The exchange carries the states of the metrics as well. So a rank that has its result can finish the step, whoever dies,
and knows what the rows of a lost rank have counted. Before that nothing has changed but metrics, statistics and seeds,
which are put back: then the ranks that are left cut the same batch anew.
"""

from __future__ import annotations

from typing import Any, Callable, Sequence

import numpy as np
import tensorflow as tf

from ..gradients import reduce
from ..gradients.metric_sums import MetricSums
from ..keras_types import Model, Tensor, Variable, array_of
from ..rank.rank import Rank
from ..rank.regrouping import Regrouping
from .keras_access import KerasAccess
from .membership import Membership, State
from .placement import Placement


class RepeatedSteps(Membership):
    """Those of one fit. state: as `Membership` has it."""

    def __init__(
        self,
        rank: Rank,
        regrouping: Regrouping,
        access: KerasAccess,
        metric_sums: MetricSums,
        placement: Placement,
        model: Model,
        state: Callable[[Sequence[np.ndarray]], State],
    ) -> None:
        super().__init__(rank, regrouping, placement, state)
        self._access, self._sums, self._model = access, metric_sums, model
        self._epoch, self._changes = -1, regrouping.changes
        self._continues = False  # the first epoch has counted before
        self._totals: np.ndarray | None = None  # of the metrics' states, after the last step of this epoch
        self._own_values: list[np.ndarray] | None = None  # values of `_own_variables` then

    def begin(self, metrics: Sequence[np.ndarray]) -> None:
        super().begin(metrics)
        self._epoch, self._continues = -1, bool(metrics)
        if metrics:
            self._totals = np.concatenate([array.reshape(-1) for array in metrics]).astype(np.float64)
        self._own_values = self._values()

    def step(self, function: Callable[[Any], Any], iterator: Any) -> Any:
        """function(an iterator of one batch), until it is complete, on the next batch of `iterator`."""
        if self._rank.progress.epoch != self._epoch:
            self._epoch = self._rank.progress.epoch
            if not self._continues:
                self._totals = None
            self._continues = False
            self._own_values = self._values()  # also what callbacks have set since the last step
        self._regrouping.catches_up = False
        if self._regrouping.joins:
            self._welcome()
        self._adapt()
        batch = iterator.get_next()
        return self.until_complete(lambda: function(iter([batch])), self._put_back)

    # -- within the exchange of a step

    def tensors(self) -> list[Tensor]:
        """What the exchange carries beside gradients. Called while a step is traced, when metrics were updated."""
        variables = [*self._metric_variables(), *self._own_variables()]
        return [tf.convert_to_tensor(getattr(variable, "value", variable)) for variable in variables]

    def summands(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Of the values of `tensors`, those of metrics, whose sums over the ranks are the job's; flat, in float64."""
        states = self._metric_variables()
        gathered = set() if self._rank.peers.position == 0 else self._sums.variables_of_gathered()
        parts = [
            np.zeros(array.size) if id(state) in gathered else array.reshape(-1).astype(np.float64)
            for state, array in zip(states, arrays)
        ]
        return np.concatenate(parts or [np.zeros(0)])

    def complete(self, totals: np.ndarray, arrays: Sequence[np.ndarray]) -> None:
        """The step is complete. totals: the sum of `summands`; arrays: the values of `tensors`."""
        self._totals = totals
        self._own_values = [np.array(array) for array in arrays[len(self._metric_variables()) :]]

    # -- metrics of the job

    def put_totals(self) -> None:
        """Give the metrics the states of all rows, on every rank."""
        if self._totals is not None:
            reduce.assign(self._metric_variables(), self._totals)

    def _put_back(self) -> None:
        """A step was not complete before the ranks were others: what it has set becomes as it was."""
        self._adapt()
        for variable, value in zip(self._own_variables(), self._own_values or ()):
            variable.assign(value)

    def _adapt(self) -> None:
        """If the ranks are others: what the metrics counted in complete steps. The chief has that of all."""
        if self._changes == self._regrouping.changes:
            return
        self._changes = self._regrouping.changes
        self._placement.update()
        states = self._metric_variables()
        if self._totals is None:
            for metric in self._model.metrics:
                metric.reset_state()
        elif self._rank.peers.position == 0:
            reduce.assign(states, self._totals)
        else:
            gathered = self._sums.variables_of_gathered()
            for state, total in zip(states, self.metric_totals()):
                reduce.assign([state], total.reshape(-1) if id(state) in gathered else np.zeros(total.size))

    def _metric_variables(self) -> list[Variable]:
        return [variable for metric in self._model.metrics for variable in metric.variables]

    def _own_variables(self) -> list[Variable]:
        """What a step sets beside weights and metrics: statistics, counters, and the seeds of random numbers."""
        variables = [
            variable
            for layer in self._model._flatten_layers()
            for variable in getattr(layer, self._access.layer_state)
            if str(variable.dtype) != "string"
        ]
        every = [*variables, *self._access.seeds(self._model)]
        return list({id(variable): variable for variable in every}.values())

    def _values(self) -> list[np.ndarray]:
        return [np.array(array_of(variable)) for variable in self._own_variables()]

    def metric_totals(self) -> list[np.ndarray]:
        if self._totals is None:
            return []
        states = self._metric_variables()
        sizes = np.cumsum([int(np.prod(state.shape)) for state in states])[:-1]
        return [part.reshape(tuple(state.shape)) for part, state in zip(np.split(self._totals, sizes), states)]
