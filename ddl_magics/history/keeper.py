"""Keeps a run's provenance: a thread collects the kernel's part, the run's events have the cluster's."""

from __future__ import annotations

import contextlib
import functools
import logging
import platform
import socket
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from ddl_magics.history import git, notebook_copy, provenance
from ddl_magics.runtime import events as ev
from ddl_magics.runtime.provenance import packages
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.store import RunFolder

_log = logging.getLogger(__name__)


class Keeper:
    """Writes the provenance of one run; `feed` listens to the run's recorder. A full disk costs the file alone.

    The file is written once the run is known to the driver, and again when its ranks have reported and at its end.
    """

    def __init__(self, spec: RunSpec, folder: RunFolder, attached: bool) -> None:
        """attached: another kernel started the run and stored the kernel's part."""
        self._spec, self._folder = spec, folder
        self._lock = threading.Lock()
        self._kernel: dict[str, Any] | None = None
        self._driver: ev.RawEvent = {}
        self._data: dict[str, Any] = {}
        self._packages: dict[int, Mapping[str, str | None]] = {}  # by rank: the difference from the driver's
        self._workers: dict[int, ev.RawEvent] = {}
        self._due = self._over = False
        self._off = spec.provenance is False
        if self._off:
            return
        if attached:
            stored = provenance.read(folder.path)
            self._kernel = {name: getattr(stored, name) for name in ("kernel", "git", "notebook")}
        else:
            threading.Thread(target=self._collect, name="ddl_magics provenance", daemon=True).start()

    def feed(self, raw_events: Sequence[ev.RawEvent]) -> None:
        """Take events in their order; the first call has all so far."""
        if self._off:
            return
        with self._lock:
            for event in map(ev.parse, raw_events):
                self._take(event)
            if self._due and self._kernel is not None:
                self._write()

    def _take(self, event: ev.Event) -> None:
        match event:
            case ev.Environment(rank=ev.JOB):
                self._driver = event.raw
            case ev.Environment():
                base = self._packages.get(ev.JOB if event.like is None else event.like, {})
                self._packages[event.rank] = {**base, **event.packages}
            case ev.Worker():
                self._workers[event.rank] = event.raw
            case ev.Data():
                self._data.update(_present(event.raw, "rows", "validation_rows", "content"))
            case ev.State() if event.state in (ev.RUNNING, *ev.TERMINAL):
                self._due = True

    def _collect(self) -> None:
        try:
            record = self._folder.record()
            notebook = "" if record is None else record.notebook
            # The trials of a search have the code of its beginning.
            kernel = kernel_part(notebook, self._spec.folder, self._spec.parent or self._spec.run)
        except Exception:  # whatever a damaged installation raises: the run does not need it
            _log.exception("what run %s runs with cannot be kept", self._spec.run)
            kernel = {}
        with self._lock:
            self._kernel = kernel
            if self._due:
                self._write()

    def _write(self) -> None:
        self._due = False
        kernel = self._kernel or {}
        sections = {
            **kernel,
            "driver": _present(self._driver, "host", "platform", "python", "packages", "session"),
            "ranks": self._ranks(),
            "spark": self._driver.get("spark", {}),
            "sent": self._driver.get("sent", {}),
            "data": {**self._driver.get("data", {}), **self._data},
        }
        if not self._folder.path.is_dir():  # removed meanwhile
            return
        with contextlib.suppress(OSError):
            provenance.write(self._folder.path, sections)

    def _ranks(self) -> list[dict[str, Any]]:
        """The ranks, grouped by equal machines and packages."""
        groups: dict[str, tuple[dict[str, Any], list[int]]] = {}
        for rank, worker in sorted(self._workers.items()):
            environment = _present(worker, "host", "device", "cores")
            environment["packages"] = dict(self._packages.get(rank, {}))
            groups.setdefault(repr(environment), (environment, []))[1].append(rank)
        return [{"ranks": in_ranges(ranks), **environment} for environment, ranks in groups.values()]


def _present(event: ev.RawEvent, *names: str) -> dict[str, Any]:
    """The fields of these names that the event has."""
    return {name: event[name] for name in names if name in event}


@functools.lru_cache(maxsize=1)
def kernel_part(notebook: str, folder: str | None, run: str) -> dict[str, Any]:
    """The parts `kernel`, `git` and `notebook` of a `Provenance`, once for each `run`, or search."""
    return {**kernel_and_git(folder), "notebook": notebook_copy.copy(notebook, folder)}


def kernel_and_git(folder: str | None) -> dict[str, Any]:
    """The parts `kernel` and `git` of this process at this moment."""
    kernel = {
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "packages": packages.installed(),
    }
    return {"kernel": kernel, "git": git.state(folder) if folder else {}}


def in_ranges(ranks: Sequence[int]) -> str:
    """ "0-3, 5" of ascending ranks."""
    ranges: list[list[int]] = []
    for rank in ranks:
        if ranges and ranges[-1][1] == rank - 1:
            ranges[-1][1] = rank
        else:
            ranges.append([rank, rank])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)
