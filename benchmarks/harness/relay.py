"""A TCP relay that counts the bytes in both directions and the HTTP requests among them."""

from __future__ import annotations

import re
import socket
import threading
import time
from typing import NamedTuple
from urllib.parse import urlsplit

_REQUEST = re.compile(rb"^([A-Z]+ \S+) HTTP/1\.1\r$", re.MULTILINE)
_BLOCK_BYTES = 2**16


class Passed(NamedTuple):
    """One block of bytes.

    Attributes:
        time: when it was relayed (time.time).
        up: its bytes if it went to the server, else 0.
        down: its bytes if it came from the server, else 0.
        requests: the HTTP requests that begin in it ("GET /version").
    """

    time: float
    up: int
    down: int
    requests: list[str]


class Relay:
    """A context manager: relays connections to `url` to the HTTP server at the URL `upstream`."""

    def __init__(self, upstream: str) -> None:
        parts = urlsplit(upstream)
        self._upstream = (parts.hostname or "", parts.port or 80)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = [self._listener]
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.passed: list[Passed] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def between(self, begin: float, end: float) -> list[Passed]:
        """The blocks that were relayed between two times."""
        return [block for block in self.passed if begin <= block.time < end]

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._open:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the peer has closed it
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self._listener.accept()
                there = socket.create_connection(self._upstream)
            except OSError:
                return  # the relay is closed, or the server is gone
            self._open += [here, there]
            for one, other, up in ((here, there, True), (there, here, False)):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._pass, args=(one, other, up), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, up: bool) -> None:
        try:
            while block := source.recv(_BLOCK_BYTES):
                requests = [line.decode() for line in _REQUEST.findall(block)] if up else []
                size = len(block)
                self.passed.append(Passed(time.time(), size if up else 0, 0 if up else size, requests))
                target.sendall(block)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # one connection broke; the other is closed with the relay
