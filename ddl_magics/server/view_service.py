"""Runs as messages for the pages that draw them: the same messages as the live view's widget gets.

The history of a run stays in memory while pages show it. A long run without a snapshot is read in parts: each request
reads for a limited time, so that a page can draw the first part early and gets the rest as updates.
"""

from __future__ import annotations

import base64
import secrets
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from ddl_magics.dashboard.messages import Packer
from ddl_magics.dashboard.static import bundle_of
from ddl_magics.server import report
from ddl_magics.server.run_reader import CATCH_UP_SECONDS, READ_SECONDS, RunReader
from ddl_magics.store import RunRecord

#: Numbers of runs and of pages that are kept in memory. A page that was dropped gets a full message again.
MAX_READERS = 16
MAX_PAGES = 64


@dataclass
class _Page:
    """A page in a browser.

    Attributes:
        pending: the newest message had no room for all changes.
        fed: `RunReader.fed` of the newest message. Another page's request may have read on since.
    """

    reader: RunReader
    packer: Packer
    pending: bool = False
    fed: int = 0


class ViewService:
    """The runs and pages of one server. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers: OrderedDict[str, RunReader] = OrderedDict()
        self._pages: OrderedDict[str, _Page] = OrderedDict()

    def update(self, record: RunRecord, page_id: str, number: int) -> dict[str, Any]:
        """`View` of `openapi.yaml`: what changed since message `number`, or everything for a page that is not known."""
        reader = self._reader(record)
        with reader.lock:
            page = self._page(page_id, reader)
            new = page is None or page.packer.number != number
            reader.read_more(READ_SECONDS if new else CATCH_UP_SECONDS)
            reader.mark_over(record)
            if page is not None and page.packer.history is not reader.history:
                page = None
                with self._lock:
                    self._pages.pop(page_id, None)  # it would hold the former history
            if page is None or new:
                page_id, page = self._new_page(reader)
                packed = page.packer.full(time.time(), reader.last_seen)
            else:
                packed = page.packer.update(time.time(), reader.last_seen)
            page.pending, page.fed = packed.has_more, reader.fed
            return {
                "page": page_id,
                "message": packed.message,
                "buffers": [base64.b64encode(buffer).decode() for buffer in packed.buffers],
                "behind": round(reader.behind, 3),
                "damaged": reader.damaged,
                "more": packed.has_more or reader.behind > 0,
            }

    def replay(self, record: RunRecord) -> dict[str, Any]:
        """`Replay` of `openapi.yaml`."""
        reader = self._reader(record)
        with reader.lock:
            reader.read_more(CATCH_UP_SECONDS)
            behind = round(reader.behind, 3)
            frames = [] if behind else list(reader.history.frames)
            return {"frames": [frame._asdict() for frame in frames], "behind": behind}

    def block(self, record: RunRecord) -> dict[str, Any]:
        """`Block` of `openapi.yaml`."""
        reader = self._reader(record)
        with reader.lock:
            reader.read_more(CATCH_UP_SECONDS)
            behind, reach = round(reader.behind, 3), reader.reach
            run = {**report.run_info(record), "attachable": reach.attachable, "folder": reach.folder}
            return {"data": None if behind else bundle_of(run, reader.history), "behind": behind}

    def has_updates(self, record: RunRecord, page_id: str, number: int) -> bool:
        """Whether `update` would return anything new to the page."""
        reader = self._reader(record)
        page = self._page(page_id, reader)
        if page is None or page.packer.number != number or page.pending or page.fed != reader.fed:
            return True
        if reader.has_grown() or reader.behind:
            return True
        return record.over and not reader.history.over

    def _reader(self, record: RunRecord) -> RunReader:
        with self._lock:
            reader = self._readers.get(record.id)
            if reader is None:
                reader = self._readers[record.id] = RunReader(record)
            self._readers.move_to_end(record.id)
            while len(self._readers) > MAX_READERS:
                self._readers.popitem(last=False)
            return reader

    def _page(self, page_id: str, reader: RunReader) -> _Page | None:
        with self._lock:
            page = self._pages.get(page_id)
            if page is None or page.reader is not reader:
                return None
            self._pages.move_to_end(page_id)
            return page

    def _new_page(self, reader: RunReader) -> tuple[str, _Page]:
        page_id, page = secrets.token_urlsafe(9), _Page(reader, Packer(reader.history, reader.info, reader.reach))
        with self._lock:
            self._pages[page_id] = page
            while len(self._pages) > MAX_PAGES:
                self._pages.popitem(last=False)
        return page_id, page
