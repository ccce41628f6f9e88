"""What goes wrong ends in one clear message that names rank and cause, and leaves nothing behind."""

import contextlib
import os
import re
import signal

import pytest
from support import launch, processes, trainings
from support.until import until

#: From the fault to the end of the run.
BOUND_SECONDS = 30.0

TRAINING = """
import keras, numpy as np
x = np.random.default_rng(0).normal(size=(256, 8)).astype("float32")
y = (x.sum(1) > 0).astype("int64")
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(2)])
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
"""
ENDLESS = TRAINING + "model.fit(x, y, batch_size=32, epochs=100000, verbose=0)\n"


@pytest.fixture(autouse=True)
def nothing_left():
    yield
    left = processes.wait_until_gone(10)
    for pid in left:  # the next test is not to pay for this one
        os.kill(pid, signal.SIGKILL)
    assert left == {}


def still_usable(spark):
    assert spark.range(10).count() == 10


def assert_failed(ended, rank, kind, message):
    assert ended.state == "FAILED", ended
    assert (ended.failure["rank"], ended.failure["kind"]) == (rank, kind), ended.failure
    assert re.search(message, ended.failure["message"]), ended.failure["message"]
    assert "\n" not in ended.message.strip().splitlines()[0]


FAULTS = {
    "raises on rank 1": (
        "if ddl.rank == 1:\n    raise KeyError('gone')\n" + ENDLESS,
        (1, "error", "KeyError: 'gone'"),
    ),
    "raises in a callback of rank 1 while the others train": (
        TRAINING + "class Bad(keras.callbacks.Callback):\n"
        "    def on_train_batch_end(self, batch, logs=None):\n"
        "        if ddl.rank == 1 and batch == 3: raise ValueError('bad batch')\n"
        "model.fit(x, y, batch_size=32, epochs=100000, verbose=0, callbacks=[Bad()])",
        (1, "error", "ValueError: bad batch"),
    ),
    "sys.exit": ("import sys\nif ddl.rank == 1:\n    sys.exit(3)\n" + ENDLESS, (1, "exit", r"sys.exit\(3\)")),
    "os._exit": ("import os\nif ddl.rank == 1:\n    os._exit(9)\n" + ENDLESS, (1, "exit", "exit status 9")),
    "a loss that turns NaN": (
        TRAINING
        + "model.compile(keras.optimizers.SGD(1e30), 'mse')\n"
        + "model.fit(x, x[:, :2], batch_size=32, epochs=100, verbose=0)",
        (0, "nan", "NaN or infinite at step .* look for NaN in the data, lower the learning rate"),
    ),
    "different numbers of steps": (
        TRAINING + "model.fit(x, y, batch_size=32, epochs=3, steps_per_epoch=4 + ddl.rank, verbose=0)",
        (None, "diverged", "rank 0 .* rank 1|rank 1 .* rank 0"),
    ),
    "a rank that trains less often": (
        TRAINING + "model.fit(x, y, epochs=2, verbose=0)\nif ddl.rank == 0:\n    model.fit(x, y, verbose=0)",
        (0, "peer", "rank 1 is gone: its cell has ended"),
    ),
    "different data": (
        TRAINING + "import os\nx = x + np.random.default_rng(ddl.rank).normal(size=x.shape).astype('float32')\n"
        "model.fit(x, y, verbose=0)",
        (None, "diverged", "rank 1 and rank 0 read different data at step 1 of epoch 1"),
    ),
    "a label out of range": (
        TRAINING + "y = y + 5\nmodel.fit(x, y, verbose=0)",
        (None, "error", "InvalidArgumentError: Received a label value of [56] which is outside the valid range"),
    ),
}


#: Seen as well where a callback raises and in a notebook, and in tests/runtime/cell/test_rank_end.py.
SLOW = {"raises on rank 1", "sys.exit", "a label out of range", "different numbers of steps"}


@pytest.mark.parametrize(
    "fault", [pytest.param(each, marks=pytest.mark.slow) if each in SLOW else each for each in FAULTS]
)
def test_fault_of_the_cell(rank_pool, fault):
    cell, (rank, kind, message) = FAULTS[fault]
    ended = launch.run_cell(rank_pool(2), cell, seconds=90)
    assert_failed(ended, ended.failure["rank"] if rank is None else rank, kind, message)


def running(spark, cell=ENDLESS, **spec):
    run = launch.start(spark, cell, **spec)
    return run.until(lambda run: run.of_kind("steps"), 90)


def group(leader):
    """The processes of a process group, without those that have ended."""
    members = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if os.getpgid(int(name)) == leader and not processes.has_ended(int(name)):
                members.append(int(name))
    return members


@pytest.mark.parametrize("strategy", ["allreduce", "ps"])
def test_a_rank_killed_in_mid_step(spark_cluster, strategy):
    spark = spark_cluster(2)
    run = running(spark, strategy=strategy, attempts=1)
    os.kill(run.pid(1), signal.SIGKILL)
    ended = run.wait(BOUND_SECONDS)
    assert_failed(ended, 1, "signal", "was killed by SIGKILL")
    still_usable(spark)


def test_a_supervisor_killed(spark_cluster):
    spark = spark_cluster(2)
    run = running(spark, "import subprocess\nsubprocess.Popen(['sleep', '600'])\n" + ENDLESS, attempts=1)
    worker = run.pid(1)
    assert len(group(worker)) == 2, "the rank, and what its cell has started"
    os.kill(processes.supervisor_of(worker), signal.SIGKILL)
    ended = run.wait(BOUND_SECONDS)
    assert_failed(ended, 1, "lost", "its supervisor process on the executor died")
    until(lambda: not group(worker), 10)
    still_usable(spark)


@pytest.mark.parametrize("strategy", ["allreduce", "ps", "average", pytest.param("single", marks=pytest.mark.slow)])
def test_stop_keeps_model_and_history(rank_pool, strategy):
    run = launch.start(rank_pool(2), ENDLESS, strategy=strategy)
    run.until(lambda run: run.of_kind("epoch"), 90)
    ended = run.stopped(BOUND_SECONDS)
    assert ended.history["loss"] and len(launch.weights(run.run)) == 4


@pytest.mark.parametrize(
    ("cell", "kind", "words"),
    [
        ("import time\nprint('here', flush=True)\nwhile True: time.sleep(0.1)", "log", ""),
        ("while True:\n    ddl.log(value=1.0)", "values", ""),
        (ENDLESS, "worker", "TensorFlow"),
    ],
    ids=["it does not train", "it reports without end", "TensorFlow is loaded"],
)
def test_stop_of_a_cell_at_any_time(rank_pool, cell, kind, words):
    run = launch.start(rank_pool(2), cell, workers=1)
    run.until(lambda run: any(words in event.get("state", "") for event in run.of_kind(kind)), 90)
    run.stopped(BOUND_SECONDS)


@pytest.mark.slow
def test_timeout(rank_pool):
    ended = launch.run_cell(rank_pool(2), trainings.source(100_000, pause=0.4), workers=1, timeout=15)
    assert ended.state == "STOPPED" and "stopped by --timeout after 15 s" in ended.message
    assert ended.history["loss"] and len(launch.weights(ended.run)) == 2


@pytest.mark.parametrize(
    ("cell", "spec", "message"),
    [
        ("1", {"workers": 9}, "--workers 9 asks for more than the 2 slots .* use --workers 2"),
        ("undefined_name + 1", {}, "line 1: the name 'undefined_name' is defined neither"),
        ("1", {"data": "frme"}, "--data frme: there is no such DataFrame in the session; did you mean 'frame'"),
        ("1", {"data": "frame", "features": ["ida"]}, "--features ida: frame has no such column; did you mean 'id'"),
    ],
)
def test_refused_before_it_starts(spark_cluster, cell, spec, message):
    spark = spark_cluster(2)
    with pytest.raises(launch.Refused, match=message):
        launch.start(spark, cell, {"frame": spark.range(10)}, **spec)
