"""Histories, tables and printed text of a run. Pure functions over its events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import nan
from typing import TYPE_CHECKING, Any

from ddl_magics.runs.timeline import Event
from ddl_magics.runtime import events as ev
from ddl_magics.runtime import histories as runtime_histories

if TYPE_CHECKING:
    import pandas as pd

METRIC_COLUMNS = ("time", "rank", "epoch", "step", "name", "value", "fit")
WORKER_COLUMNS = ("rank", "host", "pid", "device", "samples/s", "state")
#: The newest part of a rank's training that its samples/s are the mean of.
RATE_SECONDS = 5.0


def histories(events: Iterable[Event], member: int = 0) -> list[dict[str, list[float]]]:
    """For each call of `fit`, name -> values per epoch, as Keras' `History.history`. `member`: rank in an ensemble."""
    return [
        {name: [nan if value is None else value for value in values] for name, values in history.items()}
        for history in runtime_histories.histories(events, member)
    ]


def last_history(events: Sequence[Event]) -> dict[str, list[float]]:
    """The history of the last call of `fit`, or of a training loop after it that has logged something."""
    loops = {event["fit"] for event in events if event.get("kind") == "fit" and event["epochs"] == 0}
    found = list(enumerate(histories(events)))
    return next((history for fit, history in reversed(found) if history or fit not in loops), {})


def metrics(events: Iterable[Event]) -> pd.DataFrame:
    """One row per value. `step` is missing in an epoch's metrics, `epoch` and `fit` in those of `ddl.log`."""
    import pandas as pd

    frame = pd.DataFrame(list(metric_rows(events)), columns=list(METRIC_COLUMNS))
    kinds = {"rank": "int64", "epoch": "Int64", "step": "Int64", "fit": "Int64", "value": "float64"}
    frame["time"] = pd.to_datetime(frame["time"].astype("float64"), unit="s", utc=True)
    return frame.astype(kinds)


def metric_rows(events: Iterable[Event]) -> Iterator[tuple[Any, ...]]:
    """Rows of `METRIC_COLUMNS`, without pandas; time in seconds since the epoch."""
    for event in events:
        kind = event.get("kind")
        if kind == "steps":
            epoch, step, fit = event["epoch"], ev.steps_done(event) - 1, event["fit"]
        elif kind in ("epoch", "member"):
            epoch, step, fit = event["epoch"], None, event["fit"]
        elif kind == "values":
            epoch, step, fit = None, event.get("step"), None
        else:
            continue
        for name, value in event["metrics"].items():
            yield event["time"], event["rank"], epoch, step, name, nan if value is None else value, fit


def workers(events: Iterable[Event]) -> pd.DataFrame:
    """One row per rank, in its last reported state; samples/s is missing for a rank that has not trained."""
    import pandas as pd

    seen: dict[int, Event] = {}
    buckets: dict[int, list[Event]] = {}
    for event in events:
        if event.get("kind") == "worker":
            seen[event["rank"]] = event
        elif event.get("kind") == "steps":
            buckets.setdefault(event["rank"], []).append(event)
    rows = [
        (rank, seen[rank]["host"], seen[rank]["pid"], seen[rank]["device"], rate(buckets.get(rank, ())), e["state"])
        for rank, e in sorted(seen.items())
    ]
    return pd.DataFrame(rows, columns=list(WORKER_COLUMNS)).astype({"samples/s": "float64"})


def rate(buckets: Iterable[Event]) -> float:
    """Samples per second over the last `RATE_SECONDS` of one rank's `steps` events; NaN without events."""
    rows = seconds = 0.0
    for bucket in reversed(list(buckets)):
        rows += bucket["rows"]
        seconds += bucket["seconds"]
        if seconds >= RATE_SECONDS:
            break
    return rows / seconds if seconds else nan


def logs(events: Iterable[Event], rank: int | None = None) -> str:
    """What one rank printed, unchanged; or what all printed, each line with its rank before it."""
    parts = [e for e in events if e.get("kind") == "log" and rank in (None, e["rank"])]
    if rank is not None:
        return "".join(e["text"] for e in parts)
    return "".join(
        f"{'job' if e['rank'] == ev.JOB else e['rank']} │ {line}\n" for e in parts for line in e["text"].splitlines()
    )
