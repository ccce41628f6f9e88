"""HTTP servers of this process in the place of a service's."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class StandIn:
    """Serves at `url` while the block runs. `seen`: (method, path, headers, body) of each request."""

    def __init__(self, handler):
        self.seen = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._server.stand_in = self
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._server.shutdown()
        self._server.server_close()


class Handler(BaseHTTPRequestHandler):
    """A request to a `StandIn`; a subclass has do_GET and the like."""

    protocol_version = "HTTP/1.1"

    @property
    def stand_in(self):
        return self.server.stand_in

    def json_body(self):
        """The body, or None; the request has been seen then."""
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = json.loads(data) if data else None
        self.stand_in.seen.append((self.command, self.path, dict(self.headers), body))
        return body

    def log_message(self, *arguments):
        pass
