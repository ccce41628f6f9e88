"""The numbered events of one run in bounded memory, however long the run.

The newest events are kept as they are. Of the older ones, those that may be merged (`merging.MERGES`) are merged over
time windows once there are too many of a kind. The windows double with the run's length, so that the resolution is the
same everywhere. All other events are the run's result, output and states: they are kept, compressed.
"""

from __future__ import annotations

import heapq
import json
import zlib
from array import array
from bisect import bisect_right
from math import isfinite
from typing import Iterator, List, Optional, Tuple

from .events import RawEvent
from .merging import MERGES, merge

#: So many of the newest events, and up to twice as many, are kept as they are. More than between two snapshots of the
#: store, which continue from any of them.
TAIL_EVENTS = 10_000
#: At most so many older events of a kind; after a doubling of the windows at most half as many.
OLD_EVENTS = {"steps": 65_536, "sample": 32_768, "commits": 16_384, "values": 65_536}
#: The first and the largest window, in seconds.
FIRST_WINDOW, LARGEST_WINDOW = 0.5, 2.0**26
#: Rank 0 reports the metrics that the charts show: its windows are so many times shorter.
CHIEF_FINER = 16
#: Events that are kept are compressed in blocks of so many characters.
BLOCK_CHARACTERS = 256 * 1024

Line = Tuple[int, str]  # the number of an event, and the event as JSON
Range = Tuple[int, int]  # numbers of events: above the first, up to the second

#: The fields that decide which events may be merged.
_MERGE_FIELDS = ("rank", "attempt", "time")

_encode = json.JSONEncoder(separators=(",", ":")).encode


def to_line(raw: RawEvent) -> Line:
    return raw["seq"], _encode(raw)


def may_merge(raw: RawEvent) -> bool:
    """Whether an old event may be merged: of a kind that is, and not damaged, as one of a stored file may be."""
    return (
        str(raw.get("kind")) in MERGES
        and isinstance(raw.get("rank"), int)
        and isinstance(raw.get("attempt"), int)
        and isinstance(raw.get("time"), (int, float))
        and isfinite(raw["time"])
    )


class BoundedLog:
    """Events in the order of their numbers. `last` is the newest number. Not thread-safe.

    They are not parsed, because every event of a run passes through here.
    """

    def __init__(self) -> None:
        self.last = 0
        self._tail: List[RawEvent] = []
        self._merged = {kind: _MergedEvents(max_events) for kind, max_events in OLD_EVENTS.items()}
        self._unmerged = _CompressedEvents()
        self._readers: List[Range] = []

    def append(self, raw: RawEvent) -> None:
        """Add an event with a higher number than those so far."""
        self.last = raw["seq"]
        self._tail.append(raw)
        if len(self._tail) >= 2 * TAIL_EVENTS:
            for event in self._tail[:TAIL_EVENTS]:
                if may_merge(event):
                    self._merged[event["kind"]].add(event, self._readers)
                else:
                    self._unmerged.add(event)
            del self._tail[:TAIL_EVENTS]

    def has_merged(self, kind: str) -> bool:
        """Whether events of a kind of `MERGES` have been merged."""
        return self._merged[kind].has_merged

    def protect(self, ranges: List[Range]) -> None:
        """Readers have read up to a number in each of these ranges: no event across it is merged with another."""
        self._readers = ranges

    def events(self, after: int = 0) -> Iterator[RawEvent]:
        """The events with a higher number than `after`."""
        for _, text in self._old_lines(after):
            yield json.loads(text)
        yield from self._tail[self._tail_index(after) :]

    def lines(self, after: int = 0) -> Iterator[Line]:
        """The same as lines."""
        yield from self._old_lines(after)
        yield from map(to_line, self._tail[self._tail_index(after) :])

    def _tail_index(self, after: int) -> int:
        low, high = 0, len(self._tail)
        while low < high:
            middle = (low + high) // 2
            if self._tail[middle]["seq"] > after:
                high = middle
            else:
                low = middle + 1
        return low

    def _old_lines(self, after: int) -> Iterator[Line]:
        if self._tail and after + 1 >= self._tail[0]["seq"]:
            return iter(())
        return heapq.merge(self._unmerged.lines(after), *(merged.lines(after) for merged in self._merged.values()))


class _MergedEvents:
    """The older events of one kind: at most `max_events`."""

    def __init__(self, max_events: int) -> None:
        self._max_events = max_events
        self._window = 0.0  # no event is merged
        self._lines: List[Line] = []
        self._sorted = True
        self._open: dict[int, RawEvent] = {}  # rank -> its newest event, with which the next may be merged

    def add(self, raw: RawEvent, readers: List[Range]) -> None:
        self._insert(raw, readers)
        if self._count > self._max_events:
            self._widen(readers)

    @property
    def has_merged(self) -> bool:
        return self._window > 0

    @property
    def _count(self) -> int:
        return len(self._lines) + len(self._open)

    def _insert(self, raw: RawEvent, readers: List[Range]) -> None:
        rank = raw["rank"]
        before = self._open.get(rank)
        if before is not None:
            merged = self._merge(before, raw, readers)
            if merged is not None:
                self._open[rank] = merged
                return
            line = to_line(before)
            self._sorted = self._sorted and (not self._lines or self._lines[-1] < line)
            self._lines.append(line)
        self._open[rank] = raw

    def lines(self, after: int) -> Iterator[Line]:
        if not self._sorted:
            self._lines.sort()
            self._sorted = True
        begin = bisect_right(self._lines, (after, "\x7f"))
        open_lines = sorted(line for line in map(to_line, self._open.values()) if line[0] > after)
        return heapq.merge(self._lines[begin:], open_lines)

    def _merge(self, first: RawEvent, second: RawEvent, readers: List[Range]) -> Optional[RawEvent]:
        """Both as one, or None where they stay apart."""
        if not self._window or self._merge_key(first) != self._merge_key(second):
            return None
        first_seq = first.get("first") or first["seq"]
        if any(first_seq <= stop and second["seq"] > begin for begin, stop in readers):
            return None
        try:
            return merge(first, second)
        except (AttributeError, KeyError, TypeError, ValueError):  # one is damaged
            return None

    def _merge_key(self, raw: RawEvent) -> Tuple[int, int, float]:
        """Rank, attempt and window: events with the same may be merged."""
        rank, attempt, time = raw["rank"], raw["attempt"], raw["time"]
        return rank, attempt, time // (self._window / CHIEF_FINER if rank == 0 else self._window)

    def _widen(self, readers: List[Range]) -> None:
        """Double the windows until there are half as many events."""
        lines = list(self.lines(0))
        envelopes = [{name: raw[name] for name in _MERGE_FIELDS} for raw in (json.loads(text) for _, text in lines)]
        while self._window < LARGEST_WINDOW:
            self._window = 2 * self._window or FIRST_WINDOW
            if len({self._merge_key(envelope) for envelope in envelopes}) <= self._max_events // 2:
                break
        self._lines, self._sorted, self._open = [], True, {}
        for _, text in lines:
            self._insert(json.loads(text), readers)
        self._max_events = max(self._max_events, 2 * self._count)  # so many ranks that no more can be merged


class _CompressedEvents:
    """The older events that are never merged."""

    def __init__(self) -> None:
        self._blocks: List[Tuple[array[int], bytes]] = []  # numbers, and the lines
        self._recent: List[Line] = []
        self._characters = 0

    def add(self, raw: RawEvent) -> None:
        line = to_line(raw)
        self._recent.append(line)
        self._characters += len(line[1])
        if self._characters > BLOCK_CHARACTERS:
            packed = zlib.compress("\n".join(text for _, text in self._recent).encode(), 3)
            self._blocks.append((array("q", [number for number, _ in self._recent]), packed))
            self._recent, self._characters = [], 0

    def lines(self, after: int) -> Iterator[Line]:
        for numbers, packed in list(self._blocks):
            if numbers[-1] > after:
                texts = zlib.decompress(packed).decode().split("\n")
                yield from (line for line in zip(numbers, texts) if line[0] > after)
        yield from (line for line in list(self._recent) if line[0] > after)
