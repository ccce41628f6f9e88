"""The Livy of the tests comes up and goes without a trace, and its two environments lean on nothing of each other."""

import json
import os
import re
import subprocess

import pytest
from livy import rig
from livy.client import Client
from support.paths import ROOT

# By hand, as no fixture is used: they need what `make livy-env` builds.
pytestmark = [pytest.mark.livy, pytest.mark.spark]


@pytest.mark.slow
def test_a_server_can_be_started_twice_and_leaves_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LIVY_RIG_MULTI_STATEMENTS", "1")
    state = tmp_path / "state"
    port = str(rig.free_port())
    for _ in range(2):
        assert rig.main(["start", "--state", str(state), "--port", port, "--master", "local[1]"]) == 0
    assert set(re.findall(r"http\S+", capsys.readouterr().out)) == {f"http://127.0.0.1:{port}"}
    session = Client(f"http://127.0.0.1:{port}").create()
    session.until("idle")
    assert session.text("a = 1\nb = 2\na + b") == "3"
    assert len(rig.processes(state)) >= 3  # server, driver, Python
    assert rig.main(["stop", "--state", str(state)]) == 0
    assert rig.processes(state) == {}
    assert not state.exists()


def modules_of(environment, *names):
    """Which of the modules the environment's Python finds, in a folder that is not ours."""
    code = f"from importlib.util import find_spec; print([n for n in {names} if find_spec(n)])"
    python = ROOT / environment / "bin" / "python"
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    out = subprocess.run([python, "-c", code], cwd="/", env=clean, check=True, capture_output=True, text=True).stdout
    return json.loads(out.replace("'", '"'))


def test_the_clusters_python_has_spark_and_tensorflow_and_nothing_of_ours():
    names = ("pyspark", "tensorflow", "sklearn", "ddl_magics", "sparkmagic", "ipykernel")
    assert modules_of(".venv-cluster", *names) == ["pyspark", "tensorflow", "sklearn"]


def test_the_notebooks_python_has_ours_and_sparkmagic_and_neither_spark_nor_tensorflow():
    names = ("ddl_magics", "sparkmagic", "six", "ipykernel", "nbclient", "papermill", "pyspark", "tensorflow", "keras")
    assert modules_of(".venv-notebook", *names) == [
        *("ddl_magics", "sparkmagic", "six", "ipykernel", "nbclient", "papermill")
    ]
    assert (ROOT / ".venv-notebook/share/jupyter/kernels/pysparkkernel/kernel.json").exists()
