"""Waiting for what comes by itself."""

import time


def until(condition, seconds=60, what=lambda: "it did not come to that", pause=0.1):
    """What the condition returns, once it is true; fail with `what` there is instead when it is not within the time."""
    deadline = time.monotonic() + seconds
    while not (outcome := condition()):
        assert time.monotonic() < deadline, what()
        time.sleep(pause)
    return outcome
