"""Wording that several messages share."""

import difflib
import re
from collections.abc import Iterable, Sequence

from ddl_magics.runtime.wording import COLOUR, counted, in_bytes

__all__ = [
    "aligned",
    "counted",
    "counted_workers",
    "first_line",
    "in_bytes",
    "nearest",
    "plain",
    "quoted",
    "visible",
    "visible_print",
]

#: Maximum number of characters of a text in a message.
MAX_QUOTED = 80
#: What steers a terminal, or turns the direction of its text; tabs and ends of lines do not.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
#: The same, but for colours and what goes back within a line, as progress bars do.
_STEERING_PRINT = re.compile(rf"(?P<harmless>{COLOUR}|[\r\b])|{_STEERING.pattern}")


def counted_workers(maximum: int, minimum: int | None = None) -> str:
    """ "2 workers", or of --workers 2..4 "2..4 workers"."""
    return counted(maximum, "worker") if minimum is None else f"{minimum}..{maximum} workers"


def quoted(text: str) -> str:
    """A text in quotes for a message: on one line, cut at `MAX_QUOTED`."""
    return repr(text if len(text) <= MAX_QUOTED else text[: MAX_QUOTED - 1] + "…")


def plain(text: str) -> str:
    """`quoted` without the quotes."""
    return text if text.isprintable() and len(text) <= MAX_QUOTED else quoted(text)[1:-1]


def visible(text: str) -> str:
    """A text for a terminal, in which characters that steer it stand as escapes: a stranger's text may have them."""
    return _STEERING.sub(lambda character: ascii(character[0])[1:-1], text)


def visible_print(text: str) -> str:
    """As `visible`, for what a run has printed: colours and progress bars stay."""
    return _STEERING_PRINT.sub(lambda match: match["harmless"] or visible(match[0]), text)


def first_line(error: Exception) -> str:
    """The first line of an error's message; the name of its class where it has none."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def nearest(name: str, names: Iterable[str]) -> str:
    """' Did you mean ...?' for the closest of `names`, or '' when none is close."""
    by_lower = {w.lower(): w for w in names}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return f" Did you mean {by_lower[close[0]]}?" if close else ""


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table; all rows have the same number of cells."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
