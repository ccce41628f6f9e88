"""Which ranks the parameter server may count on: those that are connected, and those that may still come."""

import time

#: The rank that brings weights and validates.
CHIEF = 0


class Members:
    """The ranks of a run. Used under the server's lock."""

    def __init__(self, size, attempt, join_seconds, rejoin_seconds=0.0):
        """rejoin_seconds: rank 0 is needed by all, and waited for that long when its connection closes."""
        self._rejoin_seconds = rejoin_seconds
        self._rejoin_by = 0.0
        self._attempts = dict.fromkeys(range(size), attempt)
        self._live = {}
        self._absent = set(range(size))
        self._join_seconds = join_seconds
        self._join_by = None

    def why_not(self, rank, attempt):
        """Why a rank may not connect, or None. The same attempt may: it replaces a connection that broke."""
        if rank not in self._attempts:
            return "there is no rank %d" % rank
        if attempt < self._attempts[rank]:
            return "attempt %d of rank %d is over, attempt %d goes on" % (attempt, rank, self._attempts[rank])
        return None

    def joined(self, rank, attempt, channel):
        """Note a connection; returns the rank's older one, which it replaces, or None."""
        self._absent.discard(rank)
        self._attempts[rank] = attempt
        older = self._live.get(rank)
        self._live[rank] = channel
        return older

    def gone(self, rank, channel, left):
        """Note that a connection is closed, unless a newer one has taken its place. left: the rank said so."""
        if self._live.get(rank) is channel:
            del self._live[rank]
            if rank == CHIEF and not left:
                self._rejoin_by = time.monotonic() + self._rejoin_seconds

    def fit_begins(self):
        """From the first fit on, those who never came are waited for a bounded time."""
        if self._join_by is None:
            self._join_by = time.monotonic() + self._join_seconds

    def awaited(self):
        """The ranks without which nothing that needs all of them is over."""
        waiting = self._join_by is None or time.monotonic() < self._join_by
        chief = {CHIEF} if time.monotonic() < self._rejoin_by else set()
        return set(self._live) | (self._absent if waiting else set()) | chief
