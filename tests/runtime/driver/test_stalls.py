"""A rank that stands still is noticed and named, and with --stall its attempt ends and the next begins."""

import os
import re
import signal
import socket
import sys
import time

import pytest
from support import launch, processes
from support.paths import KERAS2_PYTHON

#: Trains until the file GO is there. Rank 1 hangs in a callback as soon as the file HANG is there.
CELL = """
import keras, numpy as np, os, time
x = np.random.default_rng(0).normal(size=(64, 8)).astype("float32")
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(2)])
model.compile("sgd", "mse")
class Hang(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if ddl.rank == RANK and os.path.exists(HANG):
            wait_for_storage()
        time.sleep(0.01)
    def on_epoch_end(self, epoch, logs=None):
        if os.path.exists(GO):
            self.model.stop_training = True
def wait_for_storage():
    os.path.exists(GO) or time.sleep(600)
model.fit(x, x[:, :2], batch_size=32, epochs=100000, verbose=0, callbacks=[Hang()])
ddl.size
"""
NOTICE_SECONDS, STALL_SECONDS = 3.0, 9.0

#: A rank is started twice, and may import TensorFlow each time.
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def nothing_left():
    yield
    launch.stop_all()  # a test that fails leaves its run
    assert processes.wait_until_gone(10) == {}


def cell(folder, rank=1):
    text = CELL.replace("RANK", str(rank))
    for name in ("HANG", "GO"):
        text = text.replace(name, repr(str(folder / name.lower())))
    return text


def start(spark, folder, rank=1, **spec):
    run = launch.start(spark, cell(folder, rank), stall_notice=NOTICE_SECONDS, **spec)
    # Where a rank is, its supervisor learns once a second. It bears 20 typical steps: the first ones take longest.
    run.until(lambda run: all(seconds_of_steps(run, rank) > 3.5 for rank in range(spec.get("workers", 2))), 90)
    # A first step may take longer than the time that is a minute elsewhere.
    return run.until(lambda run: len(notices(run, "warning")) == len(notices(run, "info")), 30)


def seconds_of_steps(run, rank):
    """From the first report of steps to the last one."""
    times = [event["time"] for event in run.of_kind("steps", rank)]
    return times[-1] - times[0] if times else 0.0


def notices(run, level, after=0):
    """Of stalls: that one is there, or that it is over."""
    said = [e for e in run.events[after:] if e["kind"] == "notice" and e["level"] == level and e["rank"] >= 0]
    return [e for e in said if re.search("it has (made no step|not run) for|^continues on ", e["message"])]


def messages_of(run, state):
    return [e["message"] for e in run.of_kind("state") if e["state"] == state]


def assert_stop_is_named(run, rank):
    """SIGSTOP, and SIGCONT once the stall is reported: by this rank alone, once, and once more that it goes on."""
    before, number = len(run.events), run.pid(rank)
    os.kill(number, signal.SIGSTOP)
    began = time.monotonic()
    run.until(lambda run: notices(run, "warning", before), 30)
    assert time.monotonic() - began < NOTICE_SECONDS + 5
    time.sleep(1)  # the others wait for it: no news
    os.kill(number, signal.SIGCONT)
    run.until(lambda run: notices(run, "info", before), 30)
    ((warning,), (info,)) = notices(run, "warning", before), notices(run, "info", before)
    assert warning["rank"] == info["rank"] == rank
    host, text = socket.gethostname(), warning["message"]
    assert text.startswith(f"{host}: it has made no step for ") and " of epoch " in text
    assert f"process {number} is stopped (state T" in text and f"`kill -CONT {number}`" in text
    assert info["message"].startswith(f"continues on {host} after a stall of ")


def test_a_stopped_rank_is_named_and_a_hung_one_is_ended(rank_pool, tmp_path):
    run = start(rank_pool(2), tmp_path, stall=STALL_SECONDS)
    assert_stop_is_named(run, 0)
    before = len(run.events)
    (tmp_path / "hang").touch()
    run.until(lambda run: notices(run, "warning", before), 30)
    (hung,) = notices(run, "warning", before)
    assert hung["rank"] == 1 and "is asleep (state S" in hung["message"]
    assert 'File "<cell>"' in hung["message"] and "in wait_for_storage" in hung["message"].split("\n")[1]
    run.until(lambda run: any("attempt 2 of 3" in text for text in messages_of(run, "SUBMITTED")), 30)
    (tmp_path / "hang").unlink()
    (tmp_path / "go").touch()
    run.finished(60)
    again = messages_of(run, "SUBMITTED")[1]
    assert "rank 1 on " in again and "died (it has made no step for " in again and "; continues from epoch " in again


@pytest.mark.slow
@pytest.mark.parametrize("state", ["starting", "loading TensorFlow"])
def test_a_rank_that_is_stopped_before_its_first_step_is_named_within_a_minute_and_the_run_can_be_stopped(
    rank_pool, tmp_path, state
):
    """Without --stall: before the workers have connected to each other, and while it imports TensorFlow."""
    run = launch.start(rank_pool(2), cell(tmp_path), prewarm=False)
    run.until(lambda run: any(e["state"] == state for e in run.of_kind("worker", 1)), 60)
    os.kill(run.pid(1), signal.SIGSTOP)
    run.until(lambda run: notices(run, "warning"), 30)
    (said,) = notices(run, "warning")
    assert said["rank"] == 1 and said["message"].startswith(f"{socket.gethostname()}: it has not run for ")
    assert f"`kill -CONT {run.pid(1)}` on that host continues it" in said["message"]
    run.stopped(30)


@pytest.mark.slow
def test_a_worker_of_a_parameter_server_that_stands_still_is_restarted_alone(spark_cluster, tmp_path):
    run = start(spark_cluster(2), tmp_path, strategy="ps", stall=STALL_SECONDS)
    os.kill(run.pid(1), signal.SIGSTOP)
    run.until(lambda run: [e for e in notices(run, "warning") if e["rank"] == 1], 30)
    run.until(lambda run: any("it is restarted (attempt 2 of 3)" in m for m in messages_of(run, "RUNNING")), 40)
    run.until(lambda run: any(e["attempt"] == 2 for e in run.of_kind("steps", 1)), 60)
    (tmp_path / "go").touch()
    run.finished(60)


@pytest.mark.slow
@pytest.mark.parametrize(
    "strategy, python",
    [
        ("single", sys.executable),
        ("average", sys.executable),
        ("ensemble", sys.executable),
        pytest.param("allreduce", KERAS2_PYTHON, marks=pytest.mark.keras2, id="keras2"),
    ],
)
def test_every_strategy_notices_and_begins_again(spark_cluster, tmp_path, strategy, python):
    workers = 1 if strategy == "single" else 2
    run = start(spark_cluster(2, python), tmp_path, strategy=strategy, workers=workers, stall=STALL_SECONDS)
    assert_stop_is_named(run, workers - 1)
    stopped = run.pid(workers - 1)
    os.kill(stopped, signal.SIGSTOP)
    begins_again(run, workers - 1)
    assert not os.path.exists(f"/proc/{stopped}"), "it is still there beside its successor"
    (tmp_path / "go").touch()
    run.finished(60)


def begins_again(run, rank):
    """The time of --stall is over for the rank: another process of it trains, or is in its cluster."""
    died = re.compile(
        f"rank {rank} on .* died .*(made no step|not run) for .*attempt 2 of 3|attempt 2 of 3: rank {rank} "
    )
    said = lambda: messages_of(run, "RUNNING") + messages_of(run, "SUBMITTED")  # noqa: E731
    run.until(lambda run: any(died.search(text) for text in said()), 40)
    working = {"running", "serving"}
    run.until(
        lambda run: any(e["attempt"] == 2 and e["rank"] == rank and e.get("state") in working for e in run.events), 90
    )


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["tf-allreduce", "tf-ps"])
def test_a_process_of_tensorflows_cluster_that_is_stopped_is_named_and_ended(spark_cluster, tmp_path, strategy):
    go = tmp_path / "go"
    waits = f"import os, time\nstrategy\nwhile not os.path.exists({str(go)!r}): time.sleep(0.1)"
    run = launch.start(spark_cluster(2), waits, strategy=strategy, stall_notice=NOTICE_SECONDS, stall=2 * STALL_SECONDS)
    states = {"running", "serving"}
    run.until(lambda run: len({e["rank"] for e in run.events if e.get("state") in states}) == 2, 90)
    os.kill(run.pid(1), signal.SIGSTOP)
    run.until(lambda run: any(e["rank"] == 1 for e in notices(run, "warning")), 30)
    os.kill(run.pid(1), signal.SIGCONT)
    run.until(lambda run: notices(run, "info"), 30)
    (said,) = (e["message"] for e in notices(run, "warning") if e["rank"] == 1)
    assert "it has not run for" in said and f"process {run.pid(1)} is stopped (state T" in said
    os.kill(run.pid(1), signal.SIGSTOP)
    begins_again(run, 1)
    go.touch()
    run.finished(60)
