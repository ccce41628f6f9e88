"""A worker of parameter_server.py.

    python -m benchmarks.child_processes.commit_pull_worker ours|pickled RANK ADDRESSES

ADDRESSES is JSON: [host, port] of each server. The message {"layers": elements of each layer, "fit": number} prepares a
model; the answer is null. The message {"seconds": s, "least": n} has the worker commit updates and get the centre
back, for s seconds and at least n times; the answer is the list of the seconds of each exchange.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from ddl_magics.runtime.transport.credentials import Credentials

from .pickle_server import COMMIT, PULL, RESET, receive, send

CREDENTIALS = Credentials("benchmark", b"of the benchmarks".ljust(32, b"."))
TIMEOUT_SECONDS = 120.0

Address = tuple[str, int]


class Worker(Protocol):
    """A worker with either protocol."""

    def prepare(self, layers: list[int], fit: int) -> None:
        """Have a model with so many elements (float32) in each layer."""

    def exchange(self) -> None:
        """Commit an update and get the new centre."""


class Ours:
    """With the client of the runtime's parameter server."""

    def __init__(self, rank: int, addresses: list[Address]) -> None:
        from ddl_magics.runtime.parameter_server import shards

        self._client = shards.connect(addresses, CREDENTIALS, rank, 1, TIMEOUT_SECONDS)
        self._rank, self._seq = rank, 0

    def prepare(self, layers: list[int], fit: int) -> None:
        size = sum(layers)
        initial = np.zeros(size, np.float32) if self._rank == 0 else None
        self._delta, self._fit = np.ones(size, np.float32), fit
        self._centre, self._version = self._client.begin(fit, initial, np.float32, size)

    def exchange(self) -> None:
        self._seq += 1
        _, self._version, _ = self._client.commit(self._fit, self._seq, self._delta, self._version)


class Pickled:
    """With the protocol of pickle_server.py: a commit, then a pull."""

    def __init__(self, rank: int, addresses: list[Address]) -> None:
        (address,) = addresses
        self._socket = socket.create_connection(address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rank = rank

    def prepare(self, layers: list[int], fit: int) -> None:
        self._delta = [np.ones(size, np.float32) for size in layers]
        if self._rank == 0:
            self._socket.sendall(RESET)
            send(self._socket, layers)
            receive(self._socket)

    def exchange(self) -> None:
        self._socket.sendall(COMMIT)
        send(self._socket, self._delta)
        self._socket.sendall(PULL)
        self._centre: Any = receive(self._socket)


PROTOCOLS: dict[str, Callable[[int, list[Address]], Worker]] = {"ours": Ours, "pickled": Pickled}


def main() -> None:
    protocol, rank, addresses = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
    worker = PROTOCOLS[protocol](rank, [(host, port) for host, port in addresses])
    for line in sys.stdin:
        block = json.loads(line)
        if "layers" in block:
            worker.prepare(block["layers"], block["fit"])
            print("null", flush=True)
            continue
        taken: list[float] = []
        end = time.monotonic() + block["seconds"]
        while len(taken) < block["least"] or time.monotonic() < end:
            began = time.monotonic()
            worker.exchange()
            taken.append(time.monotonic() - began)
        print(json.dumps(taken), flush=True)


if __name__ == "__main__":
    main()
