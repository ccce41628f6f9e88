"""A worker's exchanges with the parameter server: one at a time, in a thread beside its training.

At the end of a window the worker hands its weights over and trains on. Once the answer has arrived, it adds the shift
in it to its weights, which have moved on meanwhile. The next window counts from the new centre.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Generic, NamedTuple

from .client import ParameterClient, Version

if TYPE_CHECKING:
    from .rule_spec import Rule
    from .vector import Vector


class CommitAnswer(NamedTuple):
    """The answer to a commit."""

    #: What to add to the worker's weights, whatever they are by now.
    shift: Vector
    #: Commits of other workers that the server merged between the centre of the window and this commit.
    staleness: int


def overlap_staleness(batches: int, overlapped: int, commits: int) -> int:
    """By how many commits a window is staler than the centre that it counts from: the mean of its batches, rounded up.

    The first `overlapped` of its `batches` batches were trained during the previous exchange, on weights that miss
    `commits` commits of other workers.
    """
    return -(-overlapped * commits // batches)


def concurrent_staleness(other_workers: int) -> int:
    """What to add to the staleness of a commit, if this many other workers commit at about the same time.

    They do so at the end of the first window from a common centre, and at the end of an epoch. On average half of them
    commit later, which no version counts; rounded up. With this addition, the 1 / (staleness + 1) of n such commits add
    up to about 1, as with n workers who take turns. Without it, they add up to 1 + 1/2 + ... + 1/n.
    """
    return -(-other_workers // 2)


class Exchanger(Generic[Version]):
    """The exchanges of fit number `fit` by `rule` through `client`. Not for several threads.

    window: batches between two exchanges; the last window of an epoch may have fewer.
    """

    def __init__(self, rule: Rule, client: ParameterClient[Version], fit: int, window: int) -> None:
        self._rule, self._client, self._fit, self._window = rule, client, fit, window
        self._thread = ThreadPoolExecutor(1, "exchange")
        self._pending: Future[tuple[Vector, Vector, Version, int]] | None = None
        self._seq = 0

    def start(self, centre: Vector, version: Version) -> None:
        """Begin the next window at `centre` (1-D float32, all weights of the model), which has `version`."""
        self._base, self._version = centre, version
        self._overlapped = self._overlap_commits = 0
        self._first_window = True

    def follow(self, rule: Rule, window: int) -> None:
        """The workers are others: go on by this rule. Called between two epochs."""
        self._rule, self._window = rule, window

    @property
    def in_flight(self) -> bool:
        """Whether a commit was sent and its answer not collected."""
        return self._pending is not None

    @property
    def answer_arrived(self) -> bool:
        """Whether `collect` would return at once."""
        return self._pending is not None and self._pending.done()

    def send(self, local: Vector, batches: int, ends_epoch: bool = False) -> None:
        """Commit `local` (1-D float32, all weights) after a window of `batches`; the caller gives the array up."""
        assert self._pending is None, "one commit at a time"
        self._seq += 1
        self._overlap = self._concurrent = 0
        if not self._rule.fresh:  # a fresh base is as new as a commit can be, whatever the window began with
            self._overlap = overlap_staleness(batches, self._overlapped, self._overlap_commits)
            self._concurrent = concurrent_staleness(self._rule.lag) if self._first_window or ends_epoch else 0
        self._first_window = False
        self._pending = self._thread.submit(self._exchange, local, batches, self._overlap + self._concurrent)

    def collect(self, trained: int) -> CommitAnswer:
        """Wait for the answer to `send`. trained: batches that were trained since.

        Raises what `client.Client.commit` raises.
        """
        pending, self._pending = self._pending, None
        assert pending is not None, "nothing was sent"
        shift, self._base, self._version, staleness = pending.result()
        staleness -= self._concurrent
        self._overlapped, self._overlap_commits = trained, staleness - self._overlap
        return CommitAnswer(shift, staleness)

    def close(self) -> None:
        """End the thread; an exchange in flight is not waited for."""
        self._thread.shutdown(wait=False)

    def _exchange(self, local: Vector, batches: int, extra_staleness: int) -> tuple[Vector, Vector, Version, int]:
        """(shift, the centre to count from, its version, staleness)"""
        rule, base, version = self._rule, self._base, self._version
        if rule.fresh:
            base, version = self._pull()
        delta = rule.delta(local, base, max(batches, self._window))
        centre, new, staleness = self._client.commit(
            self._fit, self._seq, delta, version, extra_staleness, want_centre=rule.adopt
        )
        shift = rule.resume(local, delta, centre) - local
        return (shift, base, version, staleness) if centre is None else (shift, centre, new, staleness)

    def _pull(self) -> tuple[Vector, Version]:
        centre, version = self._client.pull(self._fit, self._version)
        return (self._base if centre is None else centre), version
