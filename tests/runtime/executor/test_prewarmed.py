"""Prewarmed processes, which have TensorFlow imported, fork the ranks of later runs. These are fresh, and end."""

import importlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from support import jobs, launch, processes
from support.until import until

from ddl_magics.runtime.executor import prewarmed
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.runtime.transport import messages, wire

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
print("parent", os.getppid())
[found, loss, os.environ["OMP_NUM_THREADS"], float(np.random.random())]
"""


def pids(run):
    return {event["pid"] for event in run.of_kind("worker")}


def parents(run):
    return {int(pid) for pid in re.findall(r"parent (\d+)", run.logs())}


def run(spark, **spec):
    return launch.finished(spark, CELL, **{"prewarm": True, "seed": 3, **spec})


def waiting(number):
    """The prewarmed processes, once they are so many: they take a moment to begin."""
    until(lambda: len(processes.prewarmed()) == number, 30)
    return processes.prewarmed()


def test_a_rank_that_was_claimed_may_be_silent():
    near, far = socket.socketpair()
    channel, rank = (wire.Channel(end, wire.Identity("supervisor", -1, 0)) for end in (near, far))
    rank.send_json(messages.CLAIM, {})
    started = prewarmed._claim(prewarmed.Prewarmed(None, channel, "", None, {}), {"forks": False})
    assert started.socket.gettimeout() is None
    channel.close(), rank.close()


@pytest.fixture(scope="module")
def spark(spark_cluster):
    """Where each executor has one Python worker: of several idle ones, Spark would give a run whichever it likes."""
    return spark_cluster(2, fresh=True)


@pytest.fixture
def waited(spark):
    """The two processes that wait in the cluster: of the test before, or of a run for them."""
    if len(processes.prewarmed()) != 2:
        run(spark)
    return waiting(2)


@pytest.mark.fresh_cluster
def test_later_runs_are_forks_of_the_prewarmed_processes_and_find_nothing_of_each_other(spark, waited):
    runs = [run(spark), run(spark)]
    assert [parents(each) for each in runs] == [waited, waited] and processes.prewarmed() == waited
    assert len(waited | pids(runs[0]) | pids(runs[1])) == 6
    own = run(spark, prewarm=False)
    assert parents(own).isdisjoint(waited)
    assert not processes.prewarmed(), "a run that wants none ends those that wait"
    assert runs[0].result == runs[1].result == own.result and own.result[0] == [False, "float32", True]


@pytest.mark.slow
@pytest.mark.fresh_cluster
def test_each_fork_has_its_own_view_of_the_notebooks_folder(spark, tmp_path):
    (tmp_path / "a").write_text("a\n")
    (tmp_path / "gone").mkdir()
    cell = """
import os, subprocess
print("parent", os.getppid())
subprocess.run("echo x >> a; rm -r gone; echo y > mine", shell=True, check=True)
[open("a").read(), sorted(os.listdir())]
"""
    ended = [launch.finished(spark, cell, prewarm=True, folder=str(tmp_path))]
    waited = waiting(2)
    ended += [launch.finished(spark, cell, prewarm=True, folder=str(tmp_path)) for _ in range(2)]
    assert parents(ended[1]) == parents(ended[2]) == waited
    assert [run.result for run in ended] == [["a\nx\n", ["a", "mine"]]] * 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "gone"] and (tmp_path / "a").read_text() == "a\n"


@pytest.mark.slow
@pytest.mark.fresh_cluster
def test_a_run_of_another_size_is_forked_too_and_one_whose_prewarmed_processes_were_killed_gets_others(spark, waited):
    assert parents(run(spark, workers=1)) < waited
    for pid in waited:
        os.kill(pid, signal.SIGKILL)
    assert parents(run(spark)).isdisjoint(waited)


@pytest.mark.slow
@pytest.mark.fresh_cluster
def test_a_forked_rank_dies_as_any_other(spark, waited):
    cell = "import os, signal\nprint('parent', os.getppid())\nif ddl.rank: os.kill(os.getpid(), signal.SIGKILL)"
    ended = launch.run_cell(spark, cell + "\nimport time\ntime.sleep(60)", prewarm=True, attempts=1)
    assert ended.state == "FAILED" and "was killed by SIGKILL" in ended.message
    assert parents(ended) == waited and not processes.wait_until_gone()


@pytest.mark.slow
@pytest.mark.fresh_cluster
def test_nothing_is_left_after_the_session(spark):
    run(spark)  # those of the test before may be ending with their worker, whose task was cancelled
    waited = waiting(2)
    homes = [Path(os.readlink(f"/proc/{pid}/cwd")) for pid in waited]
    spark.stop()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in waited), 30)
    assert not any(home.exists() for home in homes)


# -- without Spark, this process is the worker

JOB = replace(jobs.job(RunSpec(workers=1, seed=11)), executor_cores=2)
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
    worker.start(job, None, worker.package.own_zip(), THREADS, **bounds)
    return worker._prewarmed


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
        (None, replace(JOB, spec=RunSpec(workers=2, seed=11)), None),
        (None, replace(JOB, executor_cores=1), None),
    ],
)
def test_it_is_ended_where_a_process_would_be_started_otherwise(worker, monkeypatch, tmp_path, variable, job, gpus):
    waiting_process = start(worker)
    if variable:
        monkeypatch.setenv(variable, "is new")
    assert take(worker, tmp_path, job, gpus) is None
    assert waiting_process.process.returncode == -signal.SIGKILL and not os.path.exists(waiting_process.home)


def package_again(folder, _):
    (folder / "numpy-2.0.0.dist-info").rmdir()
    (folder / "numpy-2.0.0.dist-info").mkdir()


CHANGES = {
    "an archive": lambda folder, _: os.utime(folder / "modules.zip", (0, 0)),
    "a path": lambda folder, monkeypatch: monkeypatch.syspath_prepend(str(folder / "more")),
    "a package": lambda folder, _: (folder / "keras-3.0.0.dist-info").mkdir(),
    "a package again": package_again,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_other_modules_than_at_the_start_are_another_start(worker, monkeypatch, tmp_path, change):
    (tmp_path / "modules.zip").touch()
    (tmp_path / "numpy-2.0.0.dist-info").mkdir()
    for path in (tmp_path, tmp_path / "modules.zip"):
        monkeypatch.syspath_prepend(str(path))
    start(worker)
    change(tmp_path, monkeypatch)
    assert take(worker, tmp_path) is None


def test_a_file_saved_beside_the_packages_is_none(worker, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(tmp_path))
    start(worker)
    (tmp_path / "notebook.ipynb").touch()
    rank = take(worker, tmp_path)
    assert rank is not None
    worker.rank_process.kill(rank.process)
    worker.leave(rank)


def test_one_that_has_died_and_one_for_other_threads_are_replaced(worker):
    first = start(worker)
    os.kill(first.process.pid, signal.SIGKILL)
    first.process.wait(30)
    second = start(worker)
    assert second.process.pid != first.process.pid and start(worker) is second
    worker.start(JOB, None, worker.package.own_zip(), {"OMP_NUM_THREADS": "2"})
    assert worker._prewarmed is not second and second.process.returncode == -signal.SIGKILL


@pytest.mark.slow
def test_two_that_wait_for_a_rank_keep_their_time(worker, tmp_path):
    start(worker)
    rank = take(worker, tmp_path)
    waiting = threading.Thread(target=rank.process.wait)
    waiting.start()
    began = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        rank.process.wait(0.5)
    worker.rank_process.kill(rank.process)
    waiting.join(10)
    assert not waiting.is_alive() and time.monotonic() - began < 15
    assert rank.process.returncode == -signal.SIGKILL
    worker.leave(rank)


def test_one_that_does_not_answer_is_ended(worker, monkeypatch, tmp_path):
    monkeypatch.setattr(worker, "CLAIM_SECONDS", 0.5)
    waiting_process = start(worker)
    os.kill(waiting_process.process.pid, signal.SIGSTOP)
    began = time.monotonic()
    assert take(worker, tmp_path) is None and waiting_process.process.returncode == -signal.SIGKILL
    assert time.monotonic() - began < 10


def test_a_rank_has_its_own_output_and_exit_status_and_the_next_is_another_fork(worker, tmp_path):
    kept = start(worker)
    ranks = [take(worker, tmp_path)]
    wire.Channel(ranks[0].socket, wire.Identity("rank", 0, 0)).send_json(messages.CONFIG, {})
    assert ranks[0].process.wait(30) == 1
    assert b"Traceback" in ranks[0].process.stderr.read() and ranks[0].process.stdout.read() == b""
    assert Path(f"/proc/{ranks[0].process.pid}").exists(), "its number must not be another's while it may be signalled"
    worker.leave(ranks[0])
    until(lambda: not Path(f"/proc/{ranks[0].process.pid}").exists(), 10)
    ranks.append(take(worker, tmp_path))
    assert kept.process.pid not in {ranks[0].process.pid, ranks[1].process.pid}
    with pytest.raises(subprocess.TimeoutExpired):
        ranks[1].process.wait(0.1)
    worker.rank_process.kill(ranks[1].process)
    assert ranks[1].process.returncode == -signal.SIGKILL and kept.process.poll() is None


def test_a_rank_dies_with_the_process_that_has_forked_it(worker, tmp_path):
    kept = start(worker)
    rank = take(worker, tmp_path)
    os.kill(kept.process.pid, signal.SIGKILL)
    assert rank.process.wait(30) == -signal.SIGKILL
    worker.leave(rank)
    assert worker._prewarmed is None
    until(lambda: not Path(f"/proc/{rank.process.pid}").exists(), 10)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["YARN", "GPU"])
def test_in_a_container_of_yarn_and_beside_gpus_it_becomes_the_rank(worker, monkeypatch, tmp_path, where):
    if where == "YARN":
        monkeypatch.setenv("CONTAINER_ID", "container_1")
    else:
        monkeypatch.setattr(worker, "_NVIDIA", os.devnull)
    kept = start(worker)
    rank = take(worker, tmp_path)
    assert rank.process is kept.process and not processes.prewarmed()
    worker.rank_process.kill(rank.process)
    worker.leave(rank)
    assert worker._prewarmed is None and not os.path.exists(kept.home)


def test_none_is_left_in_a_worker_that_ends_with_its_task(worker, monkeypatch):
    monkeypatch.delenv("SPARK_REUSE_WORKER")
    assert start(worker) is None
