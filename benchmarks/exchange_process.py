"""A worker of b3.py: exchange_process.py PROTOCOL RANK ADDRESSES, told what to do by lines of JSON.

{"layers", "fit"} makes it ready for a model; {"seconds", "least"} has it commit updates of that size and get the centre
back, for so long and so many times at least, and answer with the seconds of each exchange.
"""

import json
import socket
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
SECRET, RUN = b"of the benchmarks".ljust(32, b"."), "benchmark"


class Ours:
    """Through the client of the parameter server."""

    def __init__(self, rank, addresses):
        from ddl_magics.runtime import parameter_shards

        self._client = parameter_shards.connect(addresses, SECRET, RUN, rank, 1, 120.0)
        self._rank, self._seq = rank, 0

    def prepare(self, layers, fit):
        size = sum(layers)
        initial = np.zeros(size, np.float32) if self._rank == 0 else None
        self._delta, self._fit = np.ones(size, np.float32), fit
        self._centre, self._version = self._client.begin(fit, initial, np.float32, size)

    def exchange(self):
        self._seq += 1
        self._centre, self._version, _ = self._client.commit(self._fit, self._seq, self._delta, self._version, 1)


class Pickled:
    """Through the protocol of exchange_server.py: a commit, and a pull."""

    def __init__(self, rank, addresses):
        self._socket = socket.create_connection(addresses[0])
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rank = rank

    def prepare(self, layers, fit):
        from exchange_server import receive, send

        self._send, self._receive = send, receive
        self._delta = [np.ones(size, np.float32) for size in layers]
        if self._rank == 0:
            self._socket.sendall(b"z")
            send(self._socket, layers)
            receive(self._socket)

    def exchange(self):
        self._socket.sendall(b"c")
        self._send(self._socket, self._delta)
        self._socket.sendall(b"p")
        self._centre = self._receive(self._socket)


def main():
    protocol, rank, addresses = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
    worker = {"ours": Ours, "pickled": Pickled}[protocol](rank, addresses)
    for line in sys.stdin:
        block = json.loads(line)
        if "layers" in block:
            worker.prepare(block["layers"], block["fit"])
            print("null", flush=True)
            continue
        taken, end = [], time.monotonic() + block["seconds"]
        while len(taken) < block["least"] or time.monotonic() < end:
            began = time.monotonic()
            worker.exchange()
            taken.append(time.monotonic() - began)
        print(json.dumps(taken), flush=True)


if __name__ == "__main__":
    main()
