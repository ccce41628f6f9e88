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

pytestmark = pytest.mark.timeout(300)  # a cluster, and several runs in it

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
def no_spares(spark_cluster):
    """A cluster whose workers have none."""
    spark = spark_cluster(2)
    launch.run_cell(spark, "None")
    until(lambda: not processes.spares(), 30)
    return spark


def test_the_second_run_is_in_the_spares_and_finds_nothing_of_the_first(no_spares):
    first = run(no_spares)
    spares = waiting(2)
    second = run(no_spares)
    assert pids(second) == spares and pids(first).isdisjoint(spares)
    assert second.result == first.result and second.result[0] == [False, "float32", True]
    assert waiting(2).isdisjoint(spares)


def test_five_runs_leave_one_spare_a_slot(no_spares):
    seen = [pids(run(no_spares)) for _ in range(5)]
    assert len(set.union(*seen)) == 10, "no process is two ranks"
    assert len(waiting(2)) == 2


def test_a_run_of_another_size_gets_a_process_of_its_own(no_spares):
    run(no_spares)
    spares = waiting(2)
    assert pids(run(no_spares, workers=1)).isdisjoint(spares)


def test_a_run_without_spares_ends_those_that_wait(no_spares):
    run(no_spares)
    spares = waiting(2)
    assert pids(run(no_spares, spare=False)).isdisjoint(spares)
    assert not processes.spares()


def test_spares_that_were_killed_are_not_missed(no_spares):
    run(no_spares)
    spares = waiting(2)
    for pid in spares:
        os.kill(pid, signal.SIGKILL)
    assert pids(run(no_spares)).isdisjoint(spares)


def test_a_rank_that_was_a_spare_dies_as_any_other(no_spares):
    run(no_spares)
    spares = waiting(2)
    ended = launch.run_cell(
        no_spares,
        "import os, signal, time\nif ddl.rank: os.kill(os.getpid(), signal.SIGKILL)\ntime.sleep(60)",
        spare=True,
        attempts=1,
    )
    assert ended.state == "FAILED" and "was killed by SIGKILL" in ended.message
    assert pids(ended) == spares and not processes.wait_until_gone()


def test_nothing_is_left_after_the_session(no_spares):
    run(no_spares)
    spares = waiting(2)
    homes = [Path(os.readlink(f"/proc/{pid}/cwd")) for pid in spares]
    no_spares.stop()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in spares), 30)
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
