"""Words that several messages need."""

import difflib
from collections.abc import Iterable


def counted(number: int, noun: str) -> str:
    """ "1 slot", "2 slots"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def nearest(word: str, words: Iterable[str]) -> str:
    """' Did you mean ...?' for the closest of `words`, or '' when none is close."""
    by_lower = {w.lower(): w for w in words}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f" Did you mean {by_lower[close[0]]}?" if close else ""
