"""What is refused in one line."""

import pytest
from IPython.core.error import UsageError


def one_line(error, call, *arguments, **options):
    """The message of the error that a call raises, which is one line."""
    with pytest.raises(error) as caught:
        call(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def refusal(function, *arguments):
    """The message of the UsageError that a call raises."""
    return one_line(UsageError, function, *arguments)
