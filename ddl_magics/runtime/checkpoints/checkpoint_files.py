"""The checkpoints that the driver keeps of a run, the newest of each fit: for the next attempt, or for another run."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import threading
import zipfile
from typing import TYPE_CHECKING, Any, Callable, Mapping, NamedTuple, Protocol, Sequence

from ..run_spec import RunSpec
from ..spark import storage
from ..transport import messages, wire
from ..transport.incoming import blocks, size_and_checksum
from . import checkpoint, checkpoint_storage

if TYPE_CHECKING:
    from ..spark.pyspark_types import SparkContext
    from .checkpoint import CheckpointFile
    from .checkpoint_storage import CheckpointUploader

#: What the checkpoints of all fits together may take of the driver's disk.
KEPT_BYTES = 4 << 30


class NoCheckpoint(ValueError):
    """There is no checkpoint to resume from: one line."""


class AdoptedFile(NamedTuple):
    """A `checkpoint.CheckpointFile` that has come from another run."""

    path: str
    header: Mapping[str, Any]
    size: int
    sha256: str


class CheckpointSource(NamedTuple):
    """A checkpoint to resume from.

    where: its path or URI. copy: (path on the driver's disk) copies it there; raises OSError or `StorageError`.
    """

    location: str
    copy: Callable[[str], object]


class CheckpointFiles:
    """The newest checkpoint of each fit. Thread-safe.

    warn: called with a line, once, when a checkpoint is not kept. copies: gets each checkpoint too, where there is one.
    """

    def __init__(self, warn: Callable[[str], object], copies: CheckpointUploader | None = None) -> None:
        self._warn, self._warned = warn, False
        self._copies = copies
        self._lock = threading.Lock()
        self._files: dict[int, CheckpointFile] = {}  # by fit

    def keep(self, file: CheckpointFile) -> None:
        """Take over a checkpoint: an older one of the same fit is deleted, or `file` itself if there is no room.

        Raises KeyError, ValueError or TypeError where its header has no position.
        """
        position = checkpoint.Position.from_json(file.header)
        if self._copies is not None:
            self._copies.upload(file)
        with self._lock:
            bytes_of_other_fits = sum(
                checkpoint_file.size for fit, checkpoint_file in self._files.items() if fit != position.fit
            )
            no_room = bytes_of_other_fits + file.size > KEPT_BYTES
            superseded = file if no_room else self._files.get(position.fit)
            if not no_room:
                self._files[position.fit] = file
        if superseded is not None:
            os.unlink(superseded.path)
        if no_room:
            self.warn_once("checkpoints take more than %d GB of the driver's disk" % (KEPT_BYTES >> 30))

    def warn_once(self, reason: str) -> None:
        """Tell the user why a checkpoint is not kept, the first time that one is not."""
        with self._lock:
            warned, self._warned = self._warned, True
        if not warned:
            self._warn("%s: the later ones are not kept, and the run resumes from an older one if it has to" % reason)

    def adopt(self, source: CheckpointSource, path: str) -> None:
        """Keep a copy, at the path `path`, of another run's checkpoint. Raises `NoCheckpoint` where it is none."""
        try:
            source.copy(path)
            position = checkpoint.Position.from_json(checkpoint.read_metadata(path))
        except storage.StorageError as error:
            raise NoCheckpoint(str(error)) from None
        except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
            raise NoCheckpoint("%s cannot be read as a checkpoint: %s" % (source.location, error)) from None
        content = size_and_checksum(path)
        header = {**position._asdict(), "name": position.file, **content}
        self.keep(AdoptedFile(path, header, **content))

    def files(self) -> list[CheckpointFile]:
        """One of each fit, in the order of the fits."""
        with self._lock:
            return [self._files[fit] for fit in sorted(self._files)]


class _Run(Protocol):
    """A `job.Job`, as far as it matters here."""

    @property
    def checkpoints(self) -> CheckpointFiles: ...


def sources(sc: SparkContext, spec: RunSpec, job: _Run | None) -> list[CheckpointSource]:
    """A `Source` for each checkpoint of the run that the spec wants to resume. Raises `NoCheckpoint` if there is none.

    job: that run, if the driver still has it. Else its checkpoints are looked for in the notebook's folder
    (`spec.checkpoints`), and then where that run's --checkpoint put them (`spec.resume_uri`).
    """
    folder = spec.checkpoints or ""
    paths = [file.path for file in job.checkpoints.files()] if job is not None else []
    if not paths and os.path.isdir(folder):
        names = [name for name in os.listdir(folder) if name.startswith("checkpoint-") and name.endswith(".npz")]
        paths = [os.path.join(folder, name) for name in sorted(names)]
    if paths:
        return [CheckpointSource(path, functools.partial(shutil.copyfile, path)) for path in paths]
    stored = _stored(sc, spec, spec.resume_uri) if spec.resume_uri else []
    if not stored:
        raise NoCheckpoint(
            "--resume %s: there is no checkpoint of it here; a run has checkpoints from its first epoch until it has "
            "finished, in its notebook's folder if Spark runs on that machine, else in its Spark session; "
            "--checkpoint URI keeps them for longer" % spec.resume
        )
    return stored


def _stored(sc: SparkContext, spec: RunSpec, root: str) -> list[CheckpointSource]:
    uri = checkpoint_storage.folder_of(root, spec.resume or "")
    folder_arguments = checkpoint_storage.OPTION, uri, spec.run

    def copy(name: str, path: str) -> None:
        with storage.Folder(sc, *folder_arguments) as folder:
            folder.download(name, path)

    try:
        names = checkpoint_storage.newest(storage.names(sc, *folder_arguments))
    except storage.StorageError as error:
        raise NoCheckpoint("--resume %s: %s" % (spec.resume, error)) from None
    return [CheckpointSource("%s/%s" % (uri, name), functools.partial(copy, name)) for name in names]


def resume_point(files: Sequence[CheckpointFile]) -> str:
    """Where training resumes with these files, in words."""
    return "from " + checkpoint.Position.from_json(files[-1].header).resume_point if files else "from the beginning"


def positions(files: Sequence[CheckpointFile]) -> list[checkpoint.Position]:
    """How far training was at each."""
    return [checkpoint.Position.from_json(file.header) for file in files]


def send(channel: wire.Channel, files: Sequence[CheckpointFile]) -> None:
    """Stream the files to a rank. The reader of the connection deals with one that breaks."""
    with contextlib.suppress(wire.ConnectionLost, OSError):
        for file in files:
            channel.send_json(messages.CHECKPOINT, file.header)
            for block in blocks(file.path):
                channel.send(messages.PIECE, block)
