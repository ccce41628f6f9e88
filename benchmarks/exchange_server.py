"""The server that b3.py compares with: exchange_server.py, told one JSON line {"sizes"} (elements of each layer).

A protocol as dist-keras has it, made from its description: a request of one byte, p (pull) or c (commit); what follows
a commit and answers a pull is a length in 20 digits and a pickle of a list of arrays. A thread for each connection, no
acknowledgement of commits. The request z, which is the benchmark's own, sets the layers anew.
"""

import json
import pickle
import socket
import sys
import threading

import numpy as np

LENGTH_DIGITS = 20


def send(sock, value):
    """A length in digits, then the pickle."""
    payload = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    sock.sendall(b"%0*d" % (LENGTH_DIGITS, len(payload)))
    sock.sendall(payload)


def receive(sock):
    """What `send` has sent."""
    return pickle.loads(_exactly(sock, int(_exactly(sock, LENGTH_DIGITS))))


def _exactly(sock, length):
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

    def __init__(self):
        self._centre, self._lock = [], threading.Lock()
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._socket.getsockname()[1]

    def run(self):
        while True:
            sock, _ = self._socket.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock):
        while request := sock.recv(1):
            if request == b"p":
                with self._lock:
                    layers = [layer.copy() for layer in self._centre]
                send(sock, layers)
            elif request == b"c":
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
