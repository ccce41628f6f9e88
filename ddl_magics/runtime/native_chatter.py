"""What TensorFlow's C++ side prints on its own: it is left out of the output of ranks and of the notebook's cells."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from typing import Iterator

#: What it prints before it reads TF_CPP_MIN_LOG_LEVEL=2: information and warnings, and of a build for GPUs an error on
#: every host without one.
NATIVE_CHATTER = re.compile(
    rb"(?m)^(?:[IW]\d{4} \d\d:\d\d:\d\d|[IW]0000 00:00:|WARNING: All log messages before absl"
    rb"|(?:E\d{4}|\d{4}-).* failed call to cuInit: ).*\n"
)

_STDERR = 2
_READ_BYTES = 64 << 10
#: How long the end of the block waits for what was written in it. A process that was started there may write on.
_DRAIN_SECONDS = 1.0

_filtering = threading.Lock()


@contextlib.contextmanager
def left_out() -> Iterator[None]:
    """Leave it out of the process's standard error while this block loads TensorFlow; all else passes, in its order.

    The file descriptor is meant: Python's `sys.stderr` of a notebook does not use it. Does nothing where TensorFlow is
    loaded already, or just now in another thread. Of what comes later, TensorFlow is asked to print errors alone.
    """
    if "tensorflow" in sys.modules or not _filtering.acquire(blocking=False):
        yield
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # it is read at the import
    try:
        with contextlib.ExitStack() as undo:
            with contextlib.suppress(OSError):  # there is no standard error
                _filter(undo)
            yield
    finally:
        _filtering.release()


def _filter(undo: contextlib.ExitStack) -> None:
    """Put a filter before the standard error, until `undo` is closed."""
    before = os.dup(_STDERR)
    read_end, write_end = os.pipe()
    os.dup2(write_end, _STDERR)
    os.close(write_end)
    thread = threading.Thread(target=_pass, args=(read_end, before), name="ddl_magics stderr", daemon=True)
    thread.start()
    undo.callback(thread.join, _DRAIN_SECONDS)
    undo.callback(os.dup2, before, _STDERR)  # called first: it closes the last write end, which ends the thread


def _pass(read_end: int, to: int) -> None:
    """Copy whole lines, and the last one, without the chatter; closes both ends."""
    partial = b""
    with contextlib.suppress(OSError):  # nobody reads it
        while True:
            block = os.read(read_end, _READ_BYTES)
            lines, newline, partial = (partial + block).rpartition(b"\n")
            text = NATIVE_CHATTER.sub(b"", lines + newline) + (b"" if block else partial)
            while text:
                text = text[os.write(to, text) :]
            if not block:
                break
    os.close(read_end)
    os.close(to)
