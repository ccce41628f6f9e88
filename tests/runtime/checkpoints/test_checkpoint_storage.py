"""--checkpoint: a run resumes from the files in the cluster's storage alone, without driver and notebook."""

import os
import signal
import threading
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from support.launch import Refused, finished, load_driver, start, weights
from support.refusals import one_line
from support.until import until

from ddl_magics.runtime.checkpoints import checkpoint_storage as stored
from ddl_magics.runtime.spark.storage import StorageError

CELL = """
import keras, numpy as np, time
x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
class Slow(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        time.sleep(0.15)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
model.compile("adam", "mse")
first = model.fit(x, x[:, :2], batch_size=32, epochs=2, verbose=0)
fit = model.fit(x, x[:, :2], batch_size=16, epochs=6, callbacks=[Slow()], verbose=0)
[first.history, fit.history]
"""
FAST = CELL.replace("0.15", "0")
EPOCHS = 6


def in_epoch(number):
    return lambda run: any(e["kind"] == "steps" and (e["fit"], e["epoch"]) == (1, number) for e in run.events)


def notices(ended, level):
    return [e["message"] for e in ended.of_kind("notice") if e["level"] == level and "checkpoint" in e["message"]]


def steps(ended):
    return sum(e["count"] for e in ended.of_kind("steps"))


def written(folder):
    return sorted(path.name for path in folder.iterdir())


def forget(run):
    """Have the driver forget the run, as a new driver would."""
    load_driver().registry._jobs.pop(run).forget()


def test_a_run_resumes_from_the_storage_after_its_driver_is_gone(spark_cluster, tmp_path):
    spark, uri = spark_cluster(2), f"file://{tmp_path}/of all runs"
    run = start(spark, CELL, attempts=1, checkpoint=uri)
    run.until(in_epoch(3), 90)
    os.kill(run.pid(1), signal.SIGKILL)
    ended = run.wait()
    assert ended.state == "FAILED" and "--resume test continues from epoch " in ended.message
    folder = tmp_path / "of all runs" / ended.run
    assert notices(ended, "info") == [f"checkpoints are written to {uri}/{ended.run}"] and not notices(ended, "warning")
    names = written(folder)
    assert [name.split(".")[0] for name in names] == ["checkpoint-0", "checkpoint-1"], "one a fit, and nothing beside"
    assert not ended.of_kind("artifact"), "the notebook need not keep them too"
    forget(ended.run)
    undisturbed = finished(spark, FAST)
    resumed = finished(spark, FAST, resume=ended.run, resume_uri=uri)
    assert steps(resumed) < steps(undisturbed), "it did not start from the beginning"
    assert (resumed.result, resumed.history) == (undisturbed.result, undisturbed.history)
    for mine, theirs in zip(weights(resumed.run), weights(undisturbed.run), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert written(folder) == names, "reading leaves them as they are"


def test_a_storage_that_fails_later_costs_a_notice(spark_cluster, tmp_path):
    run = start(spark_cluster(2), CELL, workers=1, checkpoint=f"file://{tmp_path}/storage")
    run.until(in_epoch(1), 90)
    (tmp_path / "storage").rename(tmp_path / "elsewhere")
    (tmp_path / "storage").write_text("a file where the folder was")
    ended = run.finished()
    assert len(ended.history["loss"]) == EPOCHS
    (warning,) = notices(ended, "warning")
    assert warning.startswith(f"--checkpoint file://{tmp_path}/storage/{ended.run} cannot be written to: ")
    assert warning.endswith("; the training continues, and the next checkpoint is tried again")


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("nope:///x", 'cannot be written to: UnsupportedFileSystemException: No FileSystem for scheme "nope"'),
        ("file:///proc/checkpoints", "the folder cannot be made there: name another"),
        ("hdfs://127.0.0.1:9/x", "cannot be written to: ConnectException: "),
    ],
)
def test_an_unusable_folder_is_refused_before_the_training(spark_cluster, uri, says):
    message = one_line(Refused, start, spark_cluster(2), CELL, checkpoint=uri)
    assert message.startswith(f"--checkpoint {uri}/") and says in message


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("file://{0}", "there is no checkpoint of it here"),
        ("hdfs://127.0.0.1:9/x", "--checkpoint hdfs://127.0.0.1:9/x/before cannot be read: ConnectException"),
        ("file://{0}/broken", "before/checkpoint-0.3.npz cannot be read as a checkpoint: "),
    ],
)
def test_a_missing_or_broken_checkpoint_is_refused_in_one_line(spark_cluster, tmp_path, uri, says):
    (tmp_path / "broken" / "before").mkdir(parents=True)
    (tmp_path / "broken" / "before" / "checkpoint-0.3.npz").write_text("half of one")
    assert says in one_line(Refused, start, spark_cluster(2), CELL, resume="before", resume_uri=uri.format(tmp_path))


def test_the_newest_of_each_fit_is_chosen():
    names = ["checkpoint-1.9.npz", "checkpoint-1.10.npz", ".r.checkpoint-1.11.npz.part", "checkpoint-0.2.npz", "x.npz"]
    assert stored.newest(names) == ["checkpoint-0.2.npz", "checkpoint-1.10.npz"]
    assert stored.newest([]) == []


class FakeFolder:
    """A storage that begins to write when `gate` is open, and fails while `broken`."""

    def __init__(self):
        self.files, self.log = {}, []
        self.gate, self.began, self.broken = threading.Event(), threading.Event(), False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def upload(self, path, name):
        self.began.set()
        assert self.gate.wait(10)
        if self.broken:
            raise StorageError("--checkpoint fake cannot be written to: full")
        self.files[name] = Path(path).read_text()
        self.log.append(sorted(self.files))

    def delete(self, name):
        del self.files[name]


@pytest.fixture
def storage(monkeypatch):
    folder = FakeFolder()
    monkeypatch.setattr(stored, "Folder", lambda *_: folder)
    return folder


@pytest.fixture
def copies(storage, tmp_path):
    counter, shown = iter(range(100)), []

    def new_file():
        return str(tmp_path / str(next(counter)))

    copies = stored.CheckpointUploader(None, "fake", "r", new_file, lambda *notice: shown.append(notice))
    copies.shown = shown
    return copies


def checkpoint_of(fit, text, folder):
    path = folder / f"{fit} {text}"
    path.write_text(text)
    header = {"fit": fit, "epoch": 1, "step": 0, "complete": False}
    return type("File", (), {"path": str(path), "header": header})


def test_a_slow_storage_gets_only_the_newest_and_always_has_one(storage, copies, tmp_path):
    (tmp_path / "from the rank").mkdir()
    for text in ("first", "second", "third"):
        file = checkpoint_of(0, text, tmp_path / "from the rank")
        copies.upload(file)
        os.unlink(file.path)  # the driver keeps none but the newest
        assert storage.began.wait(10)
    storage.gate.set()
    assert copies.close()
    assert storage.files == {"checkpoint-0.2.npz": "third"}
    assert storage.log == [["checkpoint-0.1.npz"], ["checkpoint-0.1.npz", "checkpoint-0.2.npz"]]
    assert [path.name for path in tmp_path.iterdir()] == ["from the rank"], "no copy is left on the driver's disk"


def test_nobody_waits_for_what_is_written(storage, copies, tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "CLOSE_SECONDS", 10)
    storage.gate.set()
    (tmp_path / "from the rank").mkdir()
    copies.upload(checkpoint_of(0, "first", tmp_path / "from the rank"))
    until(lambda: storage.files, 10)
    until(lambda: not copies._pending, 10)
    assert copies.close()


def test_a_failure_is_reported_once_and_may_pass(storage, copies, tmp_path):
    storage.gate.set()
    storage.broken = True
    (tmp_path / "from the rank").mkdir()
    for text in ("first", "second"):
        storage.began.clear()
        copies.upload(checkpoint_of(0, text, tmp_path / "from the rank"))
        assert storage.began.wait(10)
    storage.broken = False
    copies.upload(checkpoint_of(1, "third", tmp_path / "from the rank"))
    assert not copies.close(), "that of the first fit is not there"
    assert list(storage.files.values()) == ["third"]
    assert [level for level, _ in copies.shown] == ["warning", "info"]


def test_a_storage_that_does_not_answer_is_waited_for_and_named(storage, copies, tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "CLOSE_SECONDS", 0.05)
    assert copies.close(), "nothing was to be written"
    (tmp_path / "from the rank").mkdir()
    copies.upload(checkpoint_of(0, "first", tmp_path / "from the rank"))
    assert not copies.close()
    assert copies.shown == [("warning", "--checkpoint fake does not answer: a checkpoint is not written")]
    storage.gate.set()
    copies._thread.join(10)


def test_a_disk_without_links_gets_a_copy(storage, copies, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", Mock(side_effect=OSError))
    (tmp_path / "from the rank").mkdir()
    copies.upload(checkpoint_of(0, "first", tmp_path / "from the rank"))
    storage.gate.set()
    assert copies.close() and storage.files == {"checkpoint-0.1.npz": "first"}


def test_a_run_has_a_folder_under_the_uri():
    assert stored.folder_of("hdfs:///runs/", "r") == stored.folder_of("hdfs:///runs", "r") == "hdfs:///runs/r"
