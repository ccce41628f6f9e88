"""The checkpoints that the driver holds of a run: the newest of each fit, for the next attempt or for another run."""

import os
import threading

from . import checkpoint, messages, wire

#: Checkpoints of all fits together may take so much of the driver's disk.
KEPT_BYTES = 4 << 30


class CheckpointFiles:
    """warn: called with a line when there is no more room. Thread-safe."""

    def __init__(self, warn):
        self._warn, self._warned = warn, False
        self._lock = threading.Lock()
        self._files = {}  # by fit: `incoming.Incoming`

    def keep(self, file):
        """Take over a checkpoint, an `Incoming` that is complete, instead of an older one of the same fit.

        ValueError or KeyError where its header has no position.
        """
        position = checkpoint.Position.read(file.header)
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

    def files(self):
        """One `Incoming` a fit, in the order of the fits."""
        with self._lock:
            return [self._files[fit] for fit in sorted(self._files)]


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
