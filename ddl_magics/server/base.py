"""What all our handlers have in common: who may ask, what an answer looks like, how arguments are read."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from jupyter_server.base.handlers import APIHandler
from tornado import web

from ddl_magics.server.details import details
from ddl_magics.server.listing import Entry, Listing
from ddl_magics.server.stopping import Stopping
from ddl_magics.server.watching import Watching
from ddl_magics.store import RunRecord

#: The longest that a request may wait for news, how often it looks, and how many may wait at once.
WAIT_SECONDS = 30.0
LOOK_SECONDS = 0.5
MOST_WAITING = 64
#: Answers below this size are not compressed.
COMPRESS_BYTES = 1000
BODY_BYTES = 16 * 2**10

#: How a compressed answer begins, and none that is not.
_GZIP = b"\x1f\x8b"


@dataclass
class Service:
    """What one server knows of runs."""

    listing: Listing = field(default_factory=Listing)
    watching: Watching = field(default_factory=Watching)
    stopping: Stopping = field(default_factory=Stopping)
    waiting: int = 0


class RunHandler(APIHandler):
    """A handler of ours. Methods are to be decorated with `web.authenticated` and `authorized`."""

    auth_resource = "ddl_magics"

    def initialize(self, service: Service) -> None:
        self.service = service
        self._left = False
        # A page that polls is nobody who works: the server may be culled.
        self._track_activity = self.request.method != "GET"

    def on_connection_close(self) -> None:
        self._left = True
        super().on_connection_close()

    async def reply(self, value: Any, kind: str = "application/json") -> None:
        """Answer with a value as JSON, or with a text; compressed where the client takes it."""
        self.set_header("Vary", "Accept-Encoding")
        body = await asyncio.to_thread(_packed, value, self.compresses)
        if body.startswith(_GZIP):
            self.set_header("Content-Encoding", "gzip")
        await self.finish(body, set_content_type=kind)

    @property
    def compresses(self) -> bool:
        return "gzip" in self.request.headers.get("Accept-Encoding", "")

    async def entry(self, run: str) -> Entry:
        """The run, readable or not; 404 where there is none."""
        entry = await asyncio.to_thread(self.service.listing.entry, run)
        if entry is None:
            raise web.HTTPError(404, "there is no such run")
        return entry

    async def record(self, run: str) -> RunRecord:
        """The run; 409 where it cannot be read."""
        entry = await self.entry(run)
        if entry.record is None:
            raise web.HTTPError(409, entry.problem)
        return entry.record

    async def unwritten(self, run: str, error: OSError) -> web.HTTPError:
        """Why a change failed: somebody else has removed the run meanwhile, or the store takes none."""
        await self.entry(run)
        return web.HTTPError(409, f"the store cannot be changed: {error.strerror or error}")

    async def details(self, run: str) -> dict[str, Any]:
        """All of the run but its events: `RunDetails` in `openapi.yaml`, or `UnreadableRun`."""
        entry = await self.entry(run)
        row = await asyncio.to_thread(self.service.listing.row, entry)
        if entry.record is None:
            return row
        more = await asyncio.to_thread(details, entry.record)
        return {**row, **more, "stop": self.service.stopping.report(entry.record)}

    async def wait(self, news: Callable[[], bool], seconds: float) -> None:
        """Return when there is news, which is looked for in a thread, or when the time is over."""
        deadline = time.monotonic() + (seconds if self.service.waiting < MOST_WAITING else 0)
        self.service.waiting += 1
        try:
            while not self._left and time.monotonic() < deadline and not await asyncio.to_thread(news):
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            self.service.waiting -= 1

    def whole(self, name: str, default: int, least: int, most: int) -> int:
        """A whole number of the query; 400 where it is none, or out of its bounds."""
        given = self.get_query_argument(name, str(default))
        digits = given.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal() and len(digits) < 20 and least <= int(given) <= most):
            raise web.HTTPError(400, f"{name} is a whole number from {least} to {most}")
        return int(given)

    def seconds(self) -> float:
        """How long the client would wait for news."""
        return float(self.whole("wait", 0, 0, int(WAIT_SECONDS)))

    def flag(self, name: str) -> bool:
        given = self.get_query_argument(name, "false")
        if given not in ("true", "false"):
            raise web.HTTPError(400, f"{name} is true or false")
        return given == "true"

    def body(self) -> dict[str, Any]:
        """The JSON object of the request."""
        if len(self.request.body) > BODY_BYTES:
            raise web.HTTPError(413, "the body is too long")
        try:
            value = json.loads(self.request.body)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise web.HTTPError(400, "the body is a JSON object")
        return value


def _packed(value: Any, compress: bool) -> bytes:
    body = (value if isinstance(value, str) else _json(value)).encode()
    return gzip.compress(body, 5) if compress and len(body) > COMPRESS_BYTES else body


def _json(value: Any) -> str:
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except ValueError:
        # What is not finite is not JSON, and unknown to who draws it.
        plain = json.loads(json.dumps(value), parse_constant=lambda _: None)
        return json.dumps(plain, separators=(",", ":"))
