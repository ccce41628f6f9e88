"""A model cut among several parameter servers: each holds a shard of the weights, with its own versions.

A commit goes to all of them at the same time and is not one transaction: they may merge the commits of two ranks in
different orders. Each shard by itself is as with one server, and so is every rule, as rules work element by element.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Callable, Iterable, Sequence, Tuple, TypeVar

import numpy as np

from ..transport.buffers import Buffers
from ..transport.credentials import Credentials
from .client import Client, ParameterClient

if TYPE_CHECKING:
    import numpy.typing as npt

    from .vector import Vector

#: Of the centre: the version of each shard.
Versions = Tuple[int, ...]
_Answer = TypeVar("_Answer")


def connect(
    addresses: Sequence[Sequence[Any]], credentials: Credentials, rank: int, attempt: int, timeout: float
) -> ParameterClient[Any]:
    """A `Client` for one address (host, port), a `ShardedClient` for several.

    The caller only passes versions on. The arguments and errors are those of `Client`.
    """
    if len(addresses) == 1:
        return Client(addresses[0], credentials, rank, attempt, timeout)
    return ShardedClient(addresses, credentials, rank, attempt, timeout)


class ShardedClient:
    """As `Client`, for several servers. Calls take and return vectors of the whole model, and a version per shard.

    Shard k of n has the elements size * k // n to size * (k + 1) // n of a vector. A centre that a call returns lies in
    memory that is used again once the caller has let go of it.
    """

    def __init__(
        self, addresses: Sequence[Sequence[Any]], credentials: Credentials, rank: int, attempt: int, timeout: float
    ) -> None:
        self._clients = [Client(address, credentials, rank, attempt, timeout) for address in addresses]
        self._threads = ThreadPoolExecutor(len(addresses), "shard")
        self._buffers = Buffers()

    @property
    def epoch(self) -> int:
        return self._clients[0].epoch

    @property
    def ranks(self) -> Sequence[int]:
        return self._clients[0].ranks

    @property
    def steps(self) -> int:
        return self._clients[0].steps

    @property
    def busy(self) -> bool:
        """As `Client.busy`, of any server."""
        return any(client.busy for client in self._clients)

    def begin(
        self, fit: int, initial: Vector | None, dtype: npt.DTypeLike, size: int, rate: float | None = None
    ) -> tuple[Vector, Versions]:
        """As `Client.begin`."""
        self._size = size
        shards = [None] * len(self._clients) if initial is None else self._cut(initial)

        def begin(client: Client, shard: Vector | None, low: int, high: int) -> tuple[Vector, int]:
            return client.begin(fit, shard, dtype, high - low, rate)

        bounds = self._bounds()
        replies = self._call_all(begin, shards, bounds[:-1], bounds[1:])
        return self._join(shard for shard, _ in replies), tuple(version for _, version in replies)

    def pull(self, fit: int, local_version: Versions | None = None) -> tuple[Vector | None, Versions]:
        """As `Client.pull`; (None, local_version) if no shard has changed since `local_version`."""
        replies = self._call_all(
            lambda client, version: client.pull(fit, version), local_version or [None] * len(self._clients)
        )
        versions = tuple(version for _, version in replies)
        shards = [shard for shard, _ in replies if shard is not None]
        if not shards:
            return None, versions
        if len(shards) < len(replies):
            return self.pull(fit)
        return self._join(shards), versions

    def commit(
        self, fit: int, seq: int, delta: Vector, version: Versions, extra_staleness: int = 0, want_centre: bool = True
    ) -> tuple[Vector | None, Versions, int]:
        """As `Client.commit`; the staleness is that of the stalest shard.

        Raises the error of the first shard that has one; the others may have merged their part.
        """

        def commit(client: Client, shard: Vector, version: int) -> tuple[Vector | None, int, int]:
            return client.commit(fit, seq, shard, version, extra_staleness, want_centre)

        replies = self._call_all(commit, self._cut(delta), version)
        centre = self._join(shard for shard, _, _ in replies if shard is not None) if want_centre else None
        return centre, tuple(version for _, version, _ in replies), max(staleness for _, _, staleness in replies)

    def epoch_end(
        self,
        fit: int,
        epoch: int,
        sums: npt.NDArray[Any],
        means: npt.NDArray[Any],
        stop: bool,
        trained: bool = True,
        steps: int = 0,
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], Vector, Versions, bool]:
        """As `Client.epoch_end`; the first server alone adds up sums and means."""
        empty = np.zeros(0)
        other_servers = len(self._clients) - 1

        def end_epoch(client: Client, sums: npt.NDArray[Any], means: npt.NDArray[Any]) -> Any:
            return client.epoch_end(fit, epoch, sums, means, stop, trained, steps)

        replies = self._call_all(end_epoch, [sums] + [empty] * other_servers, [means] + [empty] * other_servers)
        sums, means, _, _, stop = replies[0]
        return sums, means, self._join(reply[2] for reply in replies), tuple(reply[3] for reply in replies), stop

    def broadcast(self, fit: int, tag: str, value: Any) -> Any:
        """As `Client.broadcast`, through the first server."""
        return self._clients[0].broadcast(fit, tag, value)

    def leave(self) -> None:
        """As `Client.leave`."""
        self._call_all(Client.leave)
        self._threads.shutdown(wait=False)

    def _call_all(self, call: Callable[..., _Answer], *arguments: Iterable[Any]) -> list[_Answer]:
        """The answers of `call(client, ...)` for every server with its arguments. Raises the first server's error."""
        return list(self._threads.map(call, self._clients, *arguments))

    def _bounds(self) -> list[int]:
        count = len(self._clients)
        return [self._size * shard // count for shard in range(count + 1)]

    def _cut(self, vector: Vector) -> list[Vector]:
        bounds = self._bounds()
        return [vector[low:high] for low, high in zip(bounds, bounds[1:])]

    def _join(self, shards: Iterable[Vector]) -> Vector:
        shards = list(shards)
        return np.concatenate(shards, out=self._buffers.take(shards[0].dtype, self._size))
