"""A file lock between the processes of this machine, with a bounded wait."""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ddl_magics.errors import CannotServe

RETRY_SECONDS = 0.1


@contextlib.contextmanager
def locked(path: Path, seconds: float, doing: str, report: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock while the block runs; a file system without locks gives none.

    Args:
        path: the lock's file, created if missing.
        seconds: how long to wait for another process.
        doing: what the holder does, for messages: "starting a server of digits".
        report: called once with a line if another process holds the lock.

    Raises:
        CannotServe: one line; another process still holds the lock.
    """
    deadline, reported = time.monotonic() + seconds, False
    with path.open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise CannotServe(
                        f"another process is still {doing} after {seconds:.0f} s: end it, or try again later"
                    ) from None
                if not reported:
                    report(f"another process is {doing}: waiting for it")
                    reported = True
                time.sleep(RETRY_SECONDS)
            except OSError:
                break  # a file system without locks
        yield
