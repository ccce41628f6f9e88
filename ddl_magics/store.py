"""Runs on disk: a folder a run in Jupyter's data folder, where a run outlives its kernel and is seen from outside.

The kernel that owns a run alone writes its state and events (`RunFolder.create`). Everybody else reads, writes
requests into `control/`, and labels. A run whose owner died reads LOST. Readers skip what is foreign, half written or
of a newer format. No secret is written: the values of settings that look like one are masked.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import re
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_core.paths import jupyter_data_dir

from ddl_magics import owner
from ddl_magics._version import __version__
from ddl_magics.runtime import events as ev
from ddl_magics.spec import RunSpec

FORMAT = 1
MASK = "***"

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_SECRET = re.compile(r"(?i)secret|password|passwd|token|access[.]?key|credential")
_ARTIFACT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Taken(Exception):
    """Another process has the run."""


def new_run_id() -> str:
    """Sorts by time, fits a file name, and is not met twice."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"


def runs_folder() -> Path:
    return Path(jupyter_data_dir()) / "ddl_magics" / "runs"


@dataclass(frozen=True)
class RunRecord:
    """`run.json`, read. `state` is LOST where the file says a running state and the owner is dead."""

    id: str
    name: str
    created: float
    spec: Mapping[str, Any]
    cluster: str
    notebook: str
    state: str
    failure: Mapping[str, Any] | None = None
    ended: float | None = None
    progress: Mapping[str, Any] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    #: What a reader calls the run; empty where nobody has given it another name.
    title: str = ""
    #: The id of its cell in the notebook; empty where the frontend has not told it.
    cell_id: str = ""
    #: Of the notebook's side: versions and host.
    environment: Mapping[str, Any] = field(default_factory=dict)
    #: Of the cluster's side, as rank 0 told: of Python, TensorFlow, Keras and Spark.
    versions: Mapping[str, Any] = field(default_factory=dict)
    #: Where its driver is found again (`Cluster.place`); empty where only its own kernel could.
    place: Mapping[str, Any] = field(default_factory=dict)
    folder: Path = Path()

    @property
    def over(self) -> bool:
        return self.state in ev.TERMINAL


class RunFolder:
    """The folder of one run, as its owner writes it and as anybody reads it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, record: Mapping[str, Any]) -> RunFolder:
        """Make the folder of a new run (`record` holds id, name, created, spec, cluster, notebook and state)."""
        folder = cls(runs_folder() / _checked(str(record["id"])))
        # Printed text and cells are nobody else's.
        folder.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.path.mkdir(mode=0o700)
        (folder.path / "control").mkdir()
        (folder.path / "files").mkdir()
        folder.beat()
        folder.update({"format": FORMAT, "failure": None, "ended": None, **record})
        return folder

    def update(self, changes: Mapping[str, Any]) -> None:
        """Change fields of `run.json`."""
        record = {**_read_object(self.path / "run.json"), **changes}
        record["spec"] = _masked(record.get("spec") or {})
        write_atomically(self.path / "run.json", json.dumps(record, indent=1).encode())

    def append(self, events: Iterable[Mapping[str, Any]]) -> None:
        lines = "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events)
        with open(self.path / "events.jsonl", "a", encoding="utf-8") as file:
            file.write(lines)

    def events(self) -> Iterator[dict[str, Any]]:
        """The stored events in order; ends before a line that is half written."""
        try:
            with open(self.path / "events.jsonl", encoding="utf-8", errors="replace") as file:
                for line in file:
                    try:
                        event = json.loads(line)
                    except ValueError:
                        return
                    if isinstance(event, dict):
                        yield event
        except OSError:
            return

    def take_over(self) -> list[dict[str, Any]]:
        """Become the owner of a run whose owner has died; its events, without a last one that is half written.

        Raises:
            Taken: somebody else has become it meanwhile.
        """
        with self._alone():
            if not self._free():
                raise Taken(f"run {self.path.name} is followed by another process")
            self.beat()
            # Whoever comes next sees a run that has an owner.
            self.update({"state": ev.RUNNING, "ended": None})
            (self.path / "control" / "stop").unlink(missing_ok=True)
        events = list(self.events())
        lines = "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events)
        write_atomically(self.path / "events.jsonl", lines.encode())
        return events

    def _free(self) -> bool:
        """Whether this process may become the owner, or is it."""
        record, who, this = self.record(), _read_object(self.path / "owner.json"), owner.this_process()
        return (record is not None and record.over) or all(
            who.get(key) == this[key] for key in ("host", "pid", "start")
        )

    def beat(self) -> None:
        """Say that the owner, this process, lives."""
        write_atomically(self.path / "owner.json", json.dumps(owner.this_process()).encode())

    def owned(self) -> bool:
        """Whether the process that owns the run still lives."""
        return owner.alive(_read_object(self.path / "owner.json"))

    def request(self, name: str) -> None:
        """Ask the owner for something; "stop" is all that there is now."""
        control = self.path / "control"
        control.mkdir(exist_ok=True)
        (control / name).touch()

    def requested(self, name: str) -> bool:
        return (self.path / "control" / name).exists()

    def file(self, name: str) -> Path:
        """Where the artifact `name` is, or will be."""
        if not _ARTIFACT.fullmatch(name):
            raise ValueError(f"not a name of an artifact: {name!r}")
        return self.path / "files" / name

    def label(self, labels: Iterable[str] | None = None, title: str | None = None) -> None:
        """Give the run other labels, or another title; None leaves what there is."""
        with self._alone():
            stored = _read_object(self.path / "labels.json")
            if labels is not None:
                stored["labels"] = sorted(set(labels))
            if title is not None:
                stored["title"] = title
            write_atomically(self.path / "labels.json", json.dumps(stored).encode())

    def record(self) -> RunRecord | None:
        """The run as it stands, or None where the folder holds none that this version can read."""
        stored = _read_object(self.path / "run.json")
        if stored.get("format") != FORMAT or stored.get("state") not in ev.STATES:
            return None
        try:
            state, ended, failure = stored["state"], stored.get("ended"), stored.get("failure")
            if state not in ev.TERMINAL and not self.owned():
                state, ended = ev.LOST, _read_object(self.path / "owner.json").get("heartbeat")
            given = _read_object(self.path / "labels.json")
            labels = given.get("labels", [])
            return RunRecord(
                id=str(stored["id"]),
                name=str(stored["name"]),
                created=float(stored["created"]),
                spec=dict(stored["spec"]),
                cluster=str(stored.get("cluster", "")),
                notebook=str(stored.get("notebook", "")),
                state=state,
                failure=failure if isinstance(failure, dict) else None,
                ended=None if ended is None else float(ended),
                progress=dict(stored.get("progress") or {}),
                labels=tuple(str(label) for label in labels) if isinstance(labels, list) else (),
                title=str(given.get("title") or ""),
                cell_id=str(stored.get("cell_id", "")),
                environment=dict(stored.get("environment") or {}),
                versions=dict(stored.get("versions") or {}),
                place=dict(stored.get("place") or {}),
                folder=self.path,
            )
        except (KeyError, TypeError, ValueError):
            return None

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def discard(self) -> None:
        """Remove a run that has ended.

        Raises:
            Taken: it goes on.
            OSError: it cannot be removed.
        """
        with self._alone():
            record = self.record()
            if record is not None and not record.over:
                raise Taken(f"run {self.path.name} is {record.state}")
            # Under a name that no run has, so that nobody meets one of which parts are gone.
            hidden = self.path.with_name(f".{self.path.name}.{secrets.token_hex(3)}")
            os.replace(self.path, hidden)
        shutil.rmtree(hidden, ignore_errors=True)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else is in such a block of this run, on this machine."""
        with open(self.path / "lock", "ab") as file:
            # Some network file systems have no locks; what is done here takes milliseconds.
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
            yield


def create_run(
    spec: RunSpec, cluster: str, place: Mapping[str, Any], notebook: str = "", cell_id: str = ""
) -> RunFolder:
    """The folder of a run that begins now. `cluster`: where it is executed, in words; `place`: as JSON.

    Raises:
        OSError, ValueError: it cannot be made.
    """
    record = {
        "id": spec.run,
        "name": spec.name,
        "created": time.time(),
        "spec": spec.to_record(),
        "cluster": cluster,
        "place": dict(place),
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
    """All runs that can be read, newest first."""
    try:
        folders = [e.path for e in os.scandir(runs_folder()) if RUN_ID.fullmatch(e.name) and e.is_dir()]
    except OSError:
        return []
    records = (RunFolder(Path(path)).record() for path in folders)
    return sorted((r for r in records if r is not None), key=lambda r: (r.created, r.id), reverse=True)


def find_run(word: str) -> RunRecord | None:
    """The run with this id, else the newest with this name, else the only one whose id begins so."""
    if RUN_ID.fullmatch(word):
        record = RunFolder(runs_folder() / word).record()
        if record is not None:
            return record
    records = list_runs()
    named = [record for record in records if record.name == word]
    if named:
        return named[0]
    begun = [record for record in records if word and record.id.startswith(word)]
    return begun[0] if len(begun) == 1 else None


def write_atomically(path: Path, data: bytes) -> None:
    """Readers see the old file or the new one, never a part."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _checked(run_id: str) -> str:
    if not RUN_ID.fullmatch(run_id):
        raise ValueError(f"not the id of a run: {run_id!r}")
    return run_id


def _masked(spec: Mapping[str, Any]) -> dict[str, Any]:
    conf = {key: MASK if _SECRET.search(key) else value for key, value in (spec.get("conf") or {}).items()}
    return {**spec, "conf": conf}


def _read_object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
