"""Words that several messages need."""


def counted(number: int, noun: str) -> str:
    """ "1 slot", "2 slots"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
