"""The histories of a run's fits, from its events: `History.history` of Keras for each fit."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, Optional

History = Dict[str, List[Optional[float]]]  # metric -> its value in each epoch; None stands for NaN


def histories(events: Iterable[Mapping[str, Any]], member: int = 0) -> list[History]:
    """The history of each call of `fit`, in order; of a loop of the cell's own, what rank 0 logged meanwhile.

    Such a loop is a fit of no epochs, and a later attempt begins it anew. If a later attempt repeats an epoch, it
    counts once, with the values of the later attempt. member: the rank of the model in an ensemble.
    """
    kind = "member" if member else "epoch"
    fits: dict[int, dict[int, Mapping[str, float | None]]] = {}  # {fit: {epoch: metrics}}
    loop: dict[int, Mapping[str, float | None]] | None = None  # the one in progress
    for event in events:
        if event.get("kind") == "fit":
            fits.setdefault(event["fit"], {})
            loop = None
            if event.get("epochs") == 0:
                loop = fits[event["fit"]] = {}
        elif event.get("kind") == "values" and event["rank"] == 0 and loop is not None:
            loop[len(loop)] = event["metrics"]
        elif event.get("kind") == kind and member in (0, event["rank"]):
            fits.setdefault(event["fit"], {})[event["epoch"]] = event["metrics"]
    return [_history(fits[fit]) for fit in sorted(fits)]


def _history(epochs: Mapping[int, Mapping[str, float | None]]) -> History:
    history: History = {}
    for epoch in sorted(epochs):
        for name, value in epochs[epoch].items():
            history.setdefault(name, []).append(value)
    return history
