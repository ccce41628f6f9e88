"""The histories of a run's fits, from its events: `History.history` of Keras for each fit."""

from __future__ import annotations

from typing import Dict, Iterable, List, Mapping, Optional

from .chief import Chief
from .events import Epoch, Fit, Member, Metrics, RawEvent, Values, parse

History = Dict[str, List[Optional[float]]]  # metric -> its value in each epoch; None stands for NaN


def histories(raw_events: Iterable[RawEvent], member: int = 0) -> list[History]:
    """The history of each call of `fit`, in order; of a loop of the cell's own, what its chief logged meanwhile.

    Such a loop is a fit of no epochs, and a later attempt begins it anew. If a later attempt repeats an epoch, it
    counts once, with the values of the later attempt.

    Args:
        raw_events: the run's events.
        member: the rank of the model in an ensemble.
    """
    epoch_kind: type[Epoch] | type[Member] = Member if member else Epoch
    fits: dict[int, dict[int, Metrics]] = {}  # {fit: {epoch: metrics}}
    loop: dict[int, Metrics] | None = None  # the one in progress
    chief = Chief()
    for event in map(parse, raw_events):
        chief.read(event)
        if isinstance(event, Fit):
            fits.setdefault(event.fit, {})
            loop = None
            if event.epochs == 0:
                loop = fits[event.fit] = {}
        elif isinstance(event, Values) and event.rank == chief.rank and loop is not None:
            loop[len(loop)] = event.metrics
        elif isinstance(event, epoch_kind) and member in (0, event.rank):
            fits.setdefault(event.fit, {})[event.epoch] = event.metrics
    return [_history(fits[fit]) for fit in sorted(fits)]


def _history(epochs: Mapping[int, Metrics]) -> History:
    history: History = {}
    for epoch in sorted(epochs):
        for name, value in epochs[epoch].items():
            history.setdefault(name, []).append(value)
    return history
