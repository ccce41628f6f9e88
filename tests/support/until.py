"""Waiting for what comes by itself."""

import time


def until(condition, seconds=60, pause=0.1):
    """Return when the condition holds; fail when it does not within so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(pause)
