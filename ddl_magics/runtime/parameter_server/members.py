"""Which ranks the parameter server counts on: those that are connected, and those that may still connect."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..transport.wire import Channel

#: The rank that brings the initial weights and validates.
CHIEF = 0


class Members:
    """The ranks of a run. Used under the server's lock.

    size: ranks 0 to size - 1 are expected. attempt: the first that is admitted. join_seconds: how long, from the first
    fit on, ranks that have never connected are awaited. rejoin_seconds: how long rank 0, which all others need, is
    awaited after its connection broke. max_size: where ranks come and go, those below it may connect; else 0. One that
    does so later than at the beginning is awaited once it has begun a fit.
    """

    def __init__(
        self, size: int, attempt: int, join_seconds: float, rejoin_seconds: float = 0.0, max_size: int = 0
    ) -> None:
        self._rejoin_seconds = rejoin_seconds
        self._rejoin_deadline = 0.0
        self._attempts = dict.fromkeys(range(max(size, max_size)), attempt)
        self._connected: dict[int, Channel] = {}
        self._prepared = {(rank, attempt) for rank in range(size)}  # ranks, each in its attempt
        self._changes = max_size > 0
        self._absent = set(range(size))
        self._join_seconds = join_seconds
        self._join_deadline: float | None = None

    def refusal(self, rank: int, attempt: int) -> str | None:
        """Why a rank may not connect, or None. The same attempt may: it replaces a connection that broke."""
        if rank not in self._attempts:
            return "there is no rank %d" % rank
        if attempt < self._attempts[rank]:
            return "attempt %d of rank %d is over, attempt %d is running" % (attempt, rank, self._attempts[rank])
        return None

    def connected(self, rank: int, attempt: int, channel: Channel) -> Channel | None:
        """Note a connection; returns the rank's older one, which it replaces, or None."""
        self._absent.discard(rank)
        self._attempts[rank] = attempt
        older = self._connected.get(rank)
        self._connected[rank] = channel
        return older

    def disconnected(self, rank: int, channel: Channel, has_left: bool) -> None:
        """Note that a connection is closed, unless a newer one has replaced it. has_left: the rank took its leave."""
        if self._connected.get(rank) is channel:
            del self._connected[rank]
            if rank == CHIEF and not has_left:
                self._rejoin_deadline = time.monotonic() + self._rejoin_seconds

    def begins(self, rank: int) -> None:
        """The rank has begun a fit."""
        self._prepared.add((rank, self._attempts[rank]))

    def fit_begins(self) -> None:
        """From the first fit on, absent ranks are waited for a bounded time."""
        if self._join_deadline is None:
            self._join_deadline = time.monotonic() + self._join_seconds

    def awaited(self) -> set[int]:
        """The ranks that an epoch's end waits for."""
        current_time = time.monotonic()
        joining = self._absent if self._join_deadline is None or current_time < self._join_deadline else set()
        rejoining = {CHIEF} if current_time < self._rejoin_deadline else set()
        return {rank for rank in self._connected if not self.prepares(rank)} | joining | rejoining

    def prepares(self, rank: int) -> bool:
        """Whether a rank has come later and has not begun a fit."""
        return self._changes and rank != CHIEF and (rank, self._attempts[rank]) not in self._prepared
