"""The base class of all handlers: authorization, encoding of answers, validation of arguments."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from tornado import web

from ddl_magics.server.details import details
from ddl_magics.server.listing import Entry, Listing
from ddl_magics.server.search_views import SearchViews
from ddl_magics.server.stopping import StopService
from ddl_magics.server.view_service import ViewService
from ddl_magics.store import RunFolder, RunInUse, RunRecord, SearchFolder, SearchRecord

#: Longest time that a request may wait for an update, interval of its checks, and number of requests that may wait.
MAX_WAIT_SECONDS = 30.0
CHECK_SECONDS = 0.5
MAX_WAITING = 64
#: Smaller answers are not compressed.
COMPRESS_BYTES = 1000
MAX_BODY_BYTES = 16 * 2**10

_GZIP_MAGIC = b"\x1f\x8b"


@dataclass
class Service:
    """State shared by the handlers of one server."""

    listing: Listing = field(default_factory=Listing)
    views: ViewService = field(default_factory=ViewService)
    searches: SearchViews = field(default_factory=SearchViews)
    stops: StopService = field(default_factory=StopService)
    waiting: int = 0


class BaseHandler(APIHandler):
    """Base class of the handlers, all of whose methods need a login and the authorizer's consent."""

    auth_resource = "ddl_magics"

    def __init_subclass__(cls) -> None:
        for verb in map(str.lower, cls.SUPPORTED_METHODS):
            if verb in vars(cls):
                setattr(cls, verb, web.authenticated(authorized(vars(cls)[verb])))

    def initialize(self, service: Service) -> None:
        self.service = service
        self._disconnected = False
        # Polling is no activity: an idle server may be culled while a page is open.
        self._track_activity = self.request.method != "GET"

    def on_connection_close(self) -> None:
        self._disconnected = True
        super().on_connection_close()

    async def reply(self, value: Any, content_type: str = "application/json") -> None:
        """Send a JSON value, or a text as it is; compressed if the client accepts it. None: status 204, no content."""
        if value is None:
            self.set_status(204)
            await self.finish()
            return
        self.set_header("Vary", "Accept-Encoding")
        body = await asyncio.to_thread(_encode, value, self.accepts_gzip)
        if body.startswith(_GZIP_MAGIC):
            self.set_header("Content-Encoding", "gzip")
        await self.finish(body, set_content_type=content_type)

    @property
    def accepts_gzip(self) -> bool:
        return "gzip" in self.request.headers.get("Accept-Encoding", "")

    async def entry(self, run: str) -> Entry:
        """The run, readable or not. Raises 404 if there is none."""
        entry = await asyncio.to_thread(self.service.listing.entry, run)
        if entry is None:
            raise web.HTTPError(404, "there is no such run")
        return entry

    async def record(self, run: str) -> RunRecord:
        """The run. Raises 404 if there is none, 409 if it cannot be read."""
        entry = await self.entry(run)
        if entry.record is None:
            raise web.HTTPError(409, entry.problem)
        return entry.record

    async def search(self, search: str) -> SearchRecord:
        """The search. Raises 404 if there is none, or none that can be read."""
        record = await asyncio.to_thread(self.service.listing.search, search)
        if record is None:
            raise web.HTTPError(404, "there is no such search")
        return record

    async def discard(self, folder: RunFolder | SearchFolder) -> None:
        """Remove a run or a search, and answer. Raises 409 if it has not ended, and OSError."""
        try:
            await asyncio.to_thread(folder.discard)
        except RunInUse as error:
            raise web.HTTPError(409, f"{error}: stop it first") from None
        await self.reply(None)

    @contextlib.asynccontextmanager
    async def changing_store(self, run: str | None = None) -> AsyncIterator[None]:
        """Answer a change that fails: with 404 if the run was deleted meanwhile, else 409. run: that is changed."""
        try:
            yield
        except OSError as error:
            if run is not None:
                await self.entry(run)
            raise web.HTTPError(409, f"the store cannot be changed: {error.strerror or error}") from None

    async def details(self, run: str) -> dict[str, Any]:
        """`RunDetails` or `UnreadableRun` of `openapi.yaml`."""
        entry = await self.entry(run)
        row = await asyncio.to_thread(self.service.listing.row, entry)
        if entry.record is None:
            return row
        stored_details = await asyncio.to_thread(details, entry.record)
        return {**row, **stored_details, "stop": self.service.stops.result(entry.record)}

    async def wait_until(self, condition: Callable[[], bool], seconds: float) -> None:
        """Return when `condition`, which is called in a thread, holds, or after `seconds`."""
        deadline = time.monotonic() + (seconds if self.service.waiting < MAX_WAITING else 0)
        self.service.waiting += 1
        try:
            while not self._disconnected and time.monotonic() < deadline and not await asyncio.to_thread(condition):
                await asyncio.sleep(CHECK_SECONDS)
        finally:
            self.service.waiting -= 1

    def integer_argument(self, name: str, default: int, minimum: int, maximum: int) -> int:
        """An integer of the query. Raises 400 if it is none or out of bounds."""
        text = self.get_query_argument(name, str(default))
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal() and len(digits) < 20 and minimum <= int(text) <= maximum):
            raise web.HTTPError(400, f"{name} must be an integer from {minimum} to {maximum}")
        return int(text)

    def wait_argument(self) -> float:
        """The seconds that the client is willing to wait for an update."""
        return float(self.integer_argument("wait", 0, 0, int(MAX_WAIT_SECONDS)))

    def boolean_argument(self, name: str) -> bool:
        """A boolean of the query, by default false. Raises 400 if it is none."""
        text = self.get_query_argument(name, "false")
        if text not in ("true", "false"):
            raise web.HTTPError(400, f"{name} must be true or false")
        return text == "true"

    def json_body(self) -> dict[str, Any]:
        """The JSON object in the body of the request. Raises 400 if there is none, 413 if it is too large."""
        if len(self.request.body) > MAX_BODY_BYTES:
            raise web.HTTPError(413, f"the body is larger than {MAX_BODY_BYTES} bytes")
        try:
            value = json.loads(self.request.body)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise web.HTTPError(400, "the body must be a JSON object")
        return value


def _encode(value: Any, compress: bool) -> bytes:
    body = (value if isinstance(value, str) else _json(value)).encode(errors="replace")
    return gzip.compress(body, 5) if compress and len(body) > COMPRESS_BYTES else body


def _json(value: Any) -> str:
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except ValueError:
        # JSON has no NaN and no infinity: they are sent as null.
        finite = json.loads(json.dumps(value), parse_constant=lambda _: None)
        return json.dumps(finite, separators=(",", ":"))


@contextlib.contextmanager
def answered(status: int, kind: type[Exception], message: str = "") -> Iterator[None]:
    """Answer an error of this kind with the status, and with its message unless another one is passed."""
    try:
        yield
    except kind as error:
        raise web.HTTPError(status, message or str(error)) from None
