"""Waiting for what comes by itself."""

import time


def until(condition, seconds=60, what=lambda: "it did not come to that", pause=0.1):
    """Return when the condition holds; fail with `what` there is instead when it does not within so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(pause)
