"""Read by each Python of a campaign: its clock is as many seconds ahead as the file $CHAOS_CLOCK says."""

import importlib.util
import os
import time

_clock, _time, _time_ns = os.environ.get("CHAOS_CLOCK"), time.time, time.time_ns
_read = [0.0, 0.0]  # when the file was read, by time.monotonic, and what it said
_READ_SECONDS = 0.2


def _ahead():
    now = time.monotonic()
    if now - _read[0] > _READ_SECONDS:
        _read[0] = now
        try:
            with open(_clock) as file:
                _read[1] = float(file.read())
        except (OSError, ValueError):
            _read[1] = 0.0
    return _read[1]


if _clock:
    time.time = lambda: _time() + _ahead()
    time.time_ns = lambda: _time_ns() + int(_ahead() * 1e9)

_others = os.path.join(os.path.dirname(__file__), "..", "..", "support", "startup", "sitecustomize.py")
_spec = importlib.util.spec_from_file_location("_sitecustomize_of_tests", _others)
_spec.loader.exec_module(importlib.util.module_from_spec(_spec))
