"""The files of one run on the driver's disk: artifacts, which the notebook fetches or --out writes elsewhere."""

from __future__ import annotations

import hashlib
import os
import threading
from typing import TYPE_CHECKING, Iterable, NamedTuple

from .. import events, scratch
from ..files.names import FILES
from ..run_spec import RunSpec
from ..variables.left import FILE as VARIABLES
from . import out
from .journal import Journal

if TYPE_CHECKING:
    from pyspark import SparkContext

    from ..checkpoints.checkpoint import CheckpointFile
    from ..transport.incoming import IncomingFile


class Artifact(NamedTuple):
    """A file that the notebook may fetch. size: bytes; sha256: hexadecimal."""

    path: str
    size: int
    sha256: str


class RunFiles:
    """Thread-safe.

    The files that the cell has written are announced when they are kept. With --out, other artifacts but the
    cell's variables are announced by `write_out`, as their URI must be known; else when they are kept.
    """

    def __init__(self, spec: RunSpec, journal: Journal) -> None:
        self.artifacts: dict[str, Artifact] = {}
        self._spec, self._journal = spec, journal
        self._folder = scratch.make("run")
        self._lock = threading.Lock()
        self._created = 0

    def new_path(self) -> str:
        """A path in the run's folder that is not in use."""
        with self._lock:
            self._created += 1
            return os.path.join(self._folder, "%d" % self._created)

    def keep(self, file: IncomingFile | CheckpointFile) -> None:
        """Take over a complete file as the artifact that its header names."""
        name = str(file.header["name"])
        self.artifacts[name] = Artifact(file.path, file.size, file.sha256)
        if name.startswith(FILES):
            name = name[len(FILES) :]
            self._journal.report(events.make("file", 0, name=name, size=file.size, sha256=file.sha256))
        elif not self._spec.out or name == VARIABLES:
            self._announce(name)

    def keep_text(self, name: str, text: str) -> None:
        """Make an artifact of a text."""
        content, path = text.encode("utf-8"), self.new_path()
        with open(path, "wb") as file:
            file.write(content)
        self.artifacts[name] = Artifact(path, len(content), hashlib.sha256(content).hexdigest())
        if not self._spec.out:
            self._announce(name)

    def write_out(self, sc: SparkContext, run_events: Iterable[events.RawEvent]) -> None:
        """Write the artifacts to the folder of --out. Those that cannot be written go to the notebook."""
        paths = {name: artifact.path for name, artifact in self.artifacts.items()}
        paths = {name: path for name, path in paths.items() if not name.startswith(FILES) and name != VARIABLES}
        written, problem = out.write(sc, self._spec, paths, run_events, self._folder)
        for name in paths:
            self._announce(name, written.get(name))
        if written:
            folder = next(iter(written.values())).rpartition("/")[0]
            self._journal.notice("info", "written to %s: %s" % (folder, ", ".join(written)))
        if problem:
            self._journal.notice("warning", "%s; the files that are not there are sent to the notebook" % problem)

    def remove(self) -> None:
        """Delete the run's folder."""
        scratch.remove(self._folder)

    def _announce(self, name: str, uri: str | None = None) -> None:
        artifact = self.artifacts[name]
        fields = {} if uri is None else {"uri": uri}
        self._journal.report(
            events.make("artifact", 0, name=name, size=artifact.size, sha256=artifact.sha256, **fields)
        )
