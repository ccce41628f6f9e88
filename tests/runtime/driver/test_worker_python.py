"""The Python of a worker, as an executor tells it: its place, where it comes from, what it lacks."""

import json
import os
import platform
import sys

import pytest
from support import launch
from support.until import until

from ddl_magics.runtime.driver import worker_python
from ddl_magics.runtime.spark import slots


@pytest.fixture
def cluster(spark_cluster):
    """`cluster(python)`: two executors whose tasks run in it."""

    def of(python=sys.executable):
        sc = spark_cluster(2, python).sparkContext
        until(lambda: slots.registered(sc) == 2, 60)
        return sc

    return of


def asked():
    return json.loads(launch.load_driver().python_of_worker())


def test_an_executor_is_asked_for_its_python(cluster, tmp_path, monkeypatch):
    cluster()
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    found = asked()
    assert (found["version"], found["path"]) == (platform.python_version(), sys.executable)
    assert found["folder"] != os.getcwd(), "an executor has its own"
    assert (found["archive"], found["setting"]) == (None, "PYSPARK_PYTHON")
    assert found["packages"]["tensorflow"].startswith("2.") and found["packages"]["keras"].startswith("3.")
    other = tmp_path / "python"  # without packages of its own
    other.write_text(f'#!/bin/sh\nexec {sys.base_prefix}/bin/python{sys.version_info[0]}.{sys.version_info[1]} "$@"\n')
    other.chmod(0o755)
    cluster(other)
    found = asked()
    assert found["packages"]["tensorflow"] is None and found["setting"] is None


def test_a_python_that_is_not_there_says_so(cluster):
    cluster("/nonexistent/python")
    said = asked()["unknown"]
    assert said.startswith("its Python does not start: ") and "/nonexistent/python" in said


def test_executors_whose_slots_are_taken_are_not_asked(cluster):
    assert worker_python.ask(cluster(), 2) == {"unknown": "not asked: runs take all slots"}


@pytest.mark.parametrize(
    ("settings", "path", "archive", "setting"),
    [
        ({"spark.archives": "hdfs:///e/t.tar.gz#training"}, "/c/training/bin/python", "t.tar.gz", "spark.archives"),
        ({"spark.archives": "/a.zip#a,/t.tgz"}, "/c/t.tgz/bin/python", "t.tgz", "spark.archives"),
        (
            {"spark.archives": "", "spark.yarn.dist.archives": "/a.zip, s3a://b/t.zip#t"},
            "/c/t/bin/python",
            "t.zip",
            "spark.yarn.dist.archives",
        ),
        ({"spark.archives": "/t.tgz#training"}, "/usr/training/bin/python", None, None),
        ({"spark.pyspark.python": "/p/python"}, "/p/python3.11", None, "spark.pyspark.python"),
        ({}, "/usr/bin/python3", None, None),
    ],
)
def test_where_a_python_comes_from(settings, path, archive, setting, monkeypatch):
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    described = {"path": path, "folder": "/c"}
    assert worker_python.origin(settings, "/p/python", described) == {"archive": archive, "setting": setting}
