"""The peak memory of processes by what they are: sampled while they run, from /proc/PID/smaps_rollup.

It is PSS, the proportional set size, without files: of memory that several processes have mapped, each counts a part,
so that shared memory is counted once in a sum. Mapped libraries are left out, as the parts of these depend on what else
runs on the machine. A peak between two samples is missed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

SECONDS = 0.1


def pss(pid: int) -> int:
    """Bytes of the process' proportional set size, without files; 0 where it has ended."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return parsed(text)


def parsed(rollup: str) -> int:
    """The bytes of a smaps_rollup that are in no file."""
    lines = (line.split() for line in rollup.splitlines())
    return sum(1024 * int(fields[1]) for fields in lines if fields and fields[0] in ("Pss_Anon:", "Pss_Shmem:"))


class Peaks:
    """Samples while it is a context.

    Args:
        processes: what is watched: the name of each process by its pid, asked for at each sample.

    Attributes:
        first: name -> bytes in the first sample that had it.
        most: name -> the most bytes. Of several processes with a name, those of the largest.
    """

    def __init__(self, processes: Callable[[], Mapping[int, str]]) -> None:
        self._processes = processes
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.first: dict[str, int] = {}
        self.most: dict[str, int] = {}

    def __enter__(self) -> Peaks:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(SECONDS):
            self.note({pid: (name, pss(pid)) for pid, name in self._processes().items()})

    def note(self, sample: Mapping[int, tuple[str, int]]) -> None:
        """One sample: name and bytes by pid."""
        for name, size in sample.values():
            if size:
                self.first.setdefault(name, size)
                self.most[name] = max(self.most.get(name, 0), size)
