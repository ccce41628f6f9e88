"""A model cut among several parameter servers: each holds a part of the flat vector of weights, with its own versions.

A commit goes to all of them at the same time and is not one transaction: they may merge the commits of two ranks in
different orders. Each part by itself is as with one server, and so is every rule, as rules work element by element.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from .buffers import Buffers
from .parameter_client import Client


def connect(addresses, secret, run, rank, attempt, timeout):
    """A `parameter_client.Client` for one address, a `Shards` for several."""
    if len(addresses) == 1:
        return Client(addresses[0], secret, run, rank, attempt, timeout)
    return Shards(addresses, secret, run, rank, attempt, timeout)


class Shards:
    """As `parameter_client.Client`, for several servers. A version is a tuple of theirs."""

    def __init__(self, addresses, secret, run, rank, attempt, timeout):
        self._clients = [Client(address, secret, run, rank, attempt, timeout) for address in addresses]
        self._threads = ThreadPoolExecutor(len(addresses), "shard")
        self._buffers = Buffers()

    @property
    def epoch(self):
        return self._clients[0].epoch

    def begin(self, fit, initial, dtype, size, rate=None):
        self._size = size
        parts = [None] * len(self._clients) if initial is None else self._cut(initial)

        def begin(client, part, low, high):
            return client.begin(fit, part, dtype, high - low, rate)

        bounds = self._bounds()
        replies = self._all(begin, parts, bounds[:-1], bounds[1:])
        return self._join(part for part, _ in replies), tuple(version for _, version in replies)

    def pull(self, fit, known=None):
        replies = self._all(lambda client, known: client.pull(fit, known), known or [None] * len(self._clients))
        if all(part is None for part, _ in replies):
            return None, known
        if any(part is None for part, _ in replies):
            return self.pull(fit)
        return self._join(part for part, _ in replies), tuple(version for _, version in replies)

    def commit(self, fit, seq, delta, version, batches, late=0, want_centre=True):
        def commit(client, part, version):
            return client.commit(fit, seq, part, version, batches, late, want_centre)

        replies = self._all(commit, self._cut(delta), version)
        centre = self._join(part for part, _, _ in replies) if want_centre else None
        return centre, tuple(version for _, version, _ in replies), max(staleness for _, _, staleness in replies)

    def epoch_end(self, fit, epoch, sums, means, stop):
        nothing = np.zeros(0)
        others = len(self._clients) - 1

        def end(client, sums, means):
            return client.epoch_end(fit, epoch, sums, means, stop)

        replies = self._all(end, [sums] + [nothing] * others, [means] + [nothing] * others)
        sums, means, _, _, stop = replies[0]
        return sums, means, self._join(reply[2] for reply in replies), tuple(reply[3] for reply in replies), stop

    def share(self, fit, tag, value):
        return self._clients[0].share(fit, tag, value)

    def leave(self):
        self._all(Client.leave)
        self._threads.shutdown(wait=False)

    def _all(self, call, *arguments):
        """The answers of `call(client, ...)` for every server with its arguments. Raises the first server's error."""
        return list(self._threads.map(call, self._clients, *arguments))

    def _bounds(self):
        count = len(self._clients)
        return [self._size * shard // count for shard in range(count + 1)]

    def _cut(self, flat):
        bounds = self._bounds()
        return [flat[low:high] for low, high in zip(bounds, bounds[1:])]

    def _join(self, parts):
        parts = list(parts)
        return np.concatenate(parts, out=self._buffers.take(parts[0].dtype, self._size))
