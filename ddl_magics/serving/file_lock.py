"""A file lock that one process on this machine holds at a time, with a bounded wait for it."""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ddl_magics.errors import CannotServe

RETRY_SECONDS = 0.1


@contextlib.contextmanager
def held(path: Path, seconds: float, doing: str, tell: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock while the block runs; on a file system without locks, nothing is held.

    Args:
        path: the lock's file, which is made if it is missing.
        seconds: how long to wait for another process.
        doing: what a process does that holds it, as in "starting a server of this name".
        tell: is called once with a line, if another process holds it.

    Raises:
        CannotServe: one line; another process still holds it.
    """
    deadline, told = time.monotonic() + seconds, False
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
                if not told:
                    tell(f"another process is {doing}: waiting for it")
                    told = True
                time.sleep(RETRY_SECONDS)
            except OSError:
                break  # a file system without locks
        yield
