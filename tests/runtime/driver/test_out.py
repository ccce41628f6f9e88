"""--out: the cluster writes a run's files through Hadoop; a folder that it cannot write to is told before training."""

import json
import os

import numpy as np
import pytest
from support.launch import Refused, fetch, finished, load_driver, start
from support.refusals import one_line

from ddl_magics.runtime import events as ev
from ddl_magics.runtime.driver import out
from ddl_magics.runtime.run_spec import RunSpec

CELL = """
import numpy as np
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(np.ones((16, 3), "float32"), np.ones((16, 1), "float32"), batch_size=8, epochs=2, verbose=0)
np.arange(4)
"""


def test_the_files_are_in_the_folder_and_nothing_is_held_for_the_notebook(spark_cluster, tmp_path):
    out = tmp_path / "models" / "of mine"
    ended = finished(spark_cluster(2), CELL, workers=1, out=f"file://{out}")
    names = ["model-0.keras", "result.npy", "weights-0.npz"]
    assert sorted(os.listdir(out)) == ["history.json", *names], "and no unfinished or hidden file beside them"
    artifacts = {event["name"]: event for event in ended.of_kind("artifact")}
    assert "uri" not in artifacts.pop("variables.zip"), "but the cell's variables"
    assert {name: event["uri"] for name, event in artifacts.items()} == {name: f"file://{out}/{name}" for name in names}
    assert all((out / name).stat().st_size == event["size"] for name, event in artifacts.items())
    with np.load(out / "weights-0.npz") as weights:
        assert weights["arr_0"].shape == (3, 1)
    assert json.loads((out / "history.json").read_text()) == {
        "run": ended.run,
        "name": "test",
        "histories": [ended.history],
    }
    notices = [event["message"] for event in ended.of_kind("notice")]
    assert f"written to file://{out}: model-0.keras, result.npy, weights-0.npz, history.json" in notices


def test_what_cannot_be_written_at_the_end_comes_to_the_notebook(spark_cluster, tmp_path):
    out = tmp_path / "out"
    run = start(spark_cluster(2), CELL, workers=1, out=f"file://{out}")
    run.until(lambda run: run.state == ev.RUNNING)
    (out / "result.npy").write_text("somebody else's")
    ended = run.wait()
    assert ended.state == ev.FINISHED and (out / "result.npy").read_text() == "somebody else's"
    uris = {event["name"]: event.get("uri") for event in ended.of_kind("artifact")}
    assert uris["model-0.keras"] and uris["result.npy"] is None
    assert fetch(ended.run, "result.npy")
    (warning,) = [event["message"] for event in ended.of_kind("notice") if event["level"] == "warning"]
    assert (
        "another run has written result.npy there meanwhile; the files that are not there are sent to the notebook"
        in warning
    )


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("nope:///x", 'cannot be written to: UnsupportedFileSystemException: No FileSystem for scheme "nope"'),
        ("file:///proc/models", "the folder cannot be made there"),
        ("file://{0}/file", "there is a file of that name: name a folder"),
        ("file://{0}/full", "the folder holds files (model-0.keras), and none is written over: name another folder"),
        ("hdfs://127.0.0.1:9/x", "cannot be written to: ConnectException: "),
    ],
)
def test_a_folder_that_is_none_is_refused_before_the_training_in_one_line(spark_cluster, tmp_path, uri, says):
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "model-0.keras").write_text("an older one")
    uri = uri.format(tmp_path)
    message = one_line(Refused, start, spark_cluster(2), CELL, out=uri)
    assert message.startswith(f"--out {uri}") and says in message
    assert (tmp_path / "full" / "model-0.keras").read_text() == "an older one"


def test_a_storage_that_does_not_answer_is_not_waited_for(spark_cluster, monkeypatch, tmp_path):
    spark = spark_cluster(2)
    storage = load_driver().storage
    monkeypatch.setattr(storage, "PROBE_SECONDS", 0.0)
    monkeypatch.setattr(storage.Folder, "probe", lambda folder: __import__("time").sleep(1))
    with pytest.raises(Refused, match="no answer within 0 s: is the address right"):
        start(spark, CELL, out=f"file://{tmp_path}/x")


def test_a_run_without_files_leaves_the_folder_to_the_next(tmp_path):
    assert out.write(None, RunSpec(out=f"file://{tmp_path}", run="r", name="n"), {}, [], tmp_path) == ({}, None)
    assert not list(tmp_path.iterdir())
