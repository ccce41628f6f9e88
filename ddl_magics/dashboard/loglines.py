"""What the ranks printed, as the view shows it: the newest lines of each rank, within a bound."""

import re
from collections import deque
from typing import NamedTuple

#: Lines kept of a run with few ranks, shared out among the ranks of a large one.
LINES = 600
LINES_PER_RANK = 12

#: A longer line is cut: the view is for reading along, `run.logs()` has all of it.
LINE_CHARACTERS = 400

_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


class Line(NamedTuple):
    """A printed line; `level` is "out", "err", "info" or "warning" (the last two are notices of ours)."""

    rank: int
    level: str
    text: str


def clean(text: str, most: int = LINE_CHARACTERS) -> str:
    """A line as a terminal would have left it: colours gone, what a carriage return overwrote gone, cut to length."""
    text = _ESCAPES.sub("", text).rstrip("\r\n")
    text = _CONTROLS.sub("", text.rsplit("\r", 1)[-1])
    return text if len(text) <= most else text[: most - 1] + "…"


class LogTail:
    """The newest lines of each rank, so that a talkative rank does not push out what the others said."""

    def __init__(self, ranks: int) -> None:
        self.limit = max(LINES // (ranks + 1), LINES_PER_RANK)
        self.added = 0
        self._tails: dict[int, deque[tuple[int, Line]]] = {}

    def add(self, rank: int, level: str, text: str) -> list[Line]:
        """Take text of one or more lines; returns the lines."""
        lines = [Line(rank, level, clean(line)) for line in text.split("\n")]
        if lines and not lines[-1].text:
            lines.pop()
        tail = self._tails.setdefault(rank, deque(maxlen=self.limit))
        for line in lines:
            tail.append((self.added, line))
            self.added += 1
        return lines

    @property
    def kept(self) -> int:
        """Number of lines kept."""
        return sum(map(len, self._tails.values()))

    def newest(self, count: int) -> list[Line]:
        """The newest `count` lines of what is kept, in the order of arrival."""
        kept = sorted(entry for tail in self._tails.values() for entry in tail)
        return [line for _, line in kept[max(len(kept) - count, 0) :]]
