"""The driver's log of a run's events: numbered, merged until they are read, bounded, read in bounded replies.

Consecutive buckets of steps of one rank and epoch are merged until a reader has seen them: a reader that polls once a
second gets one bucket a rank. Old events are merged whether they have been read or not (`bounded_log.py`), so that the
driver's memory is bounded: no step is lost, only resolution.
"""

from __future__ import annotations

import threading
from typing import Iterator

from .. import events
from ..bounded_log import BoundedLog, Range
from ..histories import History, histories
from ..merging import merge_steps

#: Buckets are merged up to this length, in seconds of training.
BUCKET_SECONDS = 1.0
#: So many events wait for a reader. Then they are numbered without one.
MAX_PENDING = 2_000
#: A longer text is several events, so that a reply of `read` stays within its limit.
MAX_TEXT_CHARACTERS = 10_000
#: So many readers may follow a run, each at its own pace.
MAX_READERS = 16


def split_text(text: str) -> Iterator[str]:
    """Parts of at most MAX_TEXT_CHARACTERS, which end at the end of a line where they can."""
    while len(text) > MAX_TEXT_CHARACTERS:
        cut = text.rfind("\n", 0, MAX_TEXT_CHARACTERS) + 1 or MAX_TEXT_CHARACTERS
        yield text[:cut]
        text = text[cut:]
    yield text


class EventLog:
    """Events of one run. `append` takes what `events.make` returns; `read` numbers them. Thread-safe."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._numbered = BoundedLog()
        self._pending: list[events.RawEvent] = []
        self._open_bucket: dict[int, int] = {}  # rank -> index in _pending of its last bucket of steps
        self._replies: list[Range] = []  # the last to each reader: above the first number, up to the second
        self._lock = threading.Lock()

    def append(self, raw: events.RawEvent, attempt: int = 0) -> None:
        event = events.parse(dict(raw, run=self._run, attempt=attempt))
        with self._lock:
            if isinstance(event, events.Steps) and self._merge(event):
                return
            if isinstance(event, events.Log):
                self._pending += [dict(event.raw, text=section) for section in split_text(event.text)]
            else:
                self._pending.append(event.raw)
            if len(self._pending) > MAX_PENDING:
                self._number()

    def _merge(self, bucket: events.Steps) -> bool:
        """Merge a bucket of steps into the one before it, if they may be merged."""
        index = self._open_bucket.get(bucket.rank)
        if index is not None:
            last = events.parse_as(events.Steps, self._pending[index])
            same_epoch = (last.fit, last.epoch, last.attempt) == (bucket.fit, bucket.epoch, bucket.attempt)
            if same_epoch and last.seconds + bucket.seconds <= BUCKET_SECONDS:
                self._pending[index] = merge_steps(last.raw, bucket.raw)
                return True
        self._open_bucket[bucket.rank] = len(self._pending)
        return False

    def _number(self) -> None:
        for event in self._pending:
            event["seq"] = self._numbered.last + 1
            self._numbered.append(event)
        self._pending = []
        self._open_bucket = {}

    def read(self, after: int, limit_bytes: int) -> tuple[list[str], int, bool]:
        """Events numbered above `after`, each as JSON, at most `limit_bytes` of it (but one event at least).

        Returns (texts, last, more): the number of the last of them, or `after`; and whether there are further ones.
        """
        texts: list[str] = []
        size, last, has_more = 0, after, False
        with self._lock:
            self._number()
            for number, text in self._numbered.lines(after):
                size += len(text) + 2
                if texts and size > limit_bytes:
                    has_more = True
                    break
                texts.append(text)
                last = number
            self._note_reply(after, last)
        return texts, last, has_more

    def _note_reply(self, after: int, last: int) -> None:
        """A reader has everything up to `after` or, if it got this reply, up to `last`, or up to an event between."""
        replies = [reply for reply in self._replies if not reply[0] <= after <= reply[1]]
        self._replies = [*replies, (after, last)][-MAX_READERS:]
        self._numbered.protect(self._replies)

    def all_events(self) -> list[events.RawEvent]:
        """All events so far."""
        with self._lock:
            self._number()
            return list(self._numbered.events())

    def histories(self) -> dict[int, History]:
        """What has been reported so far: {fit: {metric: [value of each epoch]}}."""
        return dict(enumerate(histories(self.all_events())))
