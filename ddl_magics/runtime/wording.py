"""Wording that several messages share."""


def count(number: int, noun: str) -> str:
    """A number of things: "1 worker", "2 workers"."""
    return "%d %s%s" % (number, noun, "" if number == 1 else "s")
