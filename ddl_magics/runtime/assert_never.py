"""`typing.assert_never` for the Python 3.8 of clusters."""

from typing import NoReturn


def assert_never(value: NoReturn) -> NoReturn:
    """For the end of a chain over all kinds of a thing: mypy proves that it is not reached."""
    raise AssertionError("not one of the known kinds: %r" % (value,))
