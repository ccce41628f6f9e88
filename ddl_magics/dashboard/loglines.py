"""The newest lines that each rank printed, within a bound."""

import re
from collections import deque
from typing import NamedTuple

#: Number of lines in memory, divided evenly among the ranks, but at least `LINES_PER_RANK` each.
LINES = 600
LINES_PER_RANK = 12

LEVELS = ("out", "err", "info", "warning")

#: Longer lines are truncated; `run.logs()` has all of them.
LINE_CHARACTERS = 400
#: The same for names: of metrics, hosts, devices and files.
NAME_CHARACTERS = 100

_ESCAPES = re.compile(r"(?:\x1b\[|\x9b)[0-9;?]*[ -/]*[@-~]|\x1b(\][^\x07\x1b]*(\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


class Line(NamedTuple):
    """A printed line; `level` is one of `LEVELS`: stdout, stderr, and two for notices of this library."""

    rank: int
    level: str
    text: str


def clean(text: str, limit: int = LINE_CHARACTERS) -> str:
    """A line without escape sequences and without what a carriage return overwrote, truncated to `limit` characters."""
    text = _ESCAPES.sub("", text).rstrip("\r\n")
    text = _CONTROLS.sub("", text.rsplit("\r", 1)[-1]).encode(errors="replace").decode()
    return text if len(text) <= limit else text[: limit - 1] + "…"


class LogTail:
    """The newest lines of each rank: a rank that prints much does not displace the lines of the others."""

    def __init__(self, ranks: int) -> None:
        self.limit = max(LINES // (ranks + 1), LINES_PER_RANK)
        self.added = 0
        self._tails: dict[int, deque[tuple[int, Line]]] = {}

    def add(self, rank: int, level: str, text: str) -> list[Line]:
        """Split a text into lines and add them; returns the lines."""
        lines = [Line(rank, level, clean(line)) for line in text.split("\n")]
        if lines and not lines[-1].text:
            lines.pop()
        tail = self._tails.setdefault(rank, deque(maxlen=self.limit))
        for line in lines:
            tail.append((self.added, line))
            self.added += 1
        return lines

    @property
    def line_count(self) -> int:
        """Number of lines in memory."""
        return sum(map(len, self._tails.values()))

    def newest(self, count: int) -> list[Line]:
        """The newest lines in memory, at most `count`, in the order of arrival."""
        entries = sorted(entry for tail in self._tails.values() for entry in tail)
        return [line for _, line in entries[max(len(entries) - count, 0) :]]
