"""Runs for TensorBoard: scalars and hyperparameters in event files, written by tensorboardX."""

from __future__ import annotations

import re
import secrets
import shlex
import time
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ddl_magics.errors import NotInstalled
from ddl_magics.history.scalars import Scalar
from ddl_magics.history.tracking_data import TrackingData

INSTALL = "pip install tensorboardX"
#: Scheme of a folder's URI -> the module that tensorboardX needs for it.
STORAGES: Mapping[str, str] = {"s3": "boto3", "gs": "google.cloud.storage"}


class TensorBoardRun:
    """A run of TensorBoard: a folder with event files, which grow as values are added."""

    def __init__(self, folder: str, parameters: Mapping[str, Any], restart: bool = False) -> None:
        """Begin the run's file.

        Args:
            folder: of the run, a path or a URI as `run_folder` makes it.
            parameters: the hyperparameters.
            restart: all values follow again; TensorBoard drops those that it has.

        Raises:
            NotInstalled: tensorboardX is missing, or what it needs for such a URI.
            OSError: the folder cannot be written.
        """
        require(folder)
        # Not `SummaryWriter`: its thread ends without a word at a full disk, and all calls wait for it then.
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog
        from tensorboardX.record_writer import directory_check
        from tensorboardX.summary import hparams

        directory_check(folder)
        self._event = Event
        self._writer = EventsWriter(f"{folder}/events", f".{secrets.token_hex(3)}")
        if restart:
            start = SessionLog(status=SessionLog.START)
            self._writer.write_event(Event(wall_time=time.time(), step=0, session_log=start))
        # Without the list of all hyperparameters: TensorBoard would take one run's list for all runs below its folder.
        _, begin, self._session_end = hparams(dict(parameters), {})
        self._write(begin)
        self._writer.flush()

    def add(self, scalars: Iterable[Scalar]) -> None:
        """Write values, so that a TensorBoard reads them from now on. Raises OSError."""
        from tensorboardX.summary import scalar

        for point in scalars:
            self._write(scalar(point.name, point.value), point.step, point.time)
        self._writer.flush()

    def finish(self, run: TrackingData) -> None:
        """Write the source and the files' locations, and close the file. Raises OSError."""
        from tensorboardX.summary import text

        self._write(self._session_end)
        for name, content in run.texts.items():
            if content:
                self._write(text(name.partition(".")[0], f"```python\n{content}\n```"))
        if run.locations:
            self._write(text("files", "\n".join(f"- `{location}`" for location in run.locations)))
        self._writer.close()

    def _write(self, summary: Any, step: int = 0, moment: float | None = None) -> None:
        at = time.time() if moment is None else moment
        self._writer.write_event(self._event(wall_time=at, step=step, summary=summary))


def write_below(logs: Path, name: str, run_id: str, run: TrackingData) -> Path:
    """`write` into the folder of a run of this name and id below `logs`."""
    return write(Path(run_folder(str(logs), name, run_id)), run)


def how_to_look(logs: Path) -> str:
    """The command that shows the runs in a folder."""
    return f"To see it: tensorboard --logdir {shlex.quote(str(logs))} (pip install tensorboard)"


def write(folder: Path, run: TrackingData) -> Path:
    """Write a run into a folder, which becomes one run of TensorBoard; returns the folder.

    Args:
        folder: of the run; event files in it are replaced.
        run: the run.

    Raises:
        NotInstalled: tensorboardX is missing.
        OSError: the folder cannot be written.
    """
    require(str(folder))
    folder.mkdir(parents=True, exist_ok=True)
    for event_file in folder.glob("events.out.tfevents.*"):
        event_file.unlink()
    written = TensorBoardRun(str(folder), run.parameters)
    written.add(run.scalars)
    written.finish(run)
    return folder


def require(folder: str) -> None:
    """Check that what writes such a folder is installed. Raises NotInstalled."""
    if not _is_there("tensorboardX"):
        raise NotInstalled(f"TensorBoard's files are written by tensorboardX, which is missing here: {INSTALL}")
    module = STORAGES.get(urlsplit(folder).scheme)
    if module is not None and not _is_there(module):
        package = module.replace(".", "-")
        raise NotInstalled(
            f"{urlsplit(folder).scheme}:// needs {package}, which is missing here: pip install {package}"
        )


def run_folder(logs: str, name: str, run: str, home: str | None = None) -> str:
    """The folder of a run below that of all, `logs`: a path, or a URI.

    home: the folder to which a relative path is relative; None for the present one.
    """
    run_name = f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', name)}-{run}"
    url = urlsplit(logs)
    if url.scheme in STORAGES:
        return f"{logs.rstrip('/')}/{run_name}"
    path = Path(unquote(url.path)) if url.scheme == "file" else Path(logs).expanduser()
    return str(Path(home or ".", path, run_name))


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a package above it
        return False
