"""The runs that a driver holds: those in progress, and for a while those that have ended.

A notebook that has all of a run releases it. Another one may follow the same run, from another machine or after a
restart, and be slower: so what is released stays until it is old, or newer ones need its place.
"""

import threading
import time

from .events import TERMINAL

#: A released run that nobody has asked for this long is forgotten.
KEPT_SECONDS = 900.0
#: Of released runs so many are kept, and so many bytes of their files; the newest always.
KEPT_RUNS = 8
KEPT_BYTES = 1 << 30


class Held:
    """Jobs by the id of their run. Thread-safe."""

    def __init__(self):
        self._lock = threading.Lock()
        self._jobs = {}
        self._released = {}  # run -> when it was last asked for, the newest last

    def add(self, run, job):
        with self._lock:
            self._jobs[run] = job
        self.sweep()

    def get(self, run):
        """The job, or None."""
        with self._lock:
            if self._released.pop(run, None) is not None:
                self._released[run] = time.monotonic()
            return self._jobs.get(run)

    def all(self):
        """{run: job}, the oldest first."""
        with self._lock:
            return dict(self._jobs)

    def release(self, run):
        """The job may be forgotten, if it has ended; False where it has not, or is not known."""
        with self._lock:
            job = self._jobs.get(run)
            ended = job is not None and job.state in TERMINAL
            if ended:
                self._released.pop(run, None)
                self._released[run] = time.monotonic()
        self.sweep()
        return ended

    def sweep(self):
        """Forget what has been released and is too old or too much."""
        with self._lock:
            now, size, doomed = time.monotonic(), 0, []
            for place, run in enumerate(reversed(list(self._released))):
                size += sum(artifact["size"] for artifact in self._jobs[run].artifacts.values())
                too_much = place >= KEPT_RUNS or (place and size > KEPT_BYTES)
                if too_much or now - self._released[run] > KEPT_SECONDS:
                    doomed.append(run)
            jobs = [self._jobs.pop(run) for run in doomed]
            for run in doomed:
                del self._released[run]
        for job in jobs:
            job.forget()

    def busy(self):
        """Slots that runs hold."""
        return sum(job.workers for job in self.all().values() if job.state not in TERMINAL)

    def forget_all(self):
        """The process exits."""
        for job in self.all().values():
            job.forget()
