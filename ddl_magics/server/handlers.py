"""The routes. Each reads its arguments, asks the store in a thread, and answers; `openapi.yaml` is the contract."""

from __future__ import annotations

import asyncio
import re
import threading
import zlib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from jupyter_server.auth.decorator import authorized
from jupyter_server.utils import url_path_join
from tornado import web

from ddl_magics import store
from ddl_magics.server import details, eventfile, export, logs
from ddl_magics.server.base import RunHandler, Service
from ddl_magics.server.listing import MOST_ROWS, Page

EVENT_BYTES = 256 * 2**10
MOST_SEQ = 2**53 - 1
_RANK = re.compile(r"all|-1|[0-9]{1,6}")
SPECIFICATION = Path(__file__).parent / "openapi.yaml"


class Runs(RunHandler):
    """All runs, newest first; or what changed since a version."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        limit = self.whole("limit", 50, 1, MOST_ROWS)
        since = self.get_query_argument("since", None)
        if since is not None:
            try:
                page = await asyncio.to_thread(self.service.listing.changes, since, limit)
            except LookupError:
                raise web.HTTPError(410, "this version is not known (any more): ask without since") from None
            if page is None:
                self.set_status(204)
                await self.finish()
            else:
                await self._answer(page)
            return
        cursor, words = self.get_query_argument("cursor", None), self.get_query_argument("q", "")
        live = self.flag("live")
        try:
            page = await asyncio.to_thread(self.service.listing.page, limit, cursor, live, words)
        except ValueError as error:
            raise web.HTTPError(400, str(error)) from None
        await self._answer(page)

    async def _answer(self, page: Page) -> None:
        await self.reply({**asdict(page), "store": str(store.runs_folder())})


class Run(RunHandler):
    """One run: what is known of it, its names, its removal."""

    @web.authenticated
    @authorized
    async def get(self, run: str) -> None:
        await self.reply(await self.details(run))

    @web.authenticated
    @authorized
    async def patch(self, run: str) -> None:
        record = await self.record(run)
        try:
            await asyncio.to_thread(details.rename, record, self.body())
        except details.Refused as error:
            raise web.HTTPError(400, str(error)) from None
        except OSError as error:
            raise await self.unwritten(run, error) from None
        await self.reply(await self.details(run))

    @web.authenticated
    @authorized
    async def delete(self, run: str) -> None:
        entry = await self.entry(run)
        if entry.newer:
            raise web.HTTPError(409, entry.problem)
        folder = store.RunFolder(store.runs_folder() / entry.id)
        try:
            await asyncio.to_thread(folder.discard)
        except store.Taken as error:
            raise web.HTTPError(409, f"{error}: stop it first") from None
        except OSError as error:
            raise await self.unwritten(run, error) from None
        self.set_status(204)
        await self.finish()


class Events(RunHandler):
    """The events of a run after a sequence number."""

    @web.authenticated
    @authorized
    async def get(self, run: str) -> None:
        after, seconds = self.whole("after", 0, 0, MOST_SEQ), self.seconds()
        path = (await self.record(run)).folder / "events.jsonl"
        batch = eventfile.Batch([], 0, False)

        def news() -> bool:
            nonlocal batch
            batch = eventfile.after(path, after, EVENT_BYTES)
            entry = self.service.listing.entry(run)
            return bool(batch.events) or entry is None or not entry.live

        if not await asyncio.to_thread(news):
            await self.wait(news, seconds)
        record = await self.record(run)
        last = batch.events[-1]["seq"] if batch.events else after
        await self.reply(
            {
                "events": batch.events,
                "last": last,
                "more": batch.more,
                "state": record.state,
                "live": not record.over,
                "damaged": batch.skipped,
            }
        )


class View(RunHandler):
    """A run as messages for the view that draws it."""

    @web.authenticated
    @authorized
    async def get(self, run: str) -> None:
        page, number, seconds = self.get_query_argument("page", ""), self.whole("n", 0, 0, MOST_SEQ), self.seconds()
        watching = self.service.watching
        record = await self.record(run)

        def news() -> bool:
            entry = self.service.listing.entry(run)
            return entry is None or entry.record is None or watching.news(entry.record, page, number)

        if not await asyncio.to_thread(news):
            if record.over:
                seconds = 0
            await self.wait(news, seconds)
            record = await self.record(run)
            if not await asyncio.to_thread(news):
                self.set_status(204)
                await self.finish()
                return
        await self.reply(await asyncio.to_thread(watching.look, record, page, number))


class Replay(RunHandler):
    """The workers of a run over its time."""

    @web.authenticated
    @authorized
    async def get(self, run: str) -> None:
        record = await self.record(run)
        await self.reply(await asyncio.to_thread(self.service.watching.replay, record))


class Logs(RunHandler):
    """What a rank printed."""

    @web.authenticated
    @authorized
    async def get(self, run: str, rank: str) -> None:
        if not _RANK.fullmatch(rank):
            raise web.HTTPError(404, "there is no such rank")
        offset, tail = self.whole("offset", 0, 0, MOST_SEQ), self.flag("tail")
        before = self.whole("before", MOST_SEQ, 0, MOST_SEQ)
        path = (await self.record(run)).folder / "events.jsonl"
        which = None if rank == "all" else int(rank)
        await self.reply(await asyncio.to_thread(logs.lines, path, which, offset, tail, before))


class Stop(RunHandler):
    """Ends a run after its current step."""

    @web.authenticated
    @authorized
    async def post(self, run: str) -> None:
        try:
            report = await self.service.stopping.stop(await self.record(run))
        except OSError as error:
            raise await self.unwritten(run, error) from None
        await self.reply(report)


class Export(RunHandler):
    """A run as a file."""

    @web.authenticated
    @authorized
    async def get(self, run: str) -> None:
        form = self.get_query_argument("format", "json")
        if form not in export.TYPES:
            raise web.HTTPError(400, f"format is one of {', '.join(export.TYPES)}")
        record, detail = await self.record(run), await self.details(run)
        if detail["size"] > export.MOST_BYTES:
            raise web.HTTPError(413, "the run is too long for this: it is events.jsonl in the folder of the store")
        self.set_header("Content-Disposition", f'attachment; filename="{record.id}.{form}"')
        if self.compresses:
            self.set_header("Content-Encoding", "gzip")
        self.set_header("Vary", "Accept-Encoding")
        self.set_header("Content-Type", f"{export.TYPES[form]}; charset=UTF-8")
        pieces = _compressed(export.pieces(form, record, detail), self.compresses)
        while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            if self._left:
                return
            if piece:  # an empty chunk would be the last one
                self.write(piece)
                await self.flush()
        await self.finish(set_content_type=f"{export.TYPES[form]}; charset=UTF-8")


class Specification(RunHandler):
    """The OpenAPI document of these routes."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        await self.reply(SPECIFICATION.read_text(encoding="utf-8"), "application/yaml")


ROUTES: tuple[tuple[str, type[RunHandler]], ...] = (
    (r"runs", Runs),
    (r"runs/([^/]+)", Run),
    (r"runs/([^/]+)/events", Events),
    (r"runs/([^/]+)/view", View),
    (r"runs/([^/]+)/replay", Replay),
    (r"runs/([^/]+)/logs/([^/]+)", Logs),
    (r"runs/([^/]+)/stop", Stop),
    (r"runs/([^/]+)/export", Export),
    (r"openapi\.yaml", Specification),
)


def install(app: web.Application) -> Service:
    """Add the routes below `base_url`/ddl_magics."""
    service = Service()
    base = app.settings["base_url"]
    app.add_handlers(
        ".*$",
        [(url_path_join(base, "ddl_magics", path), handler, {"service": service}) for path, handler in ROUTES],
    )
    # A store of many runs is read once: before the first panel asks for it, which comes with the first page.
    threading.Thread(target=service.listing.page, name="ddl_magics list", daemon=True).start()
    return service


def _compressed(pieces: Iterator[str], compress: bool) -> Iterator[bytes]:
    if not compress:
        yield from (piece.encode() for piece in pieces)
        return
    packer = zlib.compressobj(5, wbits=16 + zlib.MAX_WBITS)
    yield from (packer.compress(piece.encode()) for piece in pieces)
    yield packer.flush()
