"""Progress as lines of text, for nbclient, papermill and terminals, where no widget is drawn.

Pure: events in, lines out. A line an epoch, changes of state, notices, the failure, and what the chief prints.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ddl_magics.dashboard.loglines import clean
from ddl_magics.dashboard.progress import transferred
from ddl_magics.runtime import events as ev

CHIEF = 0

#: Keras' own progress (a bar, or "16/16 - 1s - loss: 0.5") says again what the epoch's line says.
_KERAS_PROGRESS = re.compile(r"\s*(Epoch \d+/\d+\s*|\d+/(\d+|Unknown) (.*[━=].*|- .*))")


class TextProgress:
    """The lines of one run; `feed` returns those that new events bring."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._begun: float | None = None
        self._fit: Mapping[str, Any] = {}
        self._rows: dict[tuple[int, int, int], tuple[float, float]] = {}
        self._said = ""

    def feed(self, events: Iterable[Mapping[str, Any]]) -> list[str]:
        lines: list[str] = []
        for event in events:
            if self._begun is None:
                self._begun = event["time"]
            take = getattr(self, "_on_" + str(event["kind"]), None)
            if take:
                lines += take(event)
        return lines

    def _on_state(self, event: Mapping[str, Any]) -> list[str]:
        failure = event.get("failure")
        words = event["state"]
        if failure and failure["rank"] != ev.JOB:
            words += f" on rank {failure['rank']}" + (f" ({failure['host']})" if failure["host"] else "")
        message = failure["message"] if failure else event["message"]
        line = f"{words}: {message}" if message else words
        if line in (self._said, ev.QUEUED):
            return []
        self._said = line
        return [f"{self.name}  {duration(event['time'] - (self._begun or event['time']))}  {line}"]

    def _on_fit(self, event: Mapping[str, Any]) -> list[str]:
        self._fit = event
        return []

    def _on_steps(self, event: Mapping[str, Any]) -> list[str]:
        key = (event["fit"], event["epoch"], event["rank"])
        rows, seconds = self._rows.get(key, (0.0, 0.0))
        self._rows[key] = (rows + event["rows"], seconds + event["seconds"])
        return []

    def _on_epoch(self, event: Mapping[str, Any]) -> list[str]:
        done = [key for key in self._rows if key[:2] <= (event["fit"], event["epoch"])]
        rates = [r / s for key in done if key[:2] == (event["fit"], event["epoch"]) for r, s in [self._rows[key]] if s]
        for key in done:
            del self._rows[key]
        total = self._fit.get("epochs") if self._fit.get("fit") == event["fit"] else None
        epoch = f"epoch {event['epoch'] + 1}" + (f"/{total}" if total else "")
        parts = [
            f"fit {event['fit'] + 1}, {epoch}" if event["fit"] else epoch,
            *(f"{name} {number(value)}" for name, value in event["metrics"].items()),
            *([f"{sum(rates):,.0f} samples/s"] if rates else []),
            f"{event['seconds']:.1f} s",
        ]
        return [f"{self.name}  " + "  ".join(parts)]

    def _on_notice(self, event: Mapping[str, Any]) -> list[str]:
        rank = "" if event["rank"] == ev.JOB else f"rank {event['rank']}: "
        return [f"{self.name}  {event['level']}: {rank}{event['message']}"]

    def _on_transfer(self, event: Mapping[str, Any]) -> list[str]:
        words = transferred(event)
        return [f"{self.name}  {words}"] if words else []

    def _on_log(self, event: Mapping[str, Any]) -> list[str]:
        if event["rank"] != CHIEF:
            return []
        lines = (clean(line) for line in event["text"].splitlines())
        return [f"{CHIEF} │ {line}" for line in lines if line.strip() and not _KERAS_PROGRESS.fullmatch(line)]


def number(value: float | None) -> str:
    """A metric as it is read: four significant digits."""
    return "nan" if value is None else f"{value:.4g}"


def duration(seconds: float) -> str:
    """0:07, 12:40, 1:02:03."""
    minutes, rest = divmod(max(int(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
