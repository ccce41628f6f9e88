"""What a worker tells of its commits: how many in what time, and how stale they were."""

import time

REPORT_SECONDS = 1.0


class CommitReport:
    """Gathers commits into the fields of a "commits" event."""

    def __init__(self):
        self._open()

    def _open(self):
        self._began = time.monotonic()
        self._commits = self._sum = self._max = 0
        self._histogram = []

    @property
    def due(self):
        return self._commits and time.monotonic() - self._began >= REPORT_SECONDS

    def add(self, staleness):
        self._commits += 1
        self._sum += staleness
        self._max = max(self._max, staleness)
        bucket = staleness.bit_length()
        self._histogram += [0] * (bucket + 1 - len(self._histogram))
        self._histogram[bucket] += 1

    def take(self):
        """The fields since the last call, or None if there was no commit."""
        fields = None
        if self._commits:
            fields = {
                "commits": self._commits,
                "staleness": self._sum / self._commits,
                "staleness_max": self._max,
                "seconds": round(time.monotonic() - self._began, 6),
                "histogram": self._histogram,
            }
        self._open()
        return fields
