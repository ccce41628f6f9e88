"""A process that does not outlive the one that started it."""

from __future__ import annotations

import ctypes
import signal

_PR_SET_PDEATHSIG = 1  # prctl(2)


def die_with_parent() -> None:
    """Have Linux kill this process when the thread that started it ends; elsewhere, nothing happens."""
    try:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError, TypeError):
        pass  # not Linux; on Windows, CDLL(None) is a TypeError
