"""Progress as lines of text, for nbclient, papermill and terminals, which draw no widgets.

Pure: events in, lines out. There is a line per epoch (of many short ones, every few seconds), change of state and
notice, and for what the chief prints.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ddl_magics.dashboard.loglines import clean
from ddl_magics.dashboard.progress import transfer_text
from ddl_magics.dashboard.state_words import state_word
from ddl_magics.runtime import events as ev

CHIEF = 0
#: Longer lines are truncated.
LINE_CHARACTERS = 2000

#: The first epochs of a fit each have a line; of later ones at most one in so many seconds has, and the last.
FIRST_EPOCHS, EPOCH_LINE_SECONDS = 20, 2.0
#: An epoch's line says what share of the step time was waiting for data, if it is larger than this.
NOTEWORTHY_WAIT = 0.05
#: How often a line says how far the preparation of --data is.
PREPARATION_LINE_SECONDS = 10.0

#: Keras' progress bar, or "16/16 - 1s - loss: 0.5": left out, because the line of the epoch says the same.
_KERAS_PROGRESS = re.compile(r"\s*(Epoch \d+/\d+\s*|\d+/(\d+|Unknown) (.*[━=].*|- .*))")


class TextProgress:
    """Makes the lines of one run; `feed` returns the lines for new events."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._begun: float | None = None
        self._fit: ev.Fit | None = None
        self._rows: dict[tuple[int, int, int], tuple[float, float]] = {}
        self._waits: dict[tuple[int, int], tuple[float, float]] = {}  # for data, and the time of the steps
        self._last_line = ""
        self._epoch_line = self._preparation_line = 0.0
        self._left_out = 0

    def feed(self, raw_events: Iterable[ev.RawEvent]) -> list[str]:
        lines: list[str] = []
        for event in map(ev.parse, raw_events):
            if self._begun is None:
                self._begun = event.time
            handle = getattr(self, "_on_" + event.kind, None)
            if handle:
                lines += handle(event)
        return [clean(line.replace("\n", " "), LINE_CHARACTERS) for line in lines]

    def _on_state(self, event: ev.State) -> list[str]:
        failure = event.failure
        state = state_word(event.state)
        if failure and failure["rank"] != ev.JOB:
            state += f" on rank {failure['rank']}" + (f" ({failure['host']})" if failure["host"] else "")
        message = failure["message"] if failure else event.message
        line = f"{state}: {message}" if message else state
        if line in (self._last_line, ev.QUEUED):
            return []
        if event.state in (ev.PREFLIGHT, ev.SUBMITTED) and event.needed:  # how far the rows of --data are
            if event.time < self._preparation_line + PREPARATION_LINE_SECONDS:
                return []
            self._preparation_line = event.time
        self._last_line = line
        return [f"{self.name}  {duration(event.time - (self._begun or event.time))}  {line}"]

    def _on_fit(self, event: ev.Fit) -> list[str]:
        self._fit = event
        return []

    def _on_steps(self, event: ev.Steps) -> list[str]:
        key = (event.fit, event.epoch, event.rank)
        rows, seconds = self._rows.get(key, (0.0, 0.0))
        self._rows[key] = (rows + event.rows, seconds + event.seconds)
        if event.data is not None:
            waited, spent = self._waits.get(key[:2], (0.0, 0.0))
            busy = event.compute + event.wait + event.data
            self._waits[key[:2]] = waited + event.data, spent + busy
        return []

    def _on_epoch(self, event: ev.Epoch) -> list[str]:
        ended_epochs = [key for key in self._rows if key[:2] <= (event.fit, event.epoch)]
        rates = [
            r / s for key in ended_epochs if key[:2] == (event.fit, event.epoch) for r, s in [self._rows[key]] if s
        ]
        for key in ended_epochs:
            del self._rows[key]
        waited, spent = self._waits.get((event.fit, event.epoch), (0.0, 0.0))
        self._waits = {key: sums for key, sums in self._waits.items() if key > (event.fit, event.epoch)}
        total = self._fit.epochs if self._fit is not None and self._fit.fit == event.fit else None
        if not self._due(event, total):
            self._left_out += 1
            return []
        epoch = f"epoch {event.epoch + 1}" + (f"/{total}" if total else "")
        columns = [
            f"fit {event.fit + 1}, {epoch}" if event.fit else epoch,
            *(f"{name} {number(value)}" for name, value in event.metrics.items()),
            *([f"{sum(rates):,.0f} samples/s"] if rates else []),
            f"{event.seconds:.1f} s",
            *([f"{waited / spent:.0%} waiting for data"] if waited > NOTEWORTHY_WAIT * spent else []),
            *([f"({self._left_out} epochs without a line before it)"] if self._left_out else []),
        ]
        self._left_out, self._epoch_line = 0, event.time
        return [f"{self.name}  " + "  ".join(columns)]

    def _due(self, event: ev.Epoch, total: int | None) -> bool:
        number = event.epoch + 1
        late = event.time >= self._epoch_line + EPOCH_LINE_SECONDS
        return bool(number <= FIRST_EPOCHS or number == total or late)

    def _on_notice(self, event: ev.Notice) -> list[str]:
        rank = "" if event.rank == ev.JOB else f"rank {event.rank}: "
        return [f"{self.name}  {event.level}: {rank}{event.message}"]

    def _on_transfer(self, event: ev.Transfer) -> list[str]:
        text = transfer_text(event)
        return [f"{self.name}  {text}"] if text else []

    def _on_log(self, event: ev.Log) -> list[str]:
        if event.rank != CHIEF:
            return []
        lines = (clean(line) for line in event.text.splitlines())
        return [f"{CHIEF} │ {line}" for line in lines if line.strip() and not _KERAS_PROGRESS.fullmatch(line)]


def number(value: float | None) -> str:
    """A metric with four significant digits."""
    return "nan" if value is None else f"{value:.4g}"


def duration(seconds: float) -> str:
    """Seconds as 0:07, 12:40 or 1:02:03."""
    minutes, seconds_left = divmod(max(int(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds_left:02}" if hours else f"{minutes}:{seconds_left:02}"
