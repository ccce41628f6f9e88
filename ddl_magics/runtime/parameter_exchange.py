"""A worker's exchanges with the parameter server, which go on in a thread beside its training: one at a time.

A window ends: its weights are handed over, and the worker trains on. When the answer is there, the worker's weights,
which have moved on meanwhile, are changed by what it says. The next window counts from the new centre.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np


class Exchanged(NamedTuple):
    """The answer to a commit."""

    #: What the worker's weights change by, wherever they are by now.
    shift: np.ndarray
    staleness: int


def late(batches, behind, passed):
    """By how much a window is staler than the centre that it counts from, in commits, rounded up.

    Its first `behind` of `batches` batches were trained before that centre had come, on one that is `passed` commits of
    others older. The mean over the batches.
    """
    return -(-behind * passed // batches)


def together(others):
    """What to add to the staleness of a commit that as many `others` make at about the same time.

    So they do at the end of their first windows from one centre, and at the end of an epoch. Half of them come later on
    average, and are in no count: rounded up. With it the 1 / (staleness + 1) of n such commits add up to about 1, as do
    those of n workers who take turns, instead of to 1 + 1/2 + ... + 1/n.
    """
    return -(-others // 2)


class Exchanger:
    """The exchanges of one fit by `rule` (a `rule.Rule`) through `client`. Not for several threads.

    window: batches between two of them, of which an epoch's last may have fewer.
    """

    def __init__(self, rule, client, fit, window):
        self._rule, self._client, self._fit, self._window = rule, client, fit, window
        self._thread = ThreadPoolExecutor(1, "exchange")
        self._pending, self._seq = None, 0

    def start(self, centre, version):
        """Count from `centre` on: all workers do."""
        self._base, self._version = centre, version
        self._behind = self._passed = 0
        self._first = True

    @property
    def in_flight(self):
        return self._pending is not None

    @property
    def answered(self):
        return self._pending is not None and self._pending.done()

    def send(self, local, batches, ends_epoch=False):
        """Hand over the weights `local` (flat, taken over) at the end of a window of `batches` batches."""
        assert self._pending is None, "one commit at a time"
        self._seq += 1
        self._late = self._uncounted = 0
        if not self._rule.fresh:  # else the base is as new as a commit can be, whatever the window began with
            self._late = late(batches, self._behind, self._passed)
            self._uncounted = together(self._rule.lag) if self._first or ends_epoch else 0
        self._first = False
        self._pending = self._thread.submit(self._exchange, local, batches, self._late + self._uncounted)

    def collect(self, trained):
        """Wait for the answer: an `Exchanged`. `trained`: batches that were trained since `send`.

        Raises what `parameter_client.Client.commit` raises.
        """
        pending, self._pending = self._pending, None
        shift, self._base, self._version, staleness = pending.result()
        staleness -= self._uncounted
        self._behind, self._passed = trained, staleness - self._late
        return Exchanged(shift, staleness)

    def close(self):
        self._thread.shutdown(wait=False)

    def _exchange(self, local, batches, late):
        rule, base, version = self._rule, self._base, self._version
        if rule.fresh:
            base, version = self._pull()
        delta = rule.delta(local, base, max(batches, self._window))
        centre, new, staleness = self._client.commit(
            self._fit, self._seq, delta, version, batches, late=late, want_centre=rule.adopt
        )
        shift = rule.resume(local, delta, centre) - local
        return (shift, centre, new, staleness) if rule.adopt else (shift, base, version, staleness)

    def _pull(self):
        centre, version = self._client.pull(self._fit, self._version)
        return (self._base if centre is None else centre), version
