"""A run's events as what people read: histories, tables and printed text. Pure functions over lists of events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import nan
from typing import TYPE_CHECKING, Any

from ddl_magics.runtime import events as ev
from ddl_magics.runtime import histories as of_fits
from ddl_magics.timeline import Event

if TYPE_CHECKING:
    import pandas as pd

METRIC_COLUMNS = ("time", "rank", "epoch", "step", "name", "value", "fit")
WORKER_COLUMNS = ("rank", "host", "pid", "device", "samples/s", "state")
#: Over how much of a rank's newest training its samples/s are taken.
RATE_SECONDS = 5.0


def histories(events: Iterable[Event], member: int = 0) -> list[dict[str, list[float]]]:
    """For each call of `fit`, the name -> value per epoch of Keras' `History.history`; of a member of an ensemble."""
    return [
        {name: [nan if value is None else value for value in values] for name, values in history.items()}
        for history in of_fits.histories(events, member)
    ]


def metrics(events: Iterable[Event]) -> pd.DataFrame:
    """A row a value: `step` is missing for an epoch's metrics, `epoch` and `fit` for what `ddl.log` was given."""
    import pandas as pd

    frame = pd.DataFrame(list(metric_rows(events)), columns=list(METRIC_COLUMNS))
    kinds = {"rank": "int64", "epoch": "Int64", "step": "Int64", "fit": "Int64", "value": "float64"}
    frame["time"] = pd.to_datetime(frame["time"].astype("float64"), unit="s", utc=True)
    return frame.astype(kinds)


def metric_rows(events: Iterable[Event]) -> Iterator[tuple[Any, ...]]:
    """The values of `METRIC_COLUMNS`, without pandas; time in seconds since the epoch."""
    for event in events:
        kind = event.get("kind")
        if kind == "steps":
            place = (event["epoch"], event["step"] + event["count"] - 1, event["fit"])
        elif kind in ("epoch", "member"):
            place = (event["epoch"], None, event["fit"])
        elif kind == "values":
            place = (None, event.get("step"), None)
        else:
            continue
        epoch, step, fit = place
        for name, value in event["metrics"].items():
            yield event["time"], event["rank"], epoch, step, name, nan if value is None else value, fit


def workers(events: Iterable[Event]) -> pd.DataFrame:
    """A row a rank, as it was last heard of; samples/s is missing for a rank that has trained nothing."""
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
    """Samples a second over the last `RATE_SECONDS` of one rank's `steps` events; NaN without any."""
    rows = seconds = 0.0
    for bucket in reversed(list(buckets)):
        rows += bucket["rows"]
        seconds += bucket["seconds"]
        if seconds >= RATE_SECONDS:
            break
    return rows / seconds if seconds else nan


def logs(events: Iterable[Event], rank: int | None = None) -> str:
    """What was printed: by one rank as it was, or by all, each line after its rank."""
    parts = [e for e in events if e.get("kind") == "log" and rank in (None, e["rank"])]
    if rank is not None:
        return "".join(e["text"] for e in parts)
    return "".join(
        f"{'job' if e['rank'] == ev.JOB else e['rank']} │ {line}\n" for e in parts for line in e["text"].splitlines()
    )
