"""Wording that several messages share."""


def count(number: int, noun: str) -> str:
    """A number of things: "1 worker", "2 workers"."""
    return "%d %s%s" % (number, noun, "" if number == 1 else "s")


def in_bytes(size: float) -> str:
    """ "12.0 MB", "1.2 GB"."""
    return "%.1f GB" % (size / 1e9) if size >= 1e8 else "%.1f MB" % (size / 1e6)
