"""Copies of the centre on the driver's disk, at a bounded rate, from which a later run can go on."""

import json
import os
import threading
import time
from typing import NamedTuple

import numpy as np

#: The least time between two copies; and a copy may take this share of the time at most.
EVERY_SECONDS = 30.0
MOST_OF_THE_TIME = 0.05

_FILE = "centre.npz"


class Checkpoint(NamedTuple):
    """A centre as it was stored.

    centre: flat, the trainable weights in the model's order. statistics: float64, BatchNorm's moments and the like as
    of the last epoch's end, empty before. fit, epoch: from 0, when it was. version: the commits in it.
    """

    fit: int
    epoch: int
    version: int
    centre: np.ndarray
    statistics: np.ndarray


def write(folder, checkpoint):
    """Replace the folder's checkpoint: who reads sees the old or the new one."""
    path = os.path.join(folder, _FILE)
    about = {"fit": checkpoint.fit, "epoch": checkpoint.epoch, "version": checkpoint.version}
    with open(path + ".part", "wb") as file:
        np.savez(file, about=json.dumps(about), centre=checkpoint.centre, statistics=checkpoint.statistics)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".part", path)


def read(folder):
    """The folder's `Checkpoint`, or None if there is none."""
    try:
        with np.load(os.path.join(folder, _FILE), allow_pickle=False) as stored:
            about = json.loads(str(stored["about"]))
            return Checkpoint(centre=stored["centre"], statistics=stored["statistics"], **about)
    except FileNotFoundError:
        return None


class Writer:
    """Writes to `folder` in a thread what `newest()` gives, a `Checkpoint` or None, where its version has changed."""

    def __init__(self, folder, newest, every_seconds=EVERY_SECONDS):
        self._folder, self._newest, self._every = folder, newest, every_seconds
        self._written = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)
        self._thread.start()

    def close(self):
        """Write what is newest, and end."""
        self._closed.set()
        self._thread.join()

    def _run(self):
        pause = self._every
        while not self._closed.wait(pause):
            pause = max(self._every, self._write() / MOST_OF_THE_TIME)
        self._write()

    def _write(self):
        """Returns the seconds that it took."""
        began = time.monotonic()
        checkpoint = self._newest()
        if checkpoint is not None and checkpoint[:3] != self._written:
            write(self._folder, checkpoint)
            self._written = checkpoint[:3]
        return time.monotonic() - began
