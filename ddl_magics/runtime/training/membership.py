"""Who trains a fit together, where ranks come and go."""

from __future__ import annotations

import contextlib
import json
from typing import Any, Callable, Sequence

import numpy as np

from ..collectives.announcement import PeerLost
from ..rank.rank import Rank
from ..rank.regrouping import Regrouped, Regrouping, broadcast_arrays
from .placement import Placement

#: (metadata, {name: array}), as a checkpoint has them.
State = Any


class Membership:
    """That of one fit. state(counted): of the fit, for a rank that joins; counted: by the metrics, by state.

    validates: a validation has begun for the callbacks, and has not ended.
    """

    def __init__(
        self,
        rank: Rank,
        regrouping: Regrouping,
        placement: Placement,
        state: Callable[[Sequence[np.ndarray]], State],
    ) -> None:
        self._rank, self._regrouping, self._placement, self._state = rank, regrouping, placement, state
        self.validates = False

    def begin(self, metrics: Sequence[np.ndarray]) -> None:
        """The fit begins. metrics: what its first epoch has counted before, or nothing."""
        self._regrouping.active = True
        self._placement.update()

    def end(self) -> None:
        self._regrouping.active = False

    def begin_epoch(self) -> None:
        """Take in the ranks that wait, and share out the epoch's rows among those that are there."""
        self._regrouping.catches_up = False
        if self._regrouping.joins:
            self._welcome()
        self._placement.update()

    def evaluation(self, call: Callable[[], Any], end_callbacks: Callable[[], Any]) -> Any:
        """The result of `call`, the validation of an epoch, of the ranks that are there at its end.

        end_callbacks(): ends it for callbacks for which it has begun, before it is made again.
        """

        def adapt() -> None:
            if self.validates:
                end_callbacks()
            self._placement.update()

        self._placement.update()
        return self.until_complete(call, adapt, as_whole=True)

    def until_complete(
        self, call: Callable[[], Any], adapt: Callable[[], None] = lambda: None, as_whole: bool = False
    ) -> Any:
        """The result of `call`, which is made again when a rank was lost before it was complete.

        adapt: is called when the ranks are others. as_whole: only the last of its collectives completes it.
        """
        errors, regrouping = self._rank.errors, self._regrouping
        while True:
            changes, errors.regrouped = regrouping.changes, False
            try:
                with regrouping.made_as_whole() if as_whole else contextlib.nullcontext():
                    result = call()
            except Exception as error:
                if not errors.regrouped and not isinstance(error, Regrouped):
                    raise
                adapt()
                continue
            if regrouping.changes != changes:
                adapt()
            return result

    def metric_totals(self) -> list[np.ndarray]:
        """What the metrics have counted of the epoch in progress, on all ranks, by state; nothing at its beginning."""
        return []

    def _welcome(self) -> None:
        """Take in the ranks that wait, and give them the state of this fit."""
        regrouping, peers = self._regrouping, self._rank.peers
        regrouping.joins = regrouping.is_asked = False
        while True:
            regrouping.regroup(peers, welcomes=self._rank.progress.fit)
            if not regrouping.has_newcomers:
                break
            try:
                send_state(peers.collective, self._state(self.metric_totals()) if peers.position == 0 else None)
                break
            except PeerLost:
                continue


def send_state(ring: Any, state: State) -> State:
    """The state of the rank at position 0, on all ranks."""
    metadata, arrays = state if state is not None else ({}, {})
    header = np.frombuffer(json.dumps([metadata, list(arrays)]).encode(), np.uint8)
    header, *values = broadcast_arrays(ring, 0, [header, *arrays.values()] if ring.rank == 0 else [])
    metadata, names = json.loads(header.tobytes())
    return metadata, dict(zip(names, values))
