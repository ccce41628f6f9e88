"""What is refused in one line."""

import pytest
from IPython.core.error import UsageError


def refusal(function, *arguments):
    """The message of the UsageError that a call raises."""
    with pytest.raises(UsageError) as caught:
        function(*arguments)
    message = str(caught.value)
    assert "\n" not in message
    return message
