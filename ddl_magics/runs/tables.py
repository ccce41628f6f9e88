"""Histories, tables and printed text of a run. Pure functions over its events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import isnan, nan
from typing import TYPE_CHECKING, Any, NamedTuple

from ddl_magics.dashboard.workers import LEFT, Worker
from ddl_magics.errors import NotInHistory
from ddl_magics.runtime import events as ev
from ddl_magics.runtime import histories as runtime_histories
from ddl_magics.wording import nearest

if TYPE_CHECKING:
    import pandas as pd

METRIC_COLUMNS = ("time", "rank", "epoch", "step", "name", "value", "fit")
WORKER_COLUMNS = ("rank", "host", "pid", "device", "samples/s", "state", "from", "until")


class EpochHistory(dict[str, list[float]]):
    """Name -> values per epoch; a missing name is an error of one line."""

    def __reduce__(self) -> Any:
        return dict, (dict(self),)  # workers of a cluster do not have this class

    def __missing__(self, name: object) -> list[float]:
        if not self:
            raise NotInHistory("there is no history: the run has completed no epoch so far, or ended before it did")
        hint = nearest(str(name), self) or f" It has {', '.join(self)}."
        raise NotInHistory(f"the history has no {name}.{hint}")


def histories(events: Iterable[ev.RawEvent], member: int = 0) -> list[dict[str, list[float]]]:
    """For each call of `fit`, name -> values per epoch, as Keras' `History.history`. `member`: rank in an ensemble."""
    return [
        EpochHistory({name: [nan if value is None else value for value in values] for name, values in history.items()})
        for history in runtime_histories.histories(events, member)
    ]


def last_history(events: Sequence[ev.RawEvent]) -> dict[str, list[float]]:
    """The history of the last call of `fit`, or of a training loop after it that has logged something."""
    loops = {event.fit for event in ev.select(ev.Fit, events) if event.epochs == 0}
    fits = list(enumerate(histories(events)))
    return next((history for fit, history in reversed(fits) if history or fit not in loops), EpochHistory())


def metrics(events: Iterable[ev.RawEvent]) -> pd.DataFrame:
    """One row per value. `step` is missing in an epoch's metrics, `epoch` and `fit` in those of `ddl.log`."""
    import pandas as pd

    frame = pd.DataFrame(list(metric_rows(events)), columns=list(METRIC_COLUMNS))
    kinds = {"rank": "int64", "epoch": "Int64", "step": "Int64", "fit": "Int64", "value": "float64"}
    frame["time"] = pd.to_datetime(frame["time"].astype("float64"), unit="s", utc=True)
    return frame.astype(kinds)


def metric_rows(events: Iterable[ev.RawEvent]) -> Iterator[tuple[Any, ...]]:
    """Rows of `METRIC_COLUMNS`, without pandas; time in seconds since the epoch."""
    epoch: int | None
    step: int | None
    fit: int | None
    for event in map(ev.parse, events):
        match event:
            case ev.Steps():
                epoch, step, fit = event.epoch, event.steps_done - 1, event.fit
            case ev.Epoch() | ev.Member():
                epoch, step, fit = event.epoch, None, event.fit
            case ev.Values():
                epoch, step, fit = None, event.step, None
            case _:
                continue
        for name, value in event.metrics.items():
            yield event.time, event.rank, epoch, step, name, nan if value is None else value, fit


def workers(events: Iterable[ev.RawEvent]) -> pd.DataFrame:
    """One row per rank, in its last reported state; samples/s as the live view has it, missing for a rank without.

    `from`, `until`: see `presence`.
    """
    import pandas as pd

    events = list(events)
    newest: dict[int, ev.Worker] = {}
    steps: dict[int, Worker] = {}
    for event in map(ev.parse, events):
        if isinstance(event, ev.Worker):
            newest[event.rank] = event
        elif isinstance(event, ev.Steps):
            steps.setdefault(event.rank, Worker(event.rank)).add_steps(event)
    rates, spans = {rank: worker.rate for rank, worker in steps.items()}, presence(events)
    rows = [
        (rank, worker.host, worker.pid, worker.device, rates.get(rank, nan), span.state or worker.state, *span[:2])
        for rank, worker in sorted(newest.items())
        for span in [spans[rank]]
    ]
    frame = pd.DataFrame(rows, columns=list(WORKER_COLUMNS))
    return frame.astype(dict.fromkeys(("samples/s", "from", "until"), "float64"))


class Presence(NamedTuple):
    """From when until when a rank was there, in seconds since the first event; state: `LEFT` if it has left."""

    begin: float
    end: float
    state: str


def presence(events: Iterable[ev.RawEvent]) -> dict[int, Presence]:
    """Of each rank, from its first to its last sign; where ranks come and go, while it trained with the others."""
    begin = nan
    signs: dict[int, tuple[float, float]] = {}
    joined: dict[int, float] = {}
    left: dict[int, float] = {}
    for event in map(ev.parse, events):
        begin = event.time if isnan(begin) else begin
        seconds = max(event.time - begin, 0.0)
        if isinstance(event, ev.Group):
            joined = {**dict.fromkeys(event.members, seconds), **joined}
            left = {rank: left.get(rank, seconds) for rank in joined.keys() - set(event.members)}
        else:
            signs[event.rank] = (signs.get(event.rank, (seconds,))[0], seconds)
    return {
        rank: Presence(joined.get(rank, first), left.get(rank, last), LEFT if rank in left else "")
        for rank, (first, last) in signs.items()
    }


def logs(events: Iterable[ev.RawEvent], rank: int | None = None) -> str:
    """What one rank printed, unchanged; or what all printed, each line with its rank before it."""
    logs = [event for event in ev.select(ev.Log, events) if rank in (None, event.rank)]
    if rank is not None:
        return "".join(event.text for event in logs)
    names = {event.rank: "job" if event.rank == ev.JOB else str(event.rank) for event in logs}
    return "".join(f"{names[event.rank]} │ {line}\n" for event in logs for line in event.text.splitlines())
