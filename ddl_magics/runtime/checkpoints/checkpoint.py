"""The file of a checkpoint: named arrays and a JSON object about them, in an .npz that needs no pickle."""

from __future__ import annotations

import json
import os
import zipfile
from typing import Any, BinaryIO, Mapping, NamedTuple, Protocol

import numpy as np

_METADATA = "about"


class Position(NamedTuple):
    """How far training was: `epoch` epochs of fit number `fit` (from 0) are over, and `step` steps of the next.

    complete: the fit has returned.
    """

    fit: int
    epoch: int
    step: int
    complete: bool

    @classmethod
    def from_json(cls, header: Mapping[str, Any]) -> Position:
        """The position in a JSON object. Raises KeyError, ValueError or TypeError where there is none."""
        return cls(int(header["fit"]), int(header["epoch"]), int(header["step"]), bool(header["complete"]))

    @property
    def file(self) -> str:
        """The checkpoint's name among a run's files: each fit has one, its newest."""
        return "checkpoint-%d.npz" % self.fit

    @property
    def resume_point(self) -> str:
        """Where training resumes, in words: "step 4 of epoch 2", and "of fit 2" from the second fit on."""
        if self.complete:
            return "after fit %d" % (self.fit + 1)
        words = "epoch %d" % (self.epoch + 1)
        words = "step %d of %s" % (self.step + 1, words) if self.step else words
        return "%s of fit %d" % (words, self.fit + 1) if self.fit else words


class CheckpointFile(Protocol):
    """A complete checkpoint on the driver's disk: an `incoming.IncomingFile`, or a `checkpoint_files.File`."""

    @property
    def path(self) -> str: ...

    @property
    def header(self) -> Mapping[str, Any]:
        """As `messages.CHECKPOINT` has it: with the fields of `Position`."""

    @property
    def size(self) -> int: ...

    @property
    def sha256(self) -> str: ...


def write(path: str, metadata: Any, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a checkpoint. about: JSON-able. arrays: by name, of any shape; the name "about" is taken.

    Any dtype but object. One that numpy has from TensorFlow, such as bfloat16, is read back as void of the same size.
    """
    entries: dict[str, Any] = {**arrays, _METADATA: np.frombuffer(json.dumps(metadata).encode(), np.uint8)}
    np.savez(path, **entries)


def read(file: str | os.PathLike[str] | BinaryIO) -> tuple[Any, dict[str, np.ndarray]]:
    """(about, arrays) of a path or binary file.

    Raises ValueError, KeyError, OSError or zipfile.BadZipFile where it holds no checkpoint.
    """
    with np.load(file, allow_pickle=False) as stored:
        arrays = {key: stored[key] for key in stored.files}
    return _parsed(arrays.pop(_METADATA)), arrays


def read_metadata(path: str) -> Any:
    """Only `about`, in little memory; the checksums of the arrays are verified. Raises as `read`."""
    with zipfile.ZipFile(path) as archive:
        damaged = archive.testzip()
    if damaged is not None:
        raise ValueError("%s is damaged" % damaged)
    with np.load(path, allow_pickle=False) as stored:
        return _parsed(stored[_METADATA])


def _parsed(metadata: np.ndarray) -> Any:
    return json.loads(metadata.tobytes().decode())
