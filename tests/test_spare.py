"""Spares, which have TensorFlow imported: they become ranks of the next run where they can, are fresh, do not stay."""

import importlib
import os
import signal
import sys
import time
from pathlib import Path

import launch
import processes
import pytest
from until import until

pytestmark = pytest.mark.timeout(600)  # a cluster, and several runs in it

#: Leaves traces in its process that a second cell must not find, and says of those that it found.
CELL = """
import builtins, os, sys, tempfile, keras, numpy as np
found = [hasattr(builtins, "left_behind"), keras.config.floatx(), os.getcwd() == sys.path[0] == tempfile.gettempdir()]
builtins.left_behind = True
x = np.random.default_rng(0).normal(size=(32, 4))
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
loss = model.fit(x, x[:, :1], batch_size=16, verbose=0).history["loss"]
keras.config.set_floatx("float64")
[found, loss, os.environ["OMP_NUM_THREADS"]]
"""


def pids(run):
    return {event["pid"] for event in run.of_kind("worker")}


def run(spark, **spec):
    ended = launch.run_cell(spark, CELL, **{"spare": True, "seed": 3, **spec})
    assert ended.state == "FINISHED", ended.message
    return ended


def waiting(number):
    """The spares, once they are so many: they take a moment to begin."""
    until(lambda: len(processes.spares()) == number, 30)
    return processes.spares()


@pytest.fixture
def spares(spark_cluster):
    """(a cluster of two workers, the two spares that wait there): those of the test before, or of a run for them."""
    spark = spark_cluster(2)
    if len(processes.spares()) != 2:
        run(spark)
    return spark, waiting(2)


def test_each_run_is_in_the_spares_of_the_one_before_and_finds_nothing_of_it(spares):
    spark, first = spares
    runs = [run(spark)]
    second = waiting(2)
    runs.append(run(spark))
    third = waiting(2)
    assert [pids(each) for each in runs] == [first, second]
    assert len(first | second | third) == 6, "no process is two ranks"
    own = run(spark, spare=False)
    assert pids(own).isdisjoint(third)
    assert not processes.spares(), "a run that wants none ends those that wait"
    assert runs[0].result == runs[1].result == own.result and own.result[0] == [False, "float32", True]


def test_a_run_of_another_size_and_one_whose_spares_were_killed_get_processes_of_their_own(spares):
    spark, first = spares
    assert pids(run(spark, workers=1)).isdisjoint(first)
    until(lambda: processes.spares() - first, 30)
    killed = processes.spares()  # that one, for a run of one worker, and one for two as long as its worker is there
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    assert pids(run(spark)).isdisjoint(killed)


def test_a_rank_that_was_a_spare_dies_as_any_other(spares):
    spark, first = spares
    ended = launch.run_cell(
        spark,
        "import os, signal, time\nif ddl.rank: os.kill(os.getpid(), signal.SIGKILL)\ntime.sleep(60)",
        spare=True,
        attempts=1,
    )
    assert ended.state == "FAILED" and "was killed by SIGKILL" in ended.message
    assert pids(ended) == first and not processes.wait_until_gone()


def test_nothing_is_left_after_the_session(spares):
    spark, waited = spares
    homes = [Path(os.readlink(f"/proc/{pid}/cwd")) for pid in waited]
    spark.stop()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in waited), 30)
    assert not any(home.exists() for home in homes)


# -- without Spark, this process is the worker

JOB = {"size": 1, "executor_cores": 1, "gpus": None}
THREADS = {"OMP_NUM_THREADS": "1"}


@pytest.fixture
def worker(monkeypatch):
    """The runtime's module `spare` in a process that Spark would keep."""
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    package = launch.load_driver().__package__
    module = importlib.import_module(package + ".spare")
    module.home = Path(sys.modules[package].__path__[0]).parent
    yield module
    module.drop()
    assert not processes.spares()


def leave(worker, job=JOB, **bounds):
    worker.leave(job, str(worker.home), THREADS, **bounds)
    return worker._kept


def take(worker, folder, job=JOB):
    environment = worker.rank_process.environment(job, str(worker.home), str(folder))
    return worker.take(job, environment, str(folder))


@pytest.mark.parametrize("bound", [{"seconds": 0}, {"most_bytes": 1 << 20}], ids=["time", "memory"])
def test_it_ends_by_itself(worker, bound):
    spare = leave(worker, **bound)
    assert spare.process.wait(60) == 0
    assert not os.path.exists(spare.home)


@pytest.mark.parametrize(
    ("variable", "job"),
    [
        ("ANYTHING", JOB),
        (None, dict(JOB, gpus=["1"])),
        (None, dict(JOB, size=2)),
        (None, dict(JOB, executor_cores=2)),
    ],
)
def test_it_is_ended_where_a_process_would_be_started_otherwise(worker, monkeypatch, tmp_path, variable, job):
    spare = leave(worker)
    if variable:
        monkeypatch.setenv(variable, "is new")
    assert take(worker, tmp_path, job) is None
    assert spare.process.returncode == -signal.SIGKILL and not os.path.exists(spare.home)


def test_modules_that_came_to_the_worker_are_another_start(worker, monkeypatch, tmp_path):
    leave(worker)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert take(worker, tmp_path) is None


def test_one_that_does_not_answer_is_ended(worker, monkeypatch, tmp_path):
    monkeypatch.setattr(worker, "CLAIM_SECONDS", 0.5)
    spare = leave(worker)
    os.kill(spare.process.pid, signal.SIGSTOP)
    began = time.monotonic()
    assert take(worker, tmp_path) is None and spare.process.returncode == -signal.SIGKILL
    assert time.monotonic() - began < 10


def test_none_is_left_in_a_worker_that_ends_with_its_task(worker, monkeypatch):
    monkeypatch.delenv("SPARK_REUSE_WORKER")
    assert leave(worker) is None
