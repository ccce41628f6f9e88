"""Runs on disk: one folder per run in Jupyter's data folder, where other processes can read it.

Only the kernel that owns a run writes its state and events (`RunFolder.create`). All others read, write requests into
`control/`, and set labels. A run whose owner died reads as LOST. Readers skip files that are foreign, half written or
of a newer format. No secrets are written: settings that are or contain some are masked.
"""

from __future__ import annotations

import json
import os
import platform
import re
import secrets
import shutil
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from jupyter_core.paths import jupyter_data_dir

from ddl_magics._version import __version__
from ddl_magics.options.redaction import masked
from ddl_magics.runtime import events as ev
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.store.files import make_private, synchronize, synchronize_folder, write_atomically
from ddl_magics.store.labels import Labels
from ddl_magics.store.owned_folder import OwnedFolder, RunInUse, lines_of, read_object, read_to_change
from ddl_magics.store.run_record import FORMAT as FORMAT
from ddl_magics.store.run_record import RunRecord as RunRecord

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_ARTIFACT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def new_run_id() -> str:
    """A unique id that sorts by time and is a valid file name."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"


def runs_folder() -> Path:
    """`ddl_magics/runs` in Jupyter's data folder, as JUPYTER_DATA_DIR sets it now."""
    return Path(jupyter_data_dir()) / "ddl_magics" / "runs"


class RunFolder(OwnedFolder):
    """The folder of one run, for its owner and for readers."""

    @classmethod
    def create(cls, record: Mapping[str, Any]) -> RunFolder:
        """Make the folder of a new run (`record` holds id, name, created, spec, cluster, notebook and state)."""
        run_id = str(record["id"])
        if not RUN_ID.fullmatch(run_id):
            raise ValueError(f"not the id of a run: {run_id!r}")
        folder = cls(runs_folder() / run_id)
        # Cells and what they print are private.
        make_private(folder.path.parent)
        folder.path.mkdir(mode=0o700)
        (folder.path / "control").mkdir()
        (folder.path / "files").mkdir()
        folder._claim()
        folder.update({"format": FORMAT, "failure": None, "ended": None, **record})
        synchronize_folder(folder.path.parent)
        return folder

    def update(self, changes: Mapping[str, Any]) -> None:
        """Change fields of `run.json`."""
        record = {**read_to_change(self.path / "run.json"), **changes}
        spec = record.get("spec") or {}
        record["spec"] = {**spec, "conf": masked(spec.get("conf") or {})}
        write_atomically(self.path / "run.json", [json.dumps(record, indent=1).encode()])

    def append(self, events: Iterable[ev.RawEvent]) -> None:
        events = list(events)
        with open(self._events, "a", encoding="utf-8") as file:
            file.write("".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events))
            if any(event.state in ev.TERMINAL for event in ev.select(ev.State, events)):
                file.flush()
                synchronize(file.fileno())  # the driver may forget the run soon

    def rewrite(self, lines: Iterable[str]) -> None:
        """Replace all stored events. lines: as JSON."""
        write_atomically(self._events, (line.encode() + b"\n" for line in lines))

    def events_bytes(self) -> int:
        """The size of the stored events."""
        try:
            return self._events.stat().st_size
        except OSError:
            return 0

    @property
    def _events(self) -> Path:
        return self.path / "events.jsonl"

    def events(self) -> Iterator[ev.RawEvent]:
        """The stored events in order, without lines that are damaged or half written."""
        return (event for event in self.lines() if event is not None)

    def lines(self) -> Iterator[ev.RawEvent | None]:
        """The stored events in order, with None for each line that cannot be read."""
        try:
            with open(self._events, "rb") as file:
                for line in lines_of(file):
                    yield parse_event(line)
        except OSError:
            return

    def intact_events(self) -> list[ev.RawEvent]:
        """The stored events up to the first line that cannot be read."""
        return [event for event in takewhile(bool, self.lines()) if event]

    def take_over(self) -> list[ev.RawEvent]:
        """Become the owner of a run whose owner has died.

        Drops the events from the first line that cannot be read on: the driver has them.

        Returns:
            The run's events so far.

        Raises:
            RunInUse: another process is the owner by now.
        """
        with self._locked():
            record = self.record()
            if (record is None or not record.over) and not self._is_ours():
                raise self._in_use()
            self._claim()
            self.update({"state": ev.RUNNING, "ended": None})
            (self.path / "control" / "stop").unlink(missing_ok=True)
        events = self.intact_events()
        self.rewrite(json.dumps(event, separators=(",", ":")) for event in events)
        return events

    def file(self, name: str) -> Path:
        """The path of the artifact `name`, which may not exist yet.

        Raises:
            ValueError: it is not the name of an artifact.
        """
        if not _ARTIFACT.fullmatch(name):
            raise ValueError(f"not a name of an artifact: {name!r}")
        return self.path / "files" / name

    def label(self, labels: Iterable[str] | None = None, title: str | None = None, note: str | None = None) -> None:
        """Replace the run's labels, its title or its note; None leaves them. `store/labels.py` checks them."""
        changes = {"labels": None if labels is None else sorted(set(labels)), "title": title, "note": note}
        with self._locked():
            stored = read_to_change(self.path / "labels.json")
            stored.update({name: value for name, value in changes.items() if value is not None})
            write_atomically(self.path / "labels.json", [json.dumps(stored).encode()])

    def labels(self) -> Labels:
        """Title, tags and note."""
        return Labels.read(read_object(self.path / "labels.json"))

    def record(self) -> RunRecord | None:
        """The run as it is now; None if the folder has no run that this version can read."""
        stored = read_object(self.path / "run.json")
        try:
            record = RunRecord.read(stored, read_object(self.path / "labels.json"), self.path)
        except (KeyError, TypeError, ValueError):
            return None
        if record.over or record.is_batch or self.has_live_owner():
            return record
        return replace(record, state=ev.LOST, message="its kernel has ended", ended=self._lost_at())

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def discard(self) -> None:
        """Remove a run that has ended.

        Raises:
            RunInUse: it has not ended.
            OSError: it cannot be removed.
        """
        with self._locked():
            record = self.record()
            if record is not None and not record.over:
                raise RunInUse(f"run {self.path.name} is {record.state}")
            # Rename it first: a reader must not find a run without some of its files.
            hidden = self.path.with_name(f".{self.path.name}.{secrets.token_hex(3)}")
            os.replace(self.path, hidden)
        shutil.rmtree(hidden, ignore_errors=True)


def create_run(
    spec: RunSpec, cluster: str, driver_address: Mapping[str, Any], notebook: str = "", cell_id: str = ""
) -> RunFolder:
    """Create the folder of a run that begins now.

    Args:
        spec: of the run, with id and name.
        cluster: name of the cluster, for people.
        driver_address: `Cluster.driver_address`.
        notebook: path of the notebook, or empty.
        cell_id: id of the cell in it, or empty.

    Raises:
        OSError, ValueError: the folder cannot be created.
    """
    record = {
        "id": spec.run,
        "name": spec.name,
        "created": time.time(),
        "spec": spec.to_record(),
        "cluster": cluster,
        "place": dict(driver_address),
        "notebook": notebook,
        "cell_id": cell_id,
        "environment": {
            "ddl_magics": __version__,
            "python": platform.python_version(),
            "platform": platform.platform(),
            "host": socket.gethostname(),
        },
        "state": ev.QUEUED,
    }
    return RunFolder.create(record)


def list_runs() -> list[RunRecord]:
    """All readable runs, newest first."""
    try:
        folders = [e.path for e in os.scandir(runs_folder()) if RUN_ID.fullmatch(e.name) and e.is_dir()]
    except OSError:
        return []
    records = (RunFolder(Path(path)).record() for path in folders)
    return sorted((r for r in records if r is not None), key=lambda r: (r.created, r.id), reverse=True)


def find_run(name_or_id: str) -> RunRecord | None:
    """The run with this id, else the newest with this name, else the only one whose id starts with `name_or_id`."""
    if RUN_ID.fullmatch(name_or_id):
        record = RunFolder(runs_folder() / name_or_id).record()
        if record is not None:
            return record
    records = list_runs()
    same_name = [record for record in records if record.name == name_or_id]
    if same_name:
        return same_name[0]
    matching = [record for record in records if name_or_id and record.id.startswith(name_or_id)]
    return matching[0] if len(matching) == 1 else None


def parse_event(line: bytes) -> ev.RawEvent | None:
    """The event in a line of `events.jsonl`, or None. NaN and infinities, which JSON does not have, become None."""
    try:
        event: ev.RawEvent = json.loads(line, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None
    if not ev.is_sound(event) or "seq" not in event:
        return None
    return ev.encodable(event) if b"\\ud" in line else event
