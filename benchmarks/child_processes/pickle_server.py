"""The parameter server that parameter_server.py compares with: the protocol of dist-keras, from its description.

    python -m benchmarks.child_processes.pickle_server

It answers {"port": p} and serves until its standard input ends. A request is one byte: p (pull) or c (commit). What
follows a commit and what answers a pull is a length in 20 digits and a pickled list of arrays. Each connection has a
thread; commits are not acknowledged. The request z is the benchmark's own: it sets the layers anew.
"""

from __future__ import annotations

import json
import pickle
import socket
import sys
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

PULL, COMMIT, RESET = b"p", b"c", b"z"
LENGTH_DIGITS = 20


def send(sock: socket.socket, value: object) -> None:
    """Send a length in digits, then the pickle."""
    payload = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    sock.sendall(b"%0*d" % (LENGTH_DIGITS, len(payload)))
    sock.sendall(payload)


def receive(sock: socket.socket) -> Any:
    """Receive what `send` has sent. ConnectionError if the connection ends before."""
    return pickle.loads(_exactly(sock, int(_exactly(sock, LENGTH_DIGITS))))


def _exactly(sock: socket.socket, length: int) -> bytearray:
    buffer = bytearray(length)
    view = memoryview(buffer)
    while view:
        count = sock.recv_into(view)
        if not count:
            raise ConnectionError("closed")
        view = view[count:]
    return buffer


class Server:
    """The centre as a list of layers, and a thread for each worker."""

    def __init__(self) -> None:
        self._centre: list[npt.NDArray[np.float32]] = []
        self._lock = threading.Lock()
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._socket.getsockname()[1]

    def run(self) -> None:
        while True:
            sock, _ = self._socket.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        while request := sock.recv(1):
            if request == PULL:
                with self._lock:
                    layers = [layer.copy() for layer in self._centre]
                send(sock, layers)
            elif request == COMMIT:
                delta = receive(sock)
                with self._lock:
                    for layer, change in zip(self._centre, delta, strict=True):
                        layer += change
            else:
                with self._lock:
                    self._centre = [np.zeros(size, np.float32) for size in receive(sock)]
                send(sock, None)


if __name__ == "__main__":
    server = Server()
    print(json.dumps({"port": server.port}), flush=True)
    threading.Thread(target=server.run, daemon=True).start()
    sys.stdin.read()
