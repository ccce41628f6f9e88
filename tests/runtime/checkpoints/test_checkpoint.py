"""The file of a checkpoint, of which is read what is known without its arrays; and those that the driver keeps."""

import tracemalloc
import zipfile
from unittest.mock import Mock

import numpy as np
import pytest
from support.channels import SentFrames

from ddl_magics.runtime.checkpoints import checkpoint, checkpoint_files
from ddl_magics.runtime.checkpoints.checkpoint import Position
from ddl_magics.runtime.checkpoints.checkpoint_files import AdoptedFile, CheckpointFiles, CheckpointSource, NoCheckpoint
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.runtime.spark.storage import StorageError
from ddl_magics.runtime.transport import messages, wire


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


def test_a_checkpoint_that_a_storage_does_not_give_is_none(tmp_path):
    source = CheckpointSource("there", Mock(side_effect=StorageError("there: no such folder")))
    with pytest.raises(NoCheckpoint, match=r"^there: no such folder$"):
        CheckpointFiles(warn=print).adopt(source, str(tmp_path / "own.npz"))


def test_what_is_known_is_read_alone(stored):
    assert checkpoint.read_metadata(str(stored)) == checkpoint.read(stored)[0]


@pytest.mark.parametrize(
    ("position", "words"),
    [
        (Position(0, 0, 0, False), "epoch 1"),
        (Position(0, 2, 3, False), "step 4 of epoch 3"),
        (Position(1, 2, 0, False), "epoch 3 of fit 2"),
        (Position(2, 0, 1, False), "step 2 of epoch 1 of fit 3"),
        (Position(1, 5, 0, True), "after fit 2"),
    ],
)
def test_where_training_resumes_is_said_from_1(position, words):
    assert position.resume_point == words
    files = [file_of(Position(0, 9, 9, True)), file_of(position)]
    assert checkpoint_files.resume_point(files) == f"from {words}"
    assert checkpoint_files.positions(files) == [Position(0, 9, 9, True), position]


def test_without_a_checkpoint_training_resumes_from_the_beginning():
    assert checkpoint_files.resume_point([]) == "from the beginning"


def file_of(position, path="", size=0):
    return AdoptedFile(str(path), position._asdict(), size, "")


@pytest.fixture
def make(tmp_path):
    """Makes a checkpoint's file of a fit and size."""

    def make(fit, size, epoch=1):
        path = tmp_path / f"{fit} {epoch}"
        path.write_bytes(bytes(size))
        return file_of(Position(fit, epoch, 0, False), path, size)

    return make


def test_the_newest_of_each_fit_is_kept_as_far_as_there_is_room(make, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_files, "KEPT_BYTES", 10)
    warnings, uploaded = [], []
    copies = type("Copies", (), {"upload": lambda file: uploaded.append(file)})
    files = CheckpointFiles(warnings.append, copies)
    kept = [make(1, 4), make(0, 6), make(1, 4, epoch=2)]
    for file in kept:
        files.keep(file)
    assert files.files() == kept[1:] and not warnings, "10 bytes, and the older one does not count"
    refused = [make(2, 1), make(1, 5, epoch=3)]
    for file in refused:
        files.keep(file)
    assert files.files() == kept[1:] and sorted(path.name for path in tmp_path.iterdir()) == ["0 1", "1 2"]
    assert len(warnings) == 1 and warnings[0].startswith("checkpoints take more than 0 GB of the driver's disk: the")
    assert uploaded == kept + refused, "the storage has room for all"


def test_the_bound_is_told_in_gigabytes(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_files, "KEPT_BYTES", 3 << 30)
    warnings, files = [], []
    for fit in range(2):
        (tmp_path / str(fit)).touch()
        files.append(file_of(Position(fit, 1, 0, False), tmp_path / str(fit), 2 << 30))
    kept = CheckpointFiles(warnings.append)
    for file in files:
        kept.keep(file)
    assert kept.files() == files[:1] and warnings[0].startswith("checkpoints take more than 3 GB of the driver's disk")


def test_another_runs_checkpoints_are_looked_for_where_the_driver_has_them_then_in_the_folder(make, tmp_path):
    spec = RunSpec(resume="before", checkpoints=str(tmp_path / "folder"))
    job = type("Job", (), {"checkpoints": CheckpointFiles(print)})
    with pytest.raises(NoCheckpoint, match="--resume before: there is no checkpoint of it here"):
        checkpoint_files.sources(None, spec, job)
    (tmp_path / "folder").mkdir()
    for name in ("checkpoint-1.npz", "checkpoint-0.npz", "checkpoint-0.npz.part", "other.npz"):
        (tmp_path / "folder" / name).write_text(name)
    found = checkpoint_files.sources(None, spec, None)
    assert [source.location.rpartition("/")[2] for source in found] == ["checkpoint-0.npz", "checkpoint-1.npz"]
    found[0].copy(str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_text() == "checkpoint-0.npz"
    file = make(0, 3)
    job.checkpoints.keep(file)
    assert [source.location for source in checkpoint_files.sources(None, spec, job)] == [file.path]


def test_checkpoints_come_in_the_storage_where_neither_has_them(tmp_path, monkeypatch):
    asked, loaded = [], []

    class Folder:
        def __init__(self, *where):
            asked.append(where)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def download(self, name, path):
            loaded.append((name, path))

    monkeypatch.setattr(checkpoint_files.storage, "Folder", Folder)
    monkeypatch.setattr(checkpoint_files.storage, "names", lambda *where: ["checkpoint-0.1.npz", "checkpoint-0.2.npz"])
    spec = RunSpec(run="new", resume="before", resume_uri="hdfs:///runs/")
    (source,) = checkpoint_files.sources("spark", spec, None)
    source.copy("path")
    assert source.location == "hdfs:///runs/before/checkpoint-0.2.npz"
    assert loaded == [("checkpoint-0.2.npz", "path")]
    assert asked == [("spark", "--checkpoint", "hdfs:///runs/before", "new")]


def test_a_rank_is_sent_the_headers_and_the_bytes_and_a_broken_connection_is_left_to_the_reader(make):
    channel, file = SentFrames(), make(0, 3)
    checkpoint_files.send(channel, [file, file])
    assert channel.sent == [(messages.CHECKPOINT, file.header), (messages.PIECE, bytes(3))] * 2

    def broken(*_):
        raise wire.ConnectionLost("gone")

    channel.send = broken
    checkpoint_files.send(channel, [file])
