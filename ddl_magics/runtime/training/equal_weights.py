"""Equal weights on all ranks: those of the chief when models begin to train, and compared when they have trained."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np
import tensorflow as tf

from ..collectives.announcement import EPOCH
from ..gradients import reduce
from ..keras_types import Variable, array_of
from ..rank.rank import Rank

_APART = (
    "the weight %r is not the same on all workers: the cell sets something that each worker computes of its own rows, "
    "or draws at random, such as a learning rate, so that the model is not the one of one process; seed what is drawn, "
    "put values together with ddl.allreduce, or use --strategy ps"
)

#: So many values of a weight are compared; differences below this, over their size, are rounding of unlike processors.
_MOST_VALUES, _ROUNDING = 1024, 1e-5


class EqualWeights:
    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._variables: dict[tuple[int, ...], Sequence[Variable]] = {}  # by ids; the variables are kept alive

    def is_new(self, variables: Sequence[Variable]) -> bool:
        """Whether this is asked of these variables for the first time."""
        key = tuple(map(id, variables))
        if key in self._variables:
            return False
        self._variables[key] = variables
        return True

    def align(self, variables: Sequence[Variable]) -> None:
        """Give all ranks the chief's values. A collective where gradients are summed; else nothing.

        Not to variables that a function being traced has just made: they have no values yet, and all ranks draw the
        same ones.
        """
        with tf.init_scope():
            inner: list[Any] = [getattr(variable, "_value", variable) for variable in variables]  # of Keras 3
            if self._rank.config.reduces_gradients and all(variable.is_initialized() for variable in inner):
                reduce.broadcast_weights(self._rank.peers, variables)

    def compare(self, variables: Sequence[Variable]) -> None:
        """Say so, once, where ranks have different values. A collective where gradients are summed; else nothing."""
        if not self._rank.config.reduces_gradients or not variables:
            return
        peers = self._rank.peers
        samples = np.concatenate([_sample(variable) for variable in variables])

        def gather() -> list[np.ndarray]:
            gathered = peers.collective.gather(samples.tobytes(), peers.announcement(EPOCH), samples.nbytes)
            return [np.frombuffer(payload, np.float64) for payload in gathered]

        every = np.array(peers.complete(gather, repeats=True))
        begin = 0
        for variable in variables:
            stop = begin + len(_sample(variable))
            largest = np.max(np.abs(every[:, begin:stop]), initial=0.0)
            if np.any(np.abs(every[:, begin:stop] - every[0, begin:stop]) > _ROUNDING * largest):
                return self._rank.reporter.notice_once("warning", _APART % variable.name)
            begin = stop


def _sample(variable: Variable) -> np.ndarray:
    values = array_of(variable).reshape(-1)
    return np.asarray(values[:: len(values) // _MOST_VALUES + 1], np.float64)
