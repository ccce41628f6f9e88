"""Wording that several messages share."""

import re

#: A code of a terminal for colours and bold letters, as a pattern.
COLOUR = r"\x1b\[[0-9;]*m"


def counted(number: int, noun: str) -> str:
    """ "1 slot", "2 slots"."""
    return "%d %s%s" % (number, noun, "" if number == 1 else "s")


def in_bytes(size: float) -> str:
    """ "12 kB", "1.2 GB"."""
    for unit, bytes_of_one in (("GB", 1e9), ("MB", 1e6)):
        if size >= bytes_of_one:
            return "%.3g %s" % (size / bytes_of_one, unit)
    return "%.0f kB" % (size / 1e3)


def without_colours(text: str) -> str:
    """The text without what makes it coloured or bold in a terminal."""
    return re.sub(COLOUR, "", text)
