"""One launch after the other in one kernel: nothing grows that is not meant to, nor is left when it is killed."""

import os
import time
from contextlib import contextmanager

import pytest
from support import holdings, paths, processes
from support.kernels import Kernel
from support.until import until

from ddl_magics.dashboard.live import HEARTBEAT_SECONDS
from ddl_magics.runtime.driver import job_registry

pytestmark = pytest.mark.timeout(7200)

#: So many runs, and what is held is counted after so many each.
LAUNCHES, EVERY = 200, 10
#: For anything that is asked of the kernel, also on a machine that has much else to do.
PATIENCE_SECONDS = 600
#: The model has a megabyte: a copy that is kept somewhere is seen.
CELL = """
import keras, numpy as np
x = np.ones((32, 500), "float32")
model = keras.Sequential([keras.Input((500,)), keras.layers.Dense(500), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(1e-5), "mse")
model.fit(x, x[:, :1], batch_size=8, epochs={epochs}, verbose=0)
{then}
"""
ENDLESS = 100_000

#: `held` says what the driver holds of its runs, and Spark's JVM of its jobs, when both have collected their garbage.
PREPARATION = """
%load_ext ddl_magics
import gc, re, sys, time
from support import spark as clusters
from ddl_magics import DistributedCellError
spark = clusters.Clusters().get(2)

def end(run, stop):
    while stop and not run.history:
        time.sleep(0.1)
    if stop:
        run.stop()
    try:
        run.wait()
    except DistributedCellError:
        pass
    return run.state

def held():
    gc.collect()
    spark._jvm.System.gc()
    time.sleep(1)  # Spark's cleaner follows Java's collector
    name = re.compile("ddl_runtime_[0-9a-f]+.driver.api")
    (driver,) = (module for known, module in sys.modules.items() if name.fullmatch(known))
    manager = spark._jvm.org.apache.spark.SparkEnv.get().blockManager().master()
    return {
        "runs": len(driver.registry.all()),
        "blocks": sum(each.blocks().size() for each in manager.getStorageStatus()),
        "accumulators": spark._jvm.org.apache.spark.util.AccumulatorContext.numAccums(),
        "persistent RDDs": spark.sparkContext._jsc.getPersistentRDDs().size(),
        "jobs": len(spark.sparkContext.statusTracker().getActiveJobsIds()),
    }
"""


@contextmanager
def prepared(folder, preparation):
    """A kernel that has run this cell; its runs are in `folder`, and in `folder`/tmp all temporary files."""
    temporary = folder / "tmp"
    temporary.mkdir()
    environment = {
        "TMPDIR": str(temporary),
        "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={temporary}",
        "PYTHONPATH": paths.environment()["PYTHONPATH"],
        "JUPYTER_DATA_DIR": str(folder),
    }
    kernel = Kernel(environment=environment)
    try:
        answer = kernel.run(preparation, timeout=PATIENCE_SECONDS)
        assert answer.error == "", answer.traceback
        yield kernel, temporary
    finally:
        kernel.close()


@pytest.fixture(scope="module")
def kernel_and_temporary(tmp_path_factory):
    """A kernel with a Spark whose two executors are processes, and its temporary folder."""
    with prepared(tmp_path_factory.mktemp("leaks"), PREPARATION) as both:
        yield both


@pytest.fixture
def kernel(kernel_and_temporary):
    return kernel_and_temporary[0]


@pytest.fixture
def temporary(kernel_and_temporary):
    return kernel_and_temporary[1]


def start(kernel, strategy, epochs=1, then="model", clickable=False):
    """Begin the run `one`, with a live view where the front end is one in which somebody can click."""
    cell = CELL.format(epochs=epochs, then=then)
    options = f"--strategy {strategy} --name one --no-wait"
    answer = kernel.run(f"%%distributed {options}{cell}", clickable=clickable, timeout=PATIENCE_SECONDS)
    assert answer.error == "", answer.traceback


def launch(kernel, number):
    """One run: strategies take turns, one in ten fails, one is stopped, every other one has a live view."""
    strategy = ("allreduce", "ps", "single")[number % 3]
    expected = {3: "FAILED", 7: "STOPPED"}.get(number % 10, "FINISHED")
    stop = expected == "STOPPED"
    start(kernel, strategy, ENDLESS if stop else 1, "1 / 0" if expected == "FAILED" else "model", number % 2 == 0)
    state = kernel.value(f"end(one, {stop})", timeout=PATIENCE_SECONDS)
    assert state == expected, kernel.value("one.events[-1]")


@pytest.mark.spark
@pytest.mark.slow
def test_launches_leave_nothing(kernel, temporary):
    """Measured from the tenth on: pools of threads and memory have grown by then."""
    series = []
    for number in range(1, LAUNCHES + 1):
        launch(kernel, number)
        if number % EVERY == 0:
            time.sleep(HEARTBEAT_SECONDS + 1)  # the threads of live views end
            series.append(holdings.snapshot(kernel.pid, temporary))
        if number == EVERY:
            before = kernel.value("held()", timeout=PATIENCE_SECONDS)
    assert holdings.leaks(series, EVERY) == {}
    assert processes.wait_until_gone() == {}
    after, kept = kernel.value("held()", timeout=PATIENCE_SECONDS), min(LAUNCHES, job_registry.KEPT_RUNS)
    assert after.pop("runs") == kept
    assert {what: count for what, count in after.items() if count > before[what]} == {}
    prewarmed = len(processes.prewarmed() & set(holdings.family(kernel.pid)))
    assert holdings.ours(temporary) == {"driver": 1, "run": kept, "prewarmed": prewarmed}


@pytest.mark.spark
@pytest.mark.slow
def test_a_kernel_that_is_killed_leaves_folders_that_the_next_process_removes(kernel, temporary):
    """Here with executors that are processes; without, tests/clusters/test_every_cluster.py has the same."""
    shared = processes.shared_files()
    start(kernel, "allreduce", ENDLESS)
    until(lambda: kernel.value("bool(one.history)"), PATIENCE_SECONDS)
    family = holdings.family(kernel.pid)
    kernel.kill()
    holdings.assert_swept(temporary, family, shared)


REPLAYS = """
%load_ext ddl_magics
from support.fake_cluster import FakeCluster, training
get_ipython()._ddl_magics[0].session.cluster = FakeCluster(training(epochs=20))
"""


@pytest.mark.parametrize("clickable", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["text", "live view"])
def test_a_notebook_of_many_runs_has_no_more_than_their_events(clickable, tmp_path):
    """On a cluster that replays events: what the driver's side holds is not in it."""
    series, every, runs = [], 10, 20
    with prepared(tmp_path, REPLAYS) as (kernel, temporary):
        for number in range(runs):
            answer = kernel.run("%%distributed --wait\n1", clickable=clickable)
            assert answer.error == "", answer.traceback
            if (number + 1) % every == 0:
                time.sleep(HEARTBEAT_SECONDS + 1 if clickable else 0)
                series.append(holdings.snapshot(kernel.pid, temporary))
    assert holdings.leaks(series, every) == {}
    folders = list((tmp_path / "ddl_magics" / "runs").iterdir())
    assert len(folders) == runs
    stored = {name for folder in folders for name in os.listdir(folder)}
    assert stored == {"run.json", "events.jsonl", "owner.json", "control", "files", "provenance.json.gz"}
