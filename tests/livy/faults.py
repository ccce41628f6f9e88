"""A proxy in front of a Livy that fails on command: the errors, delays and lost answers of a real network.

with faults(livy) as proxy:
    proxy.plan(Status(503), Cut(after=True), path=r"POST .*/statements")   # the next two statements
    proxy.sometimes(0.2, Status(503), Cut(), seed=1)                        # a fifth of everything else
    proxy.always(Cut())                                                     # an outage; always(None) ends it
"""

from __future__ import annotations

import http.client
import random
import re
import socket
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

UPSTREAM_SECONDS = 120
#: Headers that hold for one connection only, and the length, which the proxy says itself.
OF_ONE_CONNECTION = {"connection", "keep-alive", "transfer-encoding", "content-length", "date", "server"}


@dataclass(frozen=True)
class Status:
    """Answer with this code at once; Livy hears nothing. With `retry_after` (s), say so in the header."""

    code: int
    retry_after: int | None = None


@dataclass(frozen=True)
class Delay:
    """Forward after so many seconds."""

    seconds: float


@dataclass(frozen=True)
class Cut:
    """Close the connection without an answer: before Livy hears of the request, or `after` it has done it."""

    after: bool = False


@dataclass(frozen=True)
class Truncate:
    """Let Livy answer, announce its whole length, and close after this share of the body."""

    share: float = 0.5


Fault = Status | Delay | Cut | Truncate


@dataclass(frozen=True)
class Seen:
    """A request that came, when (time.monotonic) and what was done to it."""

    time: float
    method: str
    path: str
    fault: Fault | None


class Faults:
    """The running proxy; `url` stands for Livy's. All methods may be called at any time."""

    def __init__(self, upstream: str, without: str = ""):
        self.upstream = urlsplit(upstream)
        self.without = without
        self.requests: list[Seen] = []
        self._lock = threading.Lock()
        self.clear()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._server.faults = self
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def plan(self, *faults: Fault | None, path: str = "") -> None:
        """The next requests whose "METHOD /path" matches get these, one each; None lets one pass."""
        with self._lock:
            self._planned += [(re.compile(path), fault) for fault in faults]

    def sometimes(self, share: float, *faults: Fault, seed: int) -> None:
        """This share of the requests gets one of these, the same ones for the same seed and order of requests."""
        with self._lock:
            self._share, self._choices, self._random = share, faults, random.Random(seed)

    def always(self, fault: Fault | None) -> None:
        """Every request gets this, but planned ones; None ends it."""
        with self._lock:
            self._always = fault

    def clear(self) -> None:
        """No more faults."""
        with self._lock:
            self._planned, self._always = [], None
            self._share, self._choices, self._random = 0.0, (), random.Random(0)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Faults:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def next(self, method: str, path: str) -> Fault | None:
        """What the request gets; it is noted in `requests`."""
        with self._lock:
            fault = self._choose(f"{method} {path}")
            self.requests.append(Seen(time.monotonic(), method, path, fault))
            return fault

    def _choose(self, request: str) -> Fault | None:
        for index, (pattern, fault) in enumerate(self._planned):
            if pattern.search(request):
                del self._planned[index]
                return fault
        if self._always is not None:
            return self._always
        if self._share and self._random.random() < self._share:
            return self._random.choice(self._choices)
        return None


def faults(livy, without: str = "") -> Faults:
    """A fault proxy in front of `livy`: anything with a plain http `url`. `without`: a header that answers lose."""
    return Faults(livy.url, without)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are kept, as Livy's are
    disable_nagle_algorithm = True

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.server.faults.next(self.command, self.path)
        if isinstance(fault, Status):
            return self._say(fault.code, {"Retry-After": fault.retry_after} if fault.retry_after else {}, b"")
        if isinstance(fault, Delay):
            time.sleep(fault.seconds)
        if fault == Cut():
            return self._hang_up()
        try:
            status, headers, reply = self._forward(body)
        except OSError:
            return self._say(502, {}, b"")  # as a gateway whose Livy is gone
        if fault == Cut(after=True):
            return self._hang_up()
        self._say(status, headers, reply, fault.share if isinstance(fault, Truncate) else 1.0)

    do_GET = do_POST = do_DELETE = do_PUT = do_HEAD = answer

    def _forward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        upstream = self.server.faults.upstream
        connection = http.client.HTTPConnection(upstream.hostname, upstream.port, timeout=UPSTREAM_SECONDS)
        try:
            headers = {key: value for key, value in self.headers.items() if key.lower() not in OF_ONE_CONNECTION}
            connection.request(self.command, upstream.path + self.path, body, headers)
            reply = connection.getresponse()
            return reply.status, dict(reply.getheaders()), reply.read()
        finally:
            connection.close()

    def _say(self, status: int, headers: dict, body: bytes, share: float = 1.0) -> None:
        self.send_response(status)
        for key, value in headers.items():
            if key.lower() not in OF_ONE_CONNECTION and key.lower() != self.server.faults.without:
                self.send_header(key, str(value))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: int(len(body) * share)])
        if share < 1.0:
            self._hang_up()

    def _hang_up(self) -> None:
        self.close_connection = True
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: the tests read `Faults.requests`."""
