"""One host of b4: step_process.py ADDRESS RANK HOSTS, or for the parameter server ADDRESS server HOSTS.

Told by lines of JSON on standard input, answers on standard output. A step waits for its forward pass, then for each
layer of its backward pass, which releases the layer's gradients, and ends when these are summed over all hosts.
"""

import itertools
import json
import socket
import sys
import threading
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from ddl_magics.runtime import buckets, parts, rendezvous
from ddl_magics.runtime.place import Place

SECRET = b"of the benchmarks".ljust(32, b".")


class Gradients:
    """A model's, of one flat buffer, cut into layers and those into buckets, in the order in which they are made."""

    def __init__(self, size, layers):
        self.flat = np.ones(size // 4, np.float32)
        self.residual = np.zeros_like(self.flat)
        bounds = [len(self.flat) * layer // layers for layer in range(layers + 1)]
        planned = buckets.plan([4 * (end - begin) for begin, end in itertools.pairwise(bounds)])
        self.buckets = {bucket[-1]: slice(bounds[bucket[0]], bounds[bucket[-1] + 1]) for bucket in planned}


class Host:
    """A rank that computes by letting time pass."""

    def __init__(self, ring, star):
        self._ring, self._star, self._buckets = ring, star, buckets.Buckets(ring)
        self._gradients = None
        self._steps = 0

    def block(self, way, size, repeat, forward, backward, layers):
        """Seconds of a step, as the mean of `repeat` of them."""
        if self._gradients is None or self._gradients.flat.nbytes != size:
            self._gradients = Gradients(size, layers)
        self._allreduce(np.ones(1, np.float32), None)  # all begin together
        start = time.perf_counter()
        for _ in range(repeat):
            self._gradients.flat.fill(1)
            getattr(self, f"_{way}")(self._compute(forward, backward, layers))
            self._steps += 1
        return (time.perf_counter() - start) / repeat

    def _compute(self, forward, backward, layers):
        """The layers whose gradients are there, as time passes."""
        start = time.perf_counter()
        for layer in range(layers):
            time.sleep(max(0.0, start + forward + backward * (layer + 1) / layers - time.perf_counter()))
            yield layer

    def _overlap(self, computing, residual=None):
        for layer in computing:
            bucket = self._gradients.buckets.get(layer)
            if bucket is not None:
                kept = None if residual is None else residual[bucket]
                flat = self._gradients.flat[bucket]
                self._buckets.submit(lambda flat=flat, kept=kept: self._allreduce(flat, kept))
        self._buckets.wait()
        self._check(self._gradients.flat)

    def _bf16(self, computing):
        self._overlap(computing, self._gradients.residual)

    def _after(self, computing):
        for _ in computing:
            pass
        self._allreduce(self._gradients.flat, None)
        self._check(self._gradients.flat)

    def _server(self, computing):
        for _ in computing:
            pass
        self._star.sendall(self._gradients.flat)
        fill(self._star, self._gradients.flat)
        self._check(self._gradients.flat)

    def _allreduce(self, flat, residual):
        return self._ring.allreduce(flat, parts.Part(parts.STEP, step=self._steps), residual)

    def _check(self, flat):
        if flat[0] != self._ring.size or flat[-1] != self._ring.size:
            raise SystemExit(f"wrong sums: {flat}")


def fill(sock, array):
    view = memoryview(array).cast("B")
    while view:
        count = sock.recv_into(view)
        if not count:
            raise SystemExit("the other side is gone")
        view = view[count:]


def serve(listener, hosts):
    """The star: each step's gradients of all hosts, summed, go back to each."""
    sockets = [listener.accept()[0] for _ in range(hosts)]
    for sock in sockets:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for line in sys.stdin:
        told = json.loads(line)
        if told["way"] == "server":
            arrays = [np.empty(told["size"] // 4, np.float32) for _ in range(hosts)]
            for _ in range(told["repeat"]):
                _each(lambda pair: fill(*pair), list(zip(sockets, arrays, strict=True)))
                total = np.sum(arrays, axis=0)
                _each(lambda sock, total=total: sock.sendall(total), sockets)
        print(0.0, flush=True)


def _each(function, items):
    threads = [threading.Thread(target=function, args=(item,), daemon=True) for item in items]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main():
    address, rank, hosts = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if rank == "server":
        listener = socket.create_server((address, 0))
        print(json.dumps(listener.getsockname()), flush=True)
        sys.stdin.readline()
        return serve(listener, hosts)
    place = Place(address, SECRET, "benchmark", int(rank), 0, hosts)
    print(json.dumps(place.address), flush=True)
    *addresses, server = json.loads(sys.stdin.readline())
    ring = rendezvous.connect(place, addresses, host=f"host-{rank}")
    star = socket.create_connection(tuple(server))
    star.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    host = Host(ring, star)
    for line in sys.stdin:
        print(host.block(**json.loads(line)), flush=True)


main()
