"""The file of a checkpoint: arrays by name and what is to be known of them as JSON, in an .npz that needs no pickle."""

import json
from typing import NamedTuple

import numpy as np

_ABOUT = "about"


class Position(NamedTuple):
    """How far training was: `fit` from 0; `epoch` epochs of it are over and `step` steps of the next.

    complete: the fit has returned.
    """

    fit: int
    epoch: int
    step: int
    complete: bool

    @classmethod
    def read(cls, header):
        """The position in a JSON object; KeyError or ValueError where there is none."""
        return cls(int(header["fit"]), int(header["epoch"]), int(header["step"]), bool(header["complete"]))

    @property
    def file(self):
        """The checkpoint's name among a run's files: a fit has one, the newest."""
        return "checkpoint-%d.npz" % self.fit

    @property
    def words(self):
        """Where training goes on from it."""
        if self.complete:
            return "after fit %d" % (self.fit + 1)
        words = "epoch %d" % (self.epoch + 1)
        words = "step %d of %s" % (self.step + 1, words) if self.step else words
        return "%s of fit %d" % (words, self.fit + 1) if self.fit else words


def write(path, about, arrays):
    """about: JSON; arrays: {name: array}, of any dtype of numpy's, and of TensorFlow's that numpy holds as bytes."""
    np.savez(path, **dict(arrays, **{_ABOUT: np.frombuffer(json.dumps(about).encode(), np.uint8)}))


def read(file):
    """(about, arrays) of a path or binary file. ValueError, KeyError or OSError where it holds no checkpoint."""
    with np.load(file, allow_pickle=False) as stored:
        arrays = {key: stored[key] for key in stored.files}
    return json.loads(arrays.pop(_ABOUT).tobytes().decode()), arrays
