"""Wording that several messages share."""

import difflib
from collections.abc import Iterable, Sequence

from ddl_magics.runtime.wording import counted, in_bytes

__all__ = ["aligned", "counted", "first_line", "in_bytes", "nearest", "plain", "quoted"]

#: Maximum number of characters of a text in a message.
MAX_QUOTED = 80


def quoted(text: str) -> str:
    """A text in quotes for a message: on one line, cut at `MAX_QUOTED`."""
    return repr(text if len(text) <= MAX_QUOTED else text[: MAX_QUOTED - 1] + "…")


def plain(text: str) -> str:
    """`quoted` without the quotes."""
    return text if text.isprintable() and len(text) <= MAX_QUOTED else quoted(text)[1:-1]


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
