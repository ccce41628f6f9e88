"""The checkpoints that the driver holds of a run: the newest of each fit, for the next attempt or for another run."""

import functools
import hashlib
import os
import shutil
import threading
import zipfile
from typing import Any, Callable, NamedTuple

from . import checkpoint, checkpoint_storage, messages, storage, wire

#: Checkpoints of all fits together may take so much of the driver's disk.
KEPT_BYTES = 4 << 30


class NoCheckpoint(ValueError):
    """There is none to go on from: one line."""


class File(NamedTuple):
    """What an `incoming.Incoming` says of a file that is there already."""

    path: str
    header: dict
    size: int
    sha256: str


class Source(NamedTuple):
    """A checkpoint to go on from. copy(path): bring it to the driver's disk."""

    where: str
    copy: Callable[[str], Any]


class CheckpointFiles:
    """warn: called with a line when there is no more room. copies: `checkpoint_storage.Copies` or None. Thread-safe."""

    def __init__(self, warn, copies=None):
        self._warn, self._warned = warn, False
        self._copies = copies
        self._lock = threading.Lock()
        self._files = {}  # by fit: `incoming.Incoming`

    def keep(self, file):
        """Take over a checkpoint, an `Incoming` that is complete, instead of an older one of the same fit.

        ValueError or KeyError where its header has no position.
        """
        position = checkpoint.Position.read(file.header)
        if self._copies is not None:
            self._copies.put(file)
        with self._lock:
            others = sum(each.size for fit, each in self._files.items() if fit != position.fit)
            full = others + file.size > KEPT_BYTES
            old = file if full else self._files.get(position.fit)
            if not full:
                self._files[position.fit] = file
            warn, self._warned = full and not self._warned, self._warned or full
        if old is not None:
            os.unlink(old.path)
        if warn:
            message = "checkpoints take more than %d GB of the driver's disk: the later ones are not kept"
            self._warn(message % (KEPT_BYTES >> 30))

    def adopt(self, source, own):
        """Keep a copy, at the path `own`, of another run's checkpoint. NoCheckpoint where the file is none."""
        try:
            source.copy(own)
            about, _ = checkpoint.read(own)
            position = checkpoint.Position.read(about)
        except storage.StorageError as error:
            raise NoCheckpoint(str(error)) from None
        except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
            raise NoCheckpoint("%s cannot be read as a checkpoint: %s" % (source.where, error)) from None
        digest = hashlib.sha256()
        with open(own, "rb") as file:
            for block in iter(lambda: file.read(messages.CHUNK_BYTES), b""):
                digest.update(block)
        size, sha256 = os.path.getsize(own), digest.hexdigest()
        header = dict(position._asdict(), name=position.file, size=size, sha256=sha256)
        self.keep(File(own, header, size, sha256))

    def files(self):
        """One `Incoming` a fit, in the order of the fits."""
        with self._lock:
            return [self._files[fit] for fit in sorted(self._files)]


def of_run(sc, spec, job):
    """A `Source` for each checkpoint that the spec wants to go on from. NoCheckpoint where there are none.

    job: the `job.Job` of that run if the driver still has it; else they are in the notebook's folder, if that is here,
    or where --checkpoint of that run said.
    """
    folder = spec.get("checkpoints") or ""
    found = [file.path for file in job.checkpoints.files()] if job is not None else []
    if not found and os.path.isdir(folder):
        names = [name for name in os.listdir(folder) if name.startswith("checkpoint-") and name.endswith(".npz")]
        found = [os.path.join(folder, name) for name in sorted(names)]
    if found:
        return [Source(path, functools.partial(shutil.copyfile, path)) for path in found]
    stored = _stored(sc, spec) if spec.get("resume_uri") else []
    if not stored:
        raise NoCheckpoint(
            "--resume %s: there is no checkpoint of it here; a run has one from its first epoch on until it has "
            "finished, with the notebook where Spark is on its machine, else with the session that it ran in; with "
            "--checkpoint URI it is there for longer" % spec["resume"]
        )
    return stored


def _stored(sc, spec):
    uri = checkpoint_storage.folder_of(spec["resume_uri"], spec["resume"])
    asked = checkpoint_storage.OPTION, uri, spec["run"]

    def copy(name, own):
        with storage.Folder(sc, *asked) as folder:
            folder.get(name, own)

    try:
        names = checkpoint_storage.newest(storage.names(sc, *asked))
    except storage.StorageError as error:
        raise NoCheckpoint("--resume %s: %s" % (spec["resume"], error)) from None
    return [Source("%s/%s" % (uri, name), functools.partial(copy, name)) for name in names]


def where(files):
    """Where training goes on from these files, in words."""
    return "from " + checkpoint.Position.read(files[-1].header).words if files else "from the beginning"


def positions(files):
    """What the ranks are told of them: JSON, as executors know no class of ours."""
    return [list(checkpoint.Position.read(file.header)) for file in files]


def send(channel, files):
    """Stream them to a rank. A connection that breaks is its reader's to notice."""
    try:
        for file in files:
            channel.send_json(messages.CHECKPOINT, file.header)
            with open(file.path, "rb") as content:
                for block in iter(lambda: content.read(messages.CHUNK_BYTES), b""):
                    channel.send(messages.PIECE, block)
    except (wire.ConnectionLost, OSError):
        pass
