"""The state of one fit on the parameter server: the centre, its version, who has committed, who has passed which epoch.

No sockets and no locks: the server calls it under its one lock, tests call it by value.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, AbstractSet, Any, Literal, NamedTuple, Sequence

import numpy as np

if TYPE_CHECKING:
    from .rule_spec import Rule
    from .vector import Vector

#: "nonfinite": a vector holds NaN or infinity. "lost": a rank that others need is gone. "usage": a mistake of the rank.
RefusalKind = Literal["nonfinite", "lost", "usage"]


class Refusal(Exception):
    """A request that the server does not carry out: the rank at fault, and one line that says why."""

    def __init__(self, kind: RefusalKind, rank: int, message: str) -> None:
        super().__init__(message)
        self.kind: RefusalKind = kind
        self.rank = rank


class Arrival(NamedTuple):
    """What a rank brings to the end of an epoch: float64 vectors, whether it wants the fit to stop, whether it has
    trained in the epoch, and how many steps all have made by its count.
    """

    sums: Vector
    means: Vector
    stop: bool
    trained: bool = True
    steps: int = 0


class EpochEnd:
    """What every rank receives when an epoch is over.

    sums, means: over the ranks that arrived, float64; means over those that have trained. stop: whether any of them
    wants the fit to stop. centre, version: as they stood when the last rank arrived. ranks: those that there were then,
    which share out the next epoch. steps: that all have made.
    """

    def __init__(self, arrivals: list[Arrival], centre: Vector, version: int, ranks: Sequence[int]) -> None:
        self.sums: Vector = np.sum([arrival.sums for arrival in arrivals], axis=0)
        trained = [arrival for arrival in arrivals if arrival.trained] or arrivals
        self.means: Vector = np.mean([arrival.means for arrival in trained], axis=0)
        self.ranks = ranks
        self.steps = max(arrival.steps for arrival in arrivals)
        self.stop = any(arrival.stop for arrival in arrivals)
        #: None once the next epoch is over: its memory is free for other centres.
        self.centre: Vector | None = centre
        self.version = version


class Fit:
    """One fit by `rule`. A centre never changes: a commit makes a new one, so that sending one needs no lock.

    centre: the initial weights, a vector that the fit takes over: it becomes read-only.
    """

    def __init__(self, rule: Rule, centre: Vector, ranks: Sequence[int] = ()) -> None:
        """ranks: those that share out the first epoch."""
        self.rule = rule
        #: Those that share out the epoch that the ranks are in.
        self.ranks = ranks
        #: That all ranks have made until its beginning.
        self.steps = 0
        #: It has been stopped, and has no further epoch.
        self.is_over = False
        self.centre = centre
        self.centre.setflags(write=False)
        #: Commits merged so far.
        self.version = 0
        #: The epoch that the ranks are in.
        self.epoch = 0
        #: What rank 0 has broadcast, JSON values by tag.
        self.broadcasts: dict[str, Any] = {}
        self._applied: dict[int, tuple[int, int, int]] = {}  # by rank, its last: attempt, seq, staleness
        self._arrived: dict[int, dict[int, Arrival]] = collections.defaultdict(dict)  # by epoch and rank
        self._epoch_ends: dict[int, EpochEnd] = {}  # all: a rank that is started again may ask for several
        self._history: collections.deque[tuple[int, Vector]] = collections.deque(maxlen=rule.history)
        self._remember()

    def _remember(self) -> None:
        if self.rule.history:
            self._history.append((self.version, self.centre))

    def _centre_of(self, version: int) -> Vector | None:
        """The centre of `version`, or the oldest that is kept; None for a rule that keeps none."""
        for kept_version, centre in reversed(self._history):
            if kept_version <= version:
                return centre
        return self._history[0][1] if self._history else None

    def check(self, rank: int, dtype: Any, size: int) -> None:
        """Refuse a vector of `size` elements of `dtype` that does not fit the centre."""
        if size != self.centre.size or np.dtype(dtype) != self.centre.dtype:
            text = "rank %d's model has %d weights of %s, the job's has %d of %s: build the same model on every rank"
            words = rank, size, np.dtype(dtype).name, self.centre.size, self.centre.dtype.name
            raise Refusal("usage", rank, text % words)

    def commit(self, rank: int, attempt: int, seq: int, delta: Vector, version: int, extra_staleness: int = 0) -> int:
        """Merge `delta` into the centre; returns the staleness that it was merged with, in commits.

        delta: of the centre's size and dtype, and finite, which the caller has checked. It is taken over: its memory
        may become the new centre's. version: of the centre that it was computed against. (attempt, seq) identifies a
        rank's commit and grows: one that is not newer than the rank's last is a repetition, which changes nothing and
        returns the last staleness. extra_staleness: added to the commits since `version`; below 0 counts as 0.

        Raises `Refusal` ("usage") for another size or dtype, and for a version that there has never been.
        """
        self.check(rank, delta.dtype, delta.size)
        last_commit = self._applied.get(rank)
        if last_commit is not None and (attempt, seq) <= last_commit[:2]:
            return last_commit[2]
        if not 0 <= version <= self.version:
            raise Refusal("usage", rank, "rank %d commits against version %d of %d" % (rank, version, self.version))
        staleness = self.version - version + max(0, extra_staleness)
        self.centre = self.rule.merge(self.centre, delta, staleness, self._centre_of(version))
        self.centre.setflags(write=False)
        self.version += 1
        self._remember()
        self._applied[rank] = (attempt, seq, staleness)
        return staleness

    def arrive(self, epoch: int, rank: int, arrival: Arrival) -> None:
        """Note that a rank has passed `epoch`; nothing changes where that is over.

        Raises `Refusal` ("usage") where the vectors are not as long as those of the ranks before.
        """
        if epoch in self._epoch_ends:
            return
        arrived = self._arrived[epoch]
        for other_rank, other_arrival in arrived.items():
            sizes = arrival.sums.size, arrival.means.size
            other_sizes = other_arrival.sums.size, other_arrival.means.size
            if sizes != other_sizes:
                text = "rank %d ends epoch %d with %d sums and %d means, rank %d with %d and %d: their models differ"
                raise Refusal("usage", rank, text % (rank, epoch, *sizes, other_rank, *other_sizes))
        arrived[rank] = arrival

    def epoch_end(self, epoch: int, awaited: AbstractSet[int]) -> EpochEnd | None:
        """The end of `epoch` once all ranks in `awaited` have arrived, else None."""
        if epoch not in self._epoch_ends:
            arrived = self._arrived[epoch]
            ahead = {rank for later, ranks in self._arrived.items() if later > epoch for rank in ranks}
            if not arrived or not awaited <= set(arrived) | ahead:
                return None
            for older in self._epoch_ends.values():
                older.centre = None
            arrivals = [arrived[rank] for rank in sorted(arrived)]
            self._epoch_ends[epoch] = end = EpochEnd(arrivals, self.centre, self.version, sorted(awaited))
            self.is_over = self.is_over or end.stop
            if epoch + 1 > self.epoch:
                self.epoch, self.ranks, self.steps = epoch + 1, end.ranks, max(self.steps, end.steps)
            del self._arrived[epoch]
        return self._epoch_ends[epoch]
