"""A batch's program, written below --out and run as the batch's driver runs it."""

import ast
import importlib
import json
import os

import pytest
from support.launch import DEFAULT_SPEC, load_driver

CELL = """
import numpy as np
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(np.ones((16, 3), "float32"), np.ones((16, 1), "float32"), batch_size=8, epochs=2, verbose=0)
print("one line\\nanother")
"""


@pytest.fixture
def batch():
    return importlib.import_module(load_driver().__name__.replace(".api", ".batch"))


def written(batch, folder, run, cell=CELL, **options):
    spec = {**DEFAULT_SPEC, "workers": 1, "name": "far", "cell": cell, "run": run, "out": f"file://{folder}"}
    return spec["out"], json.loads(batch.write(json.dumps({"spec": {**spec, **options}})))


def lines_of(printed):
    """The lines without their numbers, which are those of a log, and what the last one says."""
    *lines, end = printed.splitlines()
    assert [line.split("> ")[0] for line in lines] == [f"<ddl_magics {i + 1}" for i in range(len(lines))]
    return [line.partition("> ")[2] for line in lines], json.loads(end.removeprefix("<ddl_magics end> "))


def test_a_program_is_written_once_trains_and_leaves_what_the_run_leaves(spark_cluster, batch, tmp_path, capsys):
    session = spark_cluster(2)
    uri, reply = written(batch, tmp_path / "out", "batch-1")
    assert reply["ok"] and reply == written(batch, tmp_path / "out", "batch-1")[1], "whose answer may have been lost"
    assert reply["args"] == [uri, "batch-1"]
    script = reply["file"].removeprefix("file://")
    with open(script) as file:
        ast.parse(file.read(), feature_version=(3, 8))
    (archive,) = reply["py_files"]
    assert os.path.exists(archive.removeprefix("file://")) and os.listdir(tmp_path / "out") == [".batch-1.batch"]
    assert batch._train(session, uri, "batch-1", batch._Lines()) == 0
    lines, end = lines_of(capsys.readouterr().out)
    assert end["state"] == "FINISHED" and "one line" in lines and "another" in lines
    assert [line.split("  ")[0] for line in lines if line.startswith("epoch")] == ["epoch 1", "epoch 2"]
    assert sorted(os.listdir(tmp_path / "out")) == ["events.jsonl", "history.json", "model-0.keras", "weights-0.npz"]
    events = [json.loads(line) for line in (tmp_path / "out" / "events.jsonl").read_text().splitlines()]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1)) and events[-1]["state"] == "FINISHED"


def test_what_fails_says_why_in_its_last_line(spark_cluster, batch, tmp_path, capsys):
    session = spark_cluster(2)
    uri, _ = written(batch, tmp_path / "out", "batch-2", "1 / 0")
    assert batch._train(session, uri, "batch-2", batch._Lines()) == 1
    lines, end = lines_of(capsys.readouterr().out)
    assert end["state"] == "FAILED" and "ZeroDivisionError" in end["message"] and "Traceback" in "".join(lines)
    refused = written(batch, tmp_path / "out", "batch-6")[1]["error"]["message"]
    assert "the folder has the events of a batch without a model, which has failed: read them" in refused
    assert f"hadoop fs -rm {uri}/events.jsonl" in refused and "\n" not in refused
    uri, _ = written(batch, tmp_path / "wide", "batch-3", workers=9)
    assert batch._train(session, uri, "batch-3", batch._Lines()) == 1
    assert lines_of(capsys.readouterr().out)[1]["message"].startswith("--workers 9 asks for more than the 2 slots")
    assert os.listdir(tmp_path / "wide") == [], "it is free for the next one"
    assert batch._train(session, uri, "batch-4", batch._Lines()) == 1, "its program is not there"
    assert lines_of(capsys.readouterr().out)[1]["message"].startswith(f"--out {uri}/.batch-4.batch cannot be read")


def test_an_out_that_holds_files_is_refused_before_anything_is_written(spark_cluster, batch, tmp_path):
    spark_cluster(2)
    (tmp_path / "kept").write_text("")
    _, reply = written(batch, tmp_path, "batch-5")
    assert not reply["ok"] and "the folder holds files (kept)" in reply["error"]["message"]
    assert os.listdir(tmp_path) == ["kept"]
