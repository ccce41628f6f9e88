"""The shared fixtures are what they say: real executors, and a snapshot that sees what it must."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import starts
from support.processes import session, wait_until_gone
from support.until import until


def _executors(session, workers):
    """Pids of the executors' Python daemons that run a barrier stage of `workers` tasks."""

    def daemon(_):  # nested, so that Spark sends it by value: the executors cannot import the tests
        from pyspark import BarrierTaskContext

        BarrierTaskContext.get().barrier()
        yield os.getppid()

    return set(session.sparkContext.parallelize(range(workers), workers).barrier().mapPartitions(daemon).collect())


def test_a_cluster_has_as_many_executors_as_asked_for(spark_cluster):
    cluster = spark_cluster(2)
    assert len(_executors(cluster, 2)) == 2
    assert spark_cluster(2) is cluster


@pytest.mark.skipif(not starts.ARCHIVE.exists(), reason="`make test` writes the archive")
def test_its_javas_map_the_archive_of_classes(spark_cluster):
    driver = spark_cluster(2).sparkContext._gateway.proc.pid
    executors = [pid for pid, command in session().items() if "CoarseGrainedExecutorBackend" in command]
    assert len(executors) == 2
    for pid in (driver, *executors):
        assert starts.ARCHIVE.name in Path(f"/proc/{pid}/maps").read_text(), pid


@pytest.mark.slow  # all tests of other sizes are
@pytest.mark.executors(1)
def test_a_cluster_of_another_size_replaces_it(spark_cluster):
    assert len(_executors(spark_cluster(1), 1)) == 1
    assert len(_executors(spark_cluster(2), 2)) == 2


@contextlib.contextmanager
def sleeper(environment=None):
    """A process that looks like one of the runtime."""
    command = [sys.executable, "-c", "import time; time.sleep(60)", "ddl_runtime_0"]
    with subprocess.Popen(command, env=environment) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def test_the_snapshot_sees_a_process_of_ours_until_it_is_gone(our_processes):
    with sleeper() as pid:
        until(lambda: pid in our_processes(), 10)  # for a moment a new process has no command line
    assert pid not in wait_until_gone()


def test_the_snapshot_leaves_other_sessions_out(our_processes):
    with sleeper({k: v for k, v in os.environ.items() if k != "DDL_MAGICS_TEST_SESSION"}) as pid:
        assert pid not in our_processes()
