"""The routes. A handler validates its arguments, reads the store in a thread and answers as `openapi.yaml` says."""

from __future__ import annotations

import asyncio
import re
import threading
import zlib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jupyter_server.utils import url_path_join
from tornado import web

from ddl_magics import store
from ddl_magics.errors import CannotServe
from ddl_magics.runs import ending
from ddl_magics.runtime import events as ev
from ddl_magics.server import details, download, eventfile, logs, served
from ddl_magics.server.base import BaseHandler, Service, answered
from ddl_magics.server.listing import MAX_PAGE_SIZE, Page
from ddl_magics.serving.servers import find_served
from ddl_magics.store.labels import InvalidLabels

#: Bytes of events in one answer.
EVENT_BYTES = 256 * 2**10
#: Of a file that is sent.
FILE_CHUNK_BYTES = 2**20
#: The largest integer that JavaScript represents exactly.
MAX_INTEGER = 2**53 - 1
SPECIFICATION = Path(__file__).parent / "openapi.yaml"

_RANK = re.compile(r"all|-1|[0-9]{1,6}")


class RunsHandler(BaseHandler):
    """Lists all runs, or those that changed since a version."""

    async def get(self) -> None:
        limit = self.integer_argument("limit", 50, 1, MAX_PAGE_SIZE)
        since = self.get_query_argument("since", None)
        page: Page | None
        if since is not None:
            with answered(410, LookupError, "this version is not known any more: ask without since"):
                page = await asyncio.to_thread(self.service.listing.changes, since, limit)
        else:
            cursor, words = self.get_query_argument("cursor", None), self.get_query_argument("q", "")
            live = self.boolean_argument("live")
            with answered(400, ValueError):
                page = await asyncio.to_thread(self.service.listing.page, limit, cursor, live, words)
        await self.reply(page and {**asdict(page), "store": str(store.runs_folder())})


class MatchesHandler(BaseHandler):
    """Names the runs and searches that match a query."""

    async def get(self) -> None:
        words = self.get_query_argument("q", "")
        with answered(400, ValueError):
            ids = await asyncio.to_thread(self.service.listing.matching, words)
        await self.reply({"ids": ids})


class RunHandler(BaseHandler):
    """Reads, renames and deletes one run."""

    async def get(self, run: str) -> None:
        await self.reply(await self.details(run))

    async def patch(self, run: str) -> None:
        record = await self.record(run)
        async with self.changing_store(run):
            with answered(400, InvalidLabels):
                await asyncio.to_thread(details.update, record, self.json_body())
        await self.reply(await self.details(run))

    async def delete(self, run: str) -> None:
        entry = await self.entry(run)
        if entry.newer:
            raise web.HTTPError(409, entry.problem)
        async with self.changing_store(run):
            await self.discard(store.RunFolder(store.runs_folder() / entry.id))


class EventsHandler(BaseHandler):
    """Reads the events of a run after a sequence number."""

    async def get(self, run: str) -> None:
        after, seconds = self.integer_argument("after", 0, 0, MAX_INTEGER), self.wait_argument()
        path = (await self.record(run)).folder / "events.jsonl"
        batch = eventfile.Batch([], 0, False)
        record: store.RunRecord | None = None

        def has_updates() -> bool:
            nonlocal batch, record
            entry = self.service.listing.entry(run)  # before the events: who reads that it has ended gets all of them
            record = None if entry is None else entry.record
            batch = eventfile.read_after(path, after, EVENT_BYTES)
            return bool(batch.events) or entry is None or not entry.live

        if not await asyncio.to_thread(has_updates):
            await self.wait_until(has_updates, seconds)
        if record is None:
            record = await self.record(run)
        last_seq = ev.parse(batch.events[-1]).seq if batch.events else after
        await self.reply(
            {
                "events": batch.events,
                "last": last_seq,
                "more": batch.has_more,
                "state": record.state,
                "live": not record.over,
                "damaged": batch.skipped,
            }
        )


class ViewHandler(BaseHandler):
    """Reads a run as messages for the view that draws it."""

    async def get(self, run: str) -> None:
        page, number = self.get_query_argument("page", ""), self.integer_argument("n", 0, 0, MAX_INTEGER)
        seconds = self.wait_argument()
        views = self.service.views
        record = await self.record(run)

        def has_updates() -> bool:
            entry = self.service.listing.entry(run)
            return entry is None or entry.record is None or views.has_updates(entry.record, page, number)

        if not await asyncio.to_thread(has_updates):
            if record.over:
                seconds = 0
            await self.wait_until(has_updates, seconds)
            record = await self.record(run)
            if not await asyncio.to_thread(has_updates):
                await self.reply(None)
                return
        await self.reply(await asyncio.to_thread(views.update, record, page, number))


class ReplayHandler(BaseHandler):
    """Reads the workers' table over the course of a run."""

    async def get(self, run: str) -> None:
        record = await self.record(run)
        await self.reply(await asyncio.to_thread(self.service.views.replay, record))


class BlockHandler(BaseHandler):
    """Reads what a saved notebook keeps of a run."""

    async def get(self, run: str) -> None:
        record = await self.record(run)
        await self.reply(await asyncio.to_thread(self.service.views.block, record))


class LogsHandler(BaseHandler):
    """Reads what a rank printed."""

    async def get(self, run: str, rank: str) -> None:
        if not _RANK.fullmatch(rank):
            raise web.HTTPError(404, "there is no such rank")
        offset, tail = self.integer_argument("offset", 0, 0, MAX_INTEGER), self.boolean_argument("tail")
        limit = self.integer_argument("before", MAX_INTEGER, 0, MAX_INTEGER)
        before = None if limit == MAX_INTEGER else limit
        path = (await self.record(run)).folder / "events.jsonl"
        rank_number = None if rank == "all" else int(rank)
        await self.reply(await asyncio.to_thread(logs.page, path, rank_number, offset, tail, before))


class StopHandler(BaseHandler):
    """Stops a run after its current step."""

    async def post(self, run: str) -> None:
        async with self.changing_store(run):
            result = await self.service.stops.stop(await self.record(run))
        await self.reply(result)


class SearchHandler(BaseHandler):
    """Deletes one search."""

    async def delete(self, search: str) -> None:
        record = await self.search(search)
        async with self.changing_store():
            await self.discard(store.SearchFolder(record.folder))


class SearchViewHandler(BaseHandler):
    """Reads a search as messages for the view that draws it."""

    async def get(self, search: str) -> None:
        version, seconds = self.get_query_argument("version", ""), self.wait_argument()
        record = await self.search(search)
        answer = await self._update(record, version)
        if answer is None and not record.over:
            await self.wait_until(lambda: self._has_update(search, version), seconds)
            answer = await self._update(await self.search(search), version)
        await self.reply(answer)

    async def _update(self, record: store.SearchRecord, version: str) -> dict[str, Any] | None:
        with answered(409, LookupError):
            return await asyncio.to_thread(self.service.searches.update, record, version)

    def _has_update(self, search: str, version: str) -> bool:
        record = self.service.listing.search(search)
        try:
            return record is None or self.service.searches.update(record, version) is not None
        except LookupError:
            return True


class SearchBlockHandler(BaseHandler):
    """Reads what a saved notebook keeps of a search."""

    async def get(self, search: str) -> None:
        record = await self.search(search)
        with answered(409, LookupError):
            await self.reply(await asyncio.to_thread(self.service.searches.block, record))


class SearchStopHandler(BaseHandler):
    """Ends a search: no further trial is started, and those that run end after their current step."""

    async def post(self, search: str) -> None:
        record = await self.search(search)
        async with self.changing_store():
            answer = await asyncio.to_thread(ending.ask_stored_search, record)
        await self.reply(answer.to_record())


class ServersHandler(BaseHandler):
    """Lists the served models."""

    async def get(self) -> None:
        await self.reply({"servers": await asyncio.to_thread(served.servers)})


class ServerStopHandler(BaseHandler):
    """Ends a served model."""

    async def post(self, server: str) -> None:
        with answered(404, CannotServe):
            served_model = await asyncio.to_thread(find_served, server)
        with answered(409, CannotServe):
            message = await asyncio.to_thread(served_model.stop)
        await self.reply({"message": message})


class ExportHandler(BaseHandler):
    """Sends a run as a file, chunk by chunk."""

    async def get(self, run: str) -> None:
        format_ = self.get_query_argument("format", "json")
        if format_ not in download.CONTENT_TYPES:
            raise web.HTTPError(400, f"format must be one of {', '.join(download.CONTENT_TYPES)}")
        record, run_details = await self.record(run), await self.details(run)
        if run_details["size"] > download.MAX_BYTES:
            raise web.HTTPError(413, "the run is too large to export: copy events.jsonl from its folder in the store")
        content_type = f"{download.CONTENT_TYPES[format_]}; charset=UTF-8"
        self.set_header("Content-Disposition", f'attachment; filename="{record.id}.{format_}"')
        if self.accepts_gzip:
            self.set_header("Content-Encoding", "gzip")
        self.set_header("Vary", "Accept-Encoding")
        self.set_header("Content-Type", content_type)
        chunks = _encoded(download.chunks(format_, record, run_details), self.accepts_gzip)
        while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
            if self._disconnected:
                return
            if chunk:  # an empty chunk would end the answer
                self.write(chunk)
                await self.flush()
        await self.finish(set_content_type=content_type)


class FileHandler(BaseHandler):
    """Sends a file of a run, such as its trained model, chunk by chunk."""

    async def get(self, run: str, file: str) -> None:
        path = await asyncio.to_thread(details.file_path, await self.record(run), file)
        if path is None:
            raise web.HTTPError(404, "the run has no such file")
        content_type = "application/octet-stream"
        self.set_header("Content-Type", content_type)
        self.set_header("Content-Disposition", f"attachment; filename*=UTF-8''{quote(path.name)}")
        with await asyncio.to_thread(open, path, "rb") as content:
            while chunk := await asyncio.to_thread(content.read, FILE_CHUNK_BYTES):
                if self._disconnected:
                    return
                self.write(chunk)
                await self.flush()
        await self.finish(set_content_type=content_type)


class SpecificationHandler(BaseHandler):
    """Sends the OpenAPI document of these routes."""

    async def get(self) -> None:
        await self.reply(SPECIFICATION.read_text(encoding="utf-8"), "application/yaml")


ROUTES: tuple[tuple[str, type[BaseHandler]], ...] = (
    (r"runs", RunsHandler),
    (r"matches", MatchesHandler),
    (r"runs/([^/]+)", RunHandler),
    (r"runs/([^/]+)/events", EventsHandler),
    (r"runs/([^/]+)/view", ViewHandler),
    (r"runs/([^/]+)/replay", ReplayHandler),
    (r"runs/([^/]+)/block", BlockHandler),
    (r"runs/([^/]+)/logs/([^/]+)", LogsHandler),
    (r"runs/([^/]+)/stop", StopHandler),
    (r"runs/([^/]+)/export", ExportHandler),
    (r"runs/([^/]+)/files/([^/]+)", FileHandler),
    (r"searches/([^/]+)", SearchHandler),
    (r"searches/([^/]+)/view", SearchViewHandler),
    (r"searches/([^/]+)/block", SearchBlockHandler),
    (r"searches/([^/]+)/stop", SearchStopHandler),
    (r"servers", ServersHandler),
    (r"servers/([^/]+)/stop", ServerStopHandler),
    (r"openapi\.yaml", SpecificationHandler),
)


def install(app: web.Application) -> Service:
    """Add the routes below `base_url`/ddl_magics."""
    service = Service()
    base = app.settings["base_url"]
    app.add_handlers(
        ".*$",
        [(url_path_join(base, "ddl_magics", path), handler, {"service": service}) for path, handler in ROUTES],
    )
    # Reading a store of many runs takes a while: begin before the first panel asks for it.
    threading.Thread(target=service.listing.page, name="ddl_magics list", daemon=True).start()
    return service


def _encoded(chunks: Iterator[str], compress: bool) -> Iterator[bytes]:
    if not compress:
        yield from (chunk.encode(errors="replace") for chunk in chunks)
        return
    compressor = zlib.compressobj(5, wbits=16 + zlib.MAX_WBITS)
    yield from (compressor.compress(chunk.encode(errors="replace")) for chunk in chunks)
    yield compressor.flush()
