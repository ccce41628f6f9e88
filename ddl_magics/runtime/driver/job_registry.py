"""The runs that a driver has: those in progress, and for a while those that have ended.

A notebook that has received all of a run releases it. Another notebook may follow the same run, from another machine or
after a restart, and be slower. A released run therefore stays until it is old, or newer ones need its space.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from ..events import TERMINAL

if TYPE_CHECKING:
    from .job import Job
    from .monitor_job import MonitorJob

#: A released run that nobody has asked for during this time is forgotten.
KEPT_SECONDS = 900.0
#: At most so many released runs are kept, and so many bytes of their files; the newest always is.
KEPT_RUNS = 8
KEPT_BYTES = 1 << 30
#: A launch that a notebook has given up may still come: so many stops wait for theirs.
KEPT_STOPS = 100


class JobRegistry:
    """Jobs by the id of their run. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[str, Job | MonitorJob] = {}
        self._released: dict[str, float] = {}  # run -> when it was last asked for, the newest last
        self._stopped: dict[str, str] = {}  # run that is not here yet -> the reason

    def add(self, run: str, job: Job | MonitorJob) -> None:
        """Add a job that is about to start; one whose run was stopped already is stopped."""
        with self._lock:
            self._jobs[run] = job
            reason = self._stopped.pop(run, None)
        if reason is not None:
            job.stop(reason)
        self.sweep()

    def stop(self, run: str, reason: str) -> bool:
        """Stop the run's job, or have it stopped when it comes. Returns whether it is here."""
        with self._lock:
            job = self._jobs.get(run)
            if job is None:
                self._stopped[run] = reason
                while len(self._stopped) > KEPT_STOPS:
                    del self._stopped[next(iter(self._stopped))]
                return False
        job.stop(reason)
        return True

    def get(self, run: str) -> Job | MonitorJob | None:
        with self._lock:
            if self._released.pop(run, None) is not None:
                self._released[run] = time.monotonic()
            return self._jobs.get(run)

    def all(self) -> dict[str, Job | MonitorJob]:
        """{run: job}, the oldest first."""
        with self._lock:
            return dict(self._jobs)

    def release(self, run: str) -> bool:
        """Allow that the job is forgotten, if it has ended. False where it has not, or is not known."""
        with self._lock:
            job = self._jobs.get(run)
            has_ended = job is not None and job.journal.state in TERMINAL
            if has_ended:
                self._released.pop(run, None)
                self._released[run] = time.monotonic()
        self.sweep()
        return has_ended

    def sweep(self) -> None:
        """Forget released jobs that are too old, or whose files take too much space."""
        with self._lock:
            now, size, doomed = time.monotonic(), 0, []
            for newer, run in enumerate(reversed(list(self._released))):
                size += sum(artifact.size for artifact in self._jobs[run].files.artifacts.values())
                too_much = newer >= KEPT_RUNS or (newer > 0 and size > KEPT_BYTES)
                if too_much or now - self._released[run] > KEPT_SECONDS:
                    doomed.append(run)
            jobs = [self._jobs.pop(run) for run in doomed]
            for run in doomed:
                del self._released[run]
        for job in jobs:
            job.forget()

    def busy(self) -> int:
        """Slots that runs in progress take."""
        return sum(job.workers for job in self.all().values() if job.journal.state not in TERMINAL)

    def forget_all(self) -> None:
        """Delete the files of all runs: the process exits."""
        for job in self.all().values():
            job.forget()
