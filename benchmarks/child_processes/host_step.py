"""A host of multi_host_step.py: one rank, or the server of the way "server".

    python -m benchmarks.child_processes.host_step ADDRESS RANK HOSTS CREDENTIALS
    python -m benchmarks.child_processes.host_step ADDRESS server HOSTS

CREDENTIALS is the file of those with which connections are encrypted. Each first answers its own addresses: a rank has
one more for encrypted connections. The first message is the list of the addresses of all, the server's last. Every
further message is a `Block`, the answer the mean seconds of one of its steps; with buckets, how many of them were
waited for the exchange, how many of these moved data, and how many moved data before; last, its CPU seconds.

A step computes by sleeping, and ends when its gradients are summed over all hosts.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ddl_magics.runtime.collectives import buckets, rendezvous
from ddl_magics.runtime.collectives.announcement import STEP, Announcement
from ddl_magics.runtime.collectives.collective import Collective
from ddl_magics.runtime.collectives.peer_listener import PeerListener
from ddl_magics.runtime.transport.credentials import Credentials

from .simulated_step import Block, compute

CREDENTIALS = Credentials("benchmark", b"of the benchmarks".ljust(32, b"."))

Array = npt.NDArray[np.float32]
Item = TypeVar("Item")


class Gradients:
    """The gradients of a model in one flat buffer, and its buckets: the last layer of each -> its elements."""

    def __init__(self, size: int, planned: list[tuple[int, int, int]]) -> None:
        self.flat: Array = np.ones(size // 4, np.float32)
        self.residual: Array = np.zeros_like(self.flat)
        self.buckets = {last: slice(begin, end) for last, begin, end in planned}


class Host:
    """A rank: `ring` and `encrypted` connect it with the other ranks, `server` with the server."""

    def __init__(self, ring: Collective, encrypted: Collective, server: socket.socket) -> None:
        self._ring, self._server = ring, server
        self._queues = {each: buckets.Buckets(each) for each in (ring, encrypted)}
        self._gradients = Gradients(0, [])
        self._steps = 0
        self._waited = self._moved = self._hidden = 0.0  # seconds, in the present block
        self._ways: dict[str, Callable[[Iterator[int]], None]] = {
            "overlap": partial(self._sum_in_buckets, ring),
            "tls": partial(self._sum_in_buckets, encrypted),
            "bf16": partial(self._sum_in_buckets, ring, compressed=True),
            "after": self._sum_after_all,
            "server": self._sum_by_server,
        }

    def run(self, block: Block) -> list[float]:
        """Mean seconds of a step: all, waited for the exchange, of those moving data, hidden; and its CPU seconds."""
        if self._gradients.flat.nbytes != block["size"]:
            self._gradients = Gradients(block["size"], block["buckets"])
        self._allreduce(self._ring, np.ones(1, np.float32), None)  # all hosts begin together
        self._waited = self._moved = self._hidden = 0.0
        start, cpu = time.perf_counter(), time.process_time()
        for _ in range(block["repeat"]):
            self._gradients.flat.fill(1)
            self._ways[block["way"]](compute(block))
            self._check()
            self._steps += 1
        taken, cpu = time.perf_counter() - start, time.process_time() - cpu
        spent = (taken, self._waited, self._moved, self._hidden, cpu)
        return [each / block["repeat"] for each in spent]

    def _sum_in_buckets(self, ring: Collective, computed: Iterator[int], compressed: bool = False) -> None:
        queue = self._queues[ring]
        for layer in computed:
            bucket = self._gradients.buckets.get(layer)
            if bucket is not None:
                residual = self._gradients.residual[bucket] if compressed else None
                queue.submit(partial(self._allreduce, ring, self._gradients.flat[bucket], residual))
        queue.wait()
        self._waited += queue.waited
        self._moved += queue.timings.copy + queue.timings.wire
        self._hidden += queue.hidden

    def _sum_after_all(self, computed: Iterator[int]) -> None:
        _exhaust(computed)
        self._allreduce(self._ring, self._gradients.flat, None)

    def _sum_by_server(self, computed: Iterator[int]) -> None:
        _exhaust(computed)
        self._server.sendall(self._gradients.flat.data)
        receive_into(self._server, self._gradients.flat)

    def _allreduce(self, ring: Collective, flat: Array, residual: Array | None) -> list[Announcement]:
        return ring.allreduce(flat, Announcement(STEP, step=self._steps), residual)

    def _check(self) -> None:
        """SystemExit where the sums of ones are not the number of hosts."""
        flat, expected = self._gradients.flat, self._ring.size
        if flat[0] != expected or flat[-1] != expected:
            raise SystemExit(f"wrong sums: {flat}, expected {expected}")


def _exhaust(computed: Iterator[int]) -> None:
    for _ in computed:
        pass


def receive_into(sock: socket.socket, array: Array) -> None:
    """Fill the array. SystemExit if the connection ends before."""
    view = array.data.cast("B")
    while view:
        count = sock.recv_into(view)
        if not count:
            raise SystemExit("a host closed its connection during a step")
        view = view[count:]


def serve(listener: socket.socket, hosts: int) -> None:
    """Sum the gradients of all hosts in each step of the way "server", and send the sum to each."""
    sockets = [listener.accept()[0] for _ in range(hosts)]
    for sock in sockets:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for line in sys.stdin:
        block: Block = json.loads(line)
        if block["way"] == "server":
            arrays: list[Array] = [np.empty(block["size"] // 4, np.float32) for _ in range(hosts)]
            for _ in range(block["repeat"]):
                _each(lambda pair: receive_into(*pair), list(zip(sockets, arrays, strict=True)))
                total = np.sum(arrays, axis=0)
                _each(partial(_send, total), sockets)
        _answer(0.0)


def _send(array: Array, sock: socket.socket) -> None:
    sock.sendall(array.data)


def _each(function: Callable[[Item], None], items: Sequence[Item]) -> None:
    """Call the function with each item, each in a thread of its own."""
    threads = [threading.Thread(target=function, args=(item,), daemon=True) for item in items]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _answer(value: object) -> None:
    print(json.dumps(value), flush=True)


def main() -> None:
    address, role, hosts = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if role == "server":
        server_socket = socket.create_server((address, 0))
        _answer(server_socket.getsockname())
        sys.stdin.readline()
        return serve(server_socket, hosts)
    encrypted = Credentials.from_json(json.loads(Path(sys.argv[4]).read_text()))
    listeners = [PeerListener(address, credentials, int(role), 0, hosts) for credentials in (CREDENTIALS, encrypted)]
    _answer([listener.address for listener in listeners])
    *addresses, server = json.loads(sys.stdin.readline())
    ring, encrypted_ring = (
        rendezvous.connect(listener, list(of_all), host=f"host-{role}")
        for listener, of_all in zip(listeners, zip(*addresses, strict=True), strict=True)
    )
    connection = socket.create_connection(tuple(server))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    host = Host(ring, encrypted_ring, connection)
    for line in sys.stdin:
        _answer(host.run(json.loads(line)))


main()
