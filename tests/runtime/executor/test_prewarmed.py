"""Prewarmed processes, which have TensorFlow imported, become ranks of the next run, are fresh and do not stay."""

import importlib
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from support import launch, processes
from support.until import until

from ddl_magics.runtime.rank import JobConfig
from ddl_magics.runtime.transport.credentials import Credentials

pytestmark = pytest.mark.timeout(600)  # a cluster, and several runs in it

#: Leaves traces in its process that a second cell must not find, and says of those that it found.
CELL = """
import builtins, os, sys, tempfile, keras, numpy as np
folder = os.path.join(tempfile.gettempdir(), "work")
found = [hasattr(builtins, "left_behind"), keras.config.floatx(), os.getcwd() == sys.path[0] == folder]
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
    ended = launch.run_cell(spark, CELL, **{"prewarm": True, "seed": 3, **spec})
    assert ended.state == "FINISHED", ended.message
    return ended


def waiting(number):
    """The prewarmed processes, once they are so many: they take a moment to begin."""
    until(lambda: len(processes.prewarmed()) == number, 30)
    return processes.prewarmed()


@pytest.fixture(scope="module")
def cluster(spark_cluster):
    """Where each executor has one Python worker: of several idle ones, Spark would give a run whichever it likes."""
    return spark_cluster(2, fresh=True)


@pytest.fixture
def prewarmed(cluster):
    """(a cluster of two workers, the two processes that wait there): of the test before, or of a run for them."""
    spark = cluster
    if len(processes.prewarmed()) != 2:
        run(spark)
    return spark, waiting(2)


@pytest.mark.fresh_cluster
def test_each_run_is_in_the_prewarmed_processes_of_the_one_before_and_finds_nothing_of_it(prewarmed):
    spark, first = prewarmed
    runs = [run(spark)]
    second = waiting(2)
    runs.append(run(spark))
    third = waiting(2)
    assert [pids(each) for each in runs] == [first, second]
    assert len(first | second | third) == 6, "no process is two ranks"
    own = run(spark, prewarm=False)
    assert pids(own).isdisjoint(third)
    assert not processes.prewarmed(), "a run that wants none ends those that wait"
    assert runs[0].result == runs[1].result == own.result and own.result[0] == [False, "float32", True]


@pytest.mark.fresh_cluster
def test_a_run_of_another_size_and_one_whose_prewarmed_processes_were_killed_get_some_of_their_own(prewarmed):
    spark, first = prewarmed
    assert pids(run(spark, workers=1)).isdisjoint(first)
    until(lambda: processes.prewarmed() - first, 30)
    killed = processes.prewarmed()  # that one, for a run of one worker, and one for two as long as its worker is there
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    assert pids(run(spark)).isdisjoint(killed)


@pytest.mark.fresh_cluster
def test_a_rank_that_was_prewarmed_dies_as_any_other(prewarmed):
    spark, first = prewarmed
    ended = launch.run_cell(
        spark,
        "import os, signal, time\nif ddl.rank: os.kill(os.getpid(), signal.SIGKILL)\ntime.sleep(60)",
        prewarm=True,
        attempts=1,
    )
    assert ended.state == "FAILED" and "was killed by SIGKILL" in ended.message
    assert pids(ended) == first and not processes.wait_until_gone()


@pytest.mark.fresh_cluster
def test_nothing_is_left_after_the_session(prewarmed):
    spark, waited = prewarmed
    homes = [Path(os.readlink(f"/proc/{pid}/cwd")) for pid in waited]
    spark.stop()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in waited), 30)
    assert not any(home.exists() for home in homes)


# -- without Spark, this process is the worker

JOB = JobConfig(
    cell="",
    credentials=Credentials("r", b""),
    driver=("127.0.0.1", 0),
    spark="none",
    strategy="allreduce",
    workers=1,
    executor_cores=1,
    seed=11,
)
THREADS = {"OMP_NUM_THREADS": "1"}


@pytest.fixture
def worker(monkeypatch):
    """The runtime's module `prewarmed` in a process that Spark would keep."""
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    package = launch.load_driver().__package__.rpartition(".")[0]
    module = importlib.import_module(package + ".executor.prewarmed")
    module.home = Path(sys.modules[package].__path__[0]).parent
    yield module
    module.drop()
    assert not processes.prewarmed()


def start(worker, job=JOB, **bounds):
    worker.start(job, None, str(worker.home), THREADS, **bounds)
    return worker._kept


def take(worker, folder, job=JOB, gpus=None):
    environment = worker.rank_process.environment(str(worker.home), str(folder), gpus)
    return worker.take(job, environment, str(folder))


@pytest.mark.parametrize("bound", [{"seconds": 0}, {"most_bytes": 1 << 20}], ids=["time", "memory"])
def test_it_ends_by_itself(worker, bound):
    waiting_process = start(worker, **bound)
    assert waiting_process.process.wait(60) == 0
    assert not os.path.exists(waiting_process.home)


@pytest.mark.parametrize(
    ("variable", "job", "gpus"),
    [
        ("ANYTHING", JOB, None),
        (None, JOB, ["1"]),
        (None, replace(JOB, workers=2), None),
        (None, replace(JOB, executor_cores=2), None),
    ],
)
def test_it_is_ended_where_a_process_would_be_started_otherwise(worker, monkeypatch, tmp_path, variable, job, gpus):
    waiting_process = start(worker)
    if variable:
        monkeypatch.setenv(variable, "is new")
    assert take(worker, tmp_path, job, gpus) is None
    assert waiting_process.process.returncode == -signal.SIGKILL and not os.path.exists(waiting_process.home)


def test_modules_that_came_to_the_worker_are_another_start(worker, monkeypatch, tmp_path):
    start(worker)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert take(worker, tmp_path) is None


def test_one_that_does_not_answer_is_ended(worker, monkeypatch, tmp_path):
    monkeypatch.setattr(worker, "CLAIM_SECONDS", 0.5)
    waiting_process = start(worker)
    os.kill(waiting_process.process.pid, signal.SIGSTOP)
    began = time.monotonic()
    assert take(worker, tmp_path) is None and waiting_process.process.returncode == -signal.SIGKILL
    assert time.monotonic() - began < 10


def test_none_is_left_in_a_worker_that_ends_with_its_task(worker, monkeypatch):
    monkeypatch.delenv("SPARK_REUSE_WORKER")
    assert start(worker) is None
