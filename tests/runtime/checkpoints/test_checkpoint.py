"""The file of a checkpoint: what is known of it is read without its arrays."""

import tracemalloc
import zipfile

import numpy as np
import pytest

from ddl_magics.runtime.checkpoints import checkpoint
from ddl_magics.runtime.checkpoints.checkpoint import Position
from ddl_magics.runtime.checkpoints.checkpoint_files import CheckpointFiles, CheckpointSource, NoCheckpoint


@pytest.fixture
def stored(tmp_path):
    path = tmp_path / "checkpoint-0.npz"
    checkpoint.write(str(path), {**Position(0, 2, 0, False)._asdict(), "model": "m"}, {"w": np.ones(10_000_000)})
    return path


def test_another_runs_checkpoint_is_adopted_in_little_memory(stored, tmp_path):
    files = CheckpointFiles(warn=print)
    tracemalloc.start()
    try:
        files.adopt(CheckpointSource("there", lambda own: stored.rename(own)), str(tmp_path / "own.npz"))
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [file.header["epoch"] for file in files.files()] == [2]
    assert most < 10e6, "the arrays take 80 MB"


@pytest.mark.parametrize("damage", ["cut", "changed", "no checkpoint"])
def test_a_damaged_checkpoint_is_refused(stored, tmp_path, damage):
    content = bytearray(stored.read_bytes())
    if damage == "cut":
        stored.write_bytes(content[: len(content) // 2])
    elif damage == "changed":
        content[len(content) // 2] ^= 1
        stored.write_bytes(content)
    else:
        with zipfile.ZipFile(stored, "w") as archive:
            archive.writestr("other", "x")
    with pytest.raises(NoCheckpoint, match="there cannot be read as a checkpoint"):
        CheckpointFiles(warn=print).adopt(
            CheckpointSource("there", lambda own: stored.rename(own)), str(tmp_path / "own.npz")
        )


def test_what_is_known_is_read_alone(stored):
    assert checkpoint.read_metadata(str(stored)) == checkpoint.read(stored)[0]
