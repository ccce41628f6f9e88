"""`ddl-magics run` on a real Livy: the session is made for it, and ends with it; a batch needs none."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from livy.client import Client
from support import sparkmagic_kernels, trainings
from support.paths import ROOT

#: In float64, so that a batch can be compared with a session.
MODEL = """
import keras
import numpy as np

keras.backend.set_floatx("float64")
keras.utils.set_random_seed(7)
model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
x = np.random.RandomState(1).rand(96, 5)
model.fit(x, x.sum(axis=1, keepdims=True), batch_size=16, epochs=3, verbose=0)
print("trained by", ddl.rank)
"""


@pytest.fixture
def run_there(livy_server, data_dir, tmp_path):
    """`run_there(source, *words)`: (exit status, answer, messages) of `ddl-magics run` on the Livy."""
    configured = sparkmagic_kernels.configuration(tmp_path / "sparkmagic", livy_server.url)

    def run(source, *words):
        (tmp_path / "train.py").write_text(source)
        command = [sys.executable, "-m", "ddl_magics", "run", "train.py", "--cluster", livy_server.url, "--json"]
        done = subprocess.run(
            [*command, *words],
            cwd=tmp_path,
            env={**os.environ, **configured, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=300,
        )
        return done.returncode, json.loads(done.stdout), done.stderr

    return run


@pytest.fixture
def shared_folder(livy_server):
    """URI and path of a new folder that Livy lets a batch's files lie in."""
    with tempfile.TemporaryDirectory(dir=livy_server.state / "files") as path:
        yield f"file://{path}", Path(path)


@pytest.mark.slow
@pytest.mark.timeout(700)
def test_a_batch_trains_as_a_session_does(livy_server, run_there, shared_folder):
    uri, path = shared_folder
    words = ["--seed", "5", "--workers", "2", "--out"]
    status, answer, messages = run_there(MODEL, "--batch", "--", "--name", "far", *words, f"{uri}/batch")
    assert (status, answer["state"], answer["error"]) == (0, "FINISHED", None), messages
    assert "trained by 0" in messages and "epoch 3  loss " in messages
    assert Client(livy_server.url).get("/sessions").json["sessions"] == [], "what wrote the files is deleted"
    assert Client(livy_server.url).get(answer["batch"].removeprefix(livy_server.url)).json["state"] == "success"
    status, _, messages = run_there(MODEL, "--", *words, f"{uri}/session")
    assert status == 0, messages

    def weights(folder):
        with np.load(path / folder / "weights-0.npz") as file:
            return {name: file[name] for name in file.files}

    ours, theirs = weights("batch"), weights("session")
    assert ours.keys() == theirs.keys() and len(ours) == 4
    for name, weight in theirs.items():
        np.testing.assert_allclose(ours[name], weight, rtol=0, atol=1e-9)
    of_batch = {file.name for file in (path / "batch").iterdir()}
    assert of_batch == {file.name for file in (path / "session").iterdir()} | {"events.jsonl"}
    events = [json.loads(line) for line in (path / "batch" / "events.jsonl").read_text().splitlines()]
    assert events[-1]["state"] == "FINISHED" and [e["epoch"] for e in events if e["kind"] == "epoch"] == [0, 1, 2]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_batch_whose_cell_fails_ends_with_1(run_there, shared_folder):
    uri, path = shared_folder
    words = ["--batch", "--", "--workers", "1", "--out", f"{uri}/failed"]
    status, answer, messages = run_there("print('before')\n1 / 0", *words)
    assert (status, answer["state"]) == (1, "FAILED") and "ZeroDivisionError" in answer["error"], messages
    assert "before" in messages and [file.name for file in (path / "failed").iterdir()] == ["events.jsonl"]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_script_is_trained_on_a_livy(livy_server, data_dir, tmp_path):
    (tmp_path / "train.py").write_text(trainings.source())
    configured = sparkmagic_kernels.configuration(tmp_path / "sparkmagic", livy_server.url)
    command = [sys.executable, "-m", "ddl_magics", "run", "train.py", "--cluster", livy_server.url, "--json"]
    done = subprocess.run(
        [*command, "--", "--name", "far", "--workers", "2"],
        cwd=tmp_path,
        env={**os.environ, **configured, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=380,
    )
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    assert (run["name"], run["state"], run["workers"]) == ("far", "FINISHED", 2)
    assert run["cluster"].startswith("Livy session ") and "trained by 0" in done.stderr
    assert Client(livy_server.url).get("/sessions").json["sessions"] == [], "it ended with the kernel"
