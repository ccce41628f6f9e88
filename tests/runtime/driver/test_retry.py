"""A worker that is killed costs the time since the last checkpoint: the run ends as if nothing had happened."""

import functools
import importlib
import os
import re
import signal

import numpy as np
import pytest
from support import launch, processes
from support.until import until

from ddl_magics.runtime.spark import slots

BOUND_SECONDS = 60.0

#: Ranks are started anew, and may import TensorFlow each time.
pytestmark = pytest.mark.timeout(300)

#: With state: momenta, shuffles, a callback with a memory; slow enough to kill.
CELL = """
import keras, numpy as np, time
keras.config.set_floatx("float64")
x = np.random.default_rng(0).normal(size=(96, 8))
y = np.sin(x[:, :2])
class Slow(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        time.sleep(SLEEP)
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(2)])
model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse", metrics=["mae"])
first = model.fit(x, y, batch_size=32, epochs=2, verbose=0)
plateau = keras.callbacks.ReduceLROnPlateau(monitor="loss", factor=0.5, patience=0, min_delta=0.2)
fit = model.fit(x, y, batch_size=16, epochs=5, validation_data=(x, y), callbacks=[plateau, Slow()], verbose=0)
[first.history, fit.history, fit.epoch, float(model.optimizer.learning_rate), ddl.size]
"""


def cell(sleep=0.15):
    return CELL.replace("SLEEP", str(sleep))


@pytest.fixture(autouse=True)
def nothing_left():
    shared = processes.shared_files()
    yield
    assert processes.wait_until_gone(10) == {}
    assert {name for name in processes.shared_files() - shared if name.startswith("ddl")} == set()


@functools.cache
def undisturbed(spark):
    """(result, history, weights) of the cell when nobody is killed."""
    ended = launch.run_cell(spark, cell(sleep=0))
    return ended.result, ended.history, launch.weights(ended.run)


def assert_as_undisturbed(ended, spark):
    assert ended.state == "FINISHED", ended.message
    result, history, weights = undisturbed(spark)
    assert (ended.result, ended.history) == (result, history)
    for mine, theirs in zip(launch.weights(ended.run), weights, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def beginnings(ended):
    return [e["message"] for e in ended.of_kind("state") if e["state"] == "SUBMITTED"]


def test_after_the_end_of_a_rank_and_of_an_executor_a_run_ends_as_if_nothing_had_happened(spark_cluster):
    spark = spark_cluster(2)
    run = launch.start(spark, cell())
    launch.kill_in_epoch(run, 2, rank=0)
    run.until(lambda run: any("attempt 2 of 3" in e["message"] for e in run.of_kind("state")), 30)
    launch.kill_in_epoch(run, 3, rank=1, which=processes.executor_of)
    ended = run.wait(BOUND_SECONDS)
    assert_as_undisturbed(ended, spark)
    _, second, third = beginnings(ended)
    assert second.startswith("attempt 2 of 3: rank 0 on ") and "was killed by SIGKILL); continues from epoch " in second
    assert third.startswith("attempt 3 of 3: rank 1 on ") and " of fit 2" in third
    assert "its supervisor process on the executor died" in third


def test_a_parameter_server_worker_is_started_again_while_the_others_go_on(rank_pool):
    run = launch.start(rank_pool(2), cell(), strategy="ps")
    launch.kill_in_epoch(run, 1, rank=1)
    run.until(lambda run: any((e["fit"], e["epoch"]) == (1, 2) for e in run.of_kind("epoch")), 60)
    launch.kill_in_epoch(run, 3, rank=0)
    ended = run.finished(BOUND_SECONDS)
    first, second, epochs, _, _ = ended.result
    assert len(first["loss"]) == 2 and len(second["loss"]) == 5 and epochs == [0, 1, 2, 3, 4]
    assert second == ended.history
    said = [e["message"] for e in ended.of_kind("state") if "it is restarted" in e["message"]]
    assert [words.split(" on ")[0] for words in said] == ["rank 1", "rank 0"]
    assert all("(attempt 2 of 3) while the others continue" in words for words in said)
    assert {e["attempt"] for e in ended.of_kind("steps", rank=1)} == {1, 2}


@pytest.mark.slow
def test_a_sharded_state_continues_on_any_number_of_workers(spark_cluster):
    spark = spark_cluster(2)
    run = launch.start(spark, cell(), attempts=1, shard_optimizer="yes")
    launch.kill_in_epoch(run, 2, rank=1)
    assert run.wait(BOUND_SECONDS).state == "FAILED"
    for others in ({"workers": 1}, {"shard_optimizer": "yes"}):
        resumed = launch.finished(spark, cell(sleep=0), resume=run.run, **others)
        _, history, weights = undisturbed(spark)
        for name, values in history.items():
            np.testing.assert_allclose(resumed.history[name], values, rtol=1e-9)
        for mine, theirs in zip(launch.weights(resumed.run), weights, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-9)


@pytest.mark.slow
def test_killed_more_often_than_attempts_allow_it_ends_and_another_run_goes_on(spark_cluster):
    spark = spark_cluster(2)
    run = launch.start(spark, cell(), attempts=2)
    launch.kill_in_epoch(run, 2, rank=1)
    run.until(lambda run: any(e["attempt"] == 2 for e in run.of_kind("steps")), 60)
    os.kill(run.pid(0), signal.SIGKILL)
    ended = run.wait(BOUND_SECONDS)
    assert ended.state == "FAILED" and (ended.failure["rank"], ended.failure["kind"]) == (0, "signal")
    assert "was killed by SIGKILL" in ended.message
    assert "; it was attempt 2 of 2; --resume test continues from epoch " in ended.message
    assert {e["name"] for e in ended.of_kind("artifact")} == {"checkpoint-0.npz", "checkpoint-1.npz"}
    resumed = launch.run_cell(spark, cell(sleep=0), resume=ended.run)
    assert_as_undisturbed(resumed, spark)
    said = [e["message"] for e in resumed.of_kind("notice") if "fit 1" in e["message"]]
    assert said == ["fit 1 had ended in the resumed run: its history and weights are taken, and nothing is trained"]


#: Each use of a row moves its weight by the rate of the epoch, and no other: the sum says in which epochs it was used.
#: The third epoch is the best.
ROWS, RATES = 128, [1.0, 0.5, -0.25, -0.125, -0.0625]
COUNTED = f"""
import keras, time
class Slow(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        time.sleep(0.15)
rate = keras.callbacks.LearningRateScheduler(lambda epoch: {RATES}[epoch])
best = keras.callbacks.ModelCheckpoint("best.weights.h5", monitor="loss", save_best_only=True, save_weights_only=True)
embedding = keras.layers.Embedding({ROWS}, 1, embeddings_initializer="zeros")
model = keras.Sequential([keras.Input((1,)), embedding, keras.layers.Flatten()])
model.compile(keras.optimizers.SGD(1.0), lambda y, p: 16 * p)
fit = model.fit(dataset, epochs={len(RATES)}, verbose=0, callbacks=[rate, Slow(), best])
ended = model.get_weights()[0].ravel().tolist()
model.load_weights("best.weights.h5")
ddl.log(loaded=float(model.get_weights()[0].sum()))
[ended, model.get_weights()[0].ravel().tolist()]
"""


@pytest.mark.slow
@pytest.mark.parametrize("every", [None, 3])
def test_each_row_is_used_once_an_epoch_and_the_best_file_stays_after_a_kill_in_an_epoch(
    spark_cluster, tmp_path, every
):
    spark = spark_cluster(2)
    frame = spark.range(ROWS).selectExpr("id row", "0.0 y")
    data = {"data": "df", "features": ["row"], "label": "y", "batch_size": 16}
    storage = f"file://{tmp_path}/storage"
    run = launch.start(spark, COUNTED, {"df": frame}, **data, attempts=2, checkpoint=storage, checkpoint_every=every)
    run.until(lambda run: any(e["epoch"] == 3 for e in run.of_kind("steps")), 150)
    os.kill(run.pid(1), signal.SIGKILL)
    ended = run.finished(150)
    assert any(text.startswith("attempt 2 of 2: rank 1 on ") for text in beginnings(ended))
    assert ended.result == [[-sum(RATES)] * ROWS, [-sum(RATES[:3])] * ROWS]
    assert ended.logged("loaded") == [-sum(RATES[:3]) * ROWS] * 2, "each rank finds it"


@pytest.fixture
def no_growth(monkeypatch):
    """A run with MIN..MAX workers goes on at once with those that are there."""
    package = launch.load_driver().__package__
    monkeypatch.setattr(importlib.import_module(package + ".executors"), "GROW_SECONDS", 0.0)


def wait_for_both(spark):
    """The Spark, once it has two executors."""
    until(lambda: slots.registered_slots(spark.sparkContext) == 2)
    return spark


def workers_of(ended):
    """How many workers each attempt had."""
    attempts = {event["attempt"] for event in ended.of_kind("steps")}
    return [len({e["rank"] for e in ended.of_kind("steps") if e["attempt"] == number}) for number in sorted(attempts)]


@pytest.mark.slow
def test_an_elastic_run_ends_when_it_gets_no_further(rank_pool):
    """Deaths that move it on do not count, as workers come and go; others do."""
    dies = cell(sleep=0) + "\nimport os\ntime.sleep(3)  # its checkpoints have left it\nos.kill(os.getpid(), 9)"
    ended = launch.run_cell(rank_pool(2), dies, min_workers=1, attempts=2)
    assert ended.state == "FAILED", ended.message
    attempts = int(re.search(r"; it was attempt (\d) of \1; --resume test", ended.message)[1])
    assert 3 <= attempts == len(beginnings(ended)) <= 5, beginnings(ended)


def test_rows_of_data_are_dealt_to_the_workers_that_are_left(spark_cluster, no_growth, monkeypatch):
    """Those of which no worker has all, as they are too many."""
    plan = importlib.import_module(launch.load_driver().__package__.rpartition(".")[0] + ".data.plan")
    monkeypatch.setattr(plan, "WHOLE_BYTES", ROWS)
    spark = wait_for_both(spark_cluster(2))
    frame = spark.range(ROWS).selectExpr("id row", "0.0 y")
    data = {"data": "df", "features": ["row"], "label": "y", "batch_size": 16}
    run = launch.start(spark, COUNTED, {"df": frame}, **data, min_workers=1)
    run.until(lambda run: any(e["epoch"] == 3 for e in run.of_kind("steps")), 150)
    os.kill(processes.executor_of(run.pid(1)), signal.SIGKILL)
    ended = run.finished(150)
    assert workers_of(ended) == [2, 1]
    assert ended.result == [[-sum(RATES)] * ROWS, [-sum(RATES[:3])] * ROWS]


@pytest.mark.slow
def test_stop_between_two_attempts(spark_cluster):
    run = launch.start(spark_cluster(2), cell())
    launch.kill_in_epoch(run, 2, rank=1)
    run.until(lambda r: any(e["attempt"] == 2 for e in r.events), 30)
    assert "--resume test continues from epoch " in run.stopped(BOUND_SECONDS).message


FROZEN = """
import keras, numpy as np, tensorflow as tf, time
class Slow(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        time.sleep(0.3)
x = np.random.default_rng(0).normal(size=(256, 8))
y = (x.sum(1) > 0).astype("int64")
encoder = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4), keras.layers.BatchNormalization()])
whole = keras.Sequential([encoder, keras.layers.Dense(8)])
whole.compile("adam", "mse")
first = whole.fit(x, x, epochs=3, batch_size=32, verbose=0)
encoder.trainable = False
head = keras.Sequential([encoder, keras.layers.BatchNormalization(), keras.layers.Dense(2, activation="softmax")])
head.compile("adam", "sparse_categorical_crossentropy")
head.fit(tf.data.Dataset.from_tensor_slices((x, y)).shuffle(256).batch(32), epochs=10, verbose=0, callbacks=[Slow()])
ddl.log(encoder=float(sum(np.sum(weight) for weight in encoder.get_weights())), first=float(first.history["loss"][-1]))
ddl.log(variance=float(np.sum(head.layers[1].moving_variance)), made=int(head.optimizer.iterations))
"""


def test_a_worker_that_starts_again_beside_a_parameter_server_has_what_the_others_have(rank_pool):
    """Also what the server has not: weights that are not trained, what a fit that is over has made, the optimizer."""
    run = launch.start(rank_pool(2), FROZEN, strategy="ps")
    launch.kill_in_epoch(run, 2, rank=1)
    ended = run.finished(120)
    for name in ("encoder", "first", "variance"):
        values = ended.logged(name)
        np.testing.assert_allclose(values[0], values[1], rtol=1e-6, err_msg=name)
    assert min(ended.logged("made")) > 20, "of 40 steps, those of the epoch in which it died are not counted"


@pytest.mark.slow
@pytest.mark.parametrize("servers", [1, 2])
def test_a_parameter_server_that_is_killed(rank_pool, servers):
    spark = rank_pool(2)
    run = launch.start(spark, cell(), strategy="ps", ps=servers)
    run.until(lambda run: any((e["fit"], e["epoch"]) == (1, 1) for e in run.of_kind("epoch")), 90)
    shards = [number for number, words in processes.our_processes().items() if "parameter_server" in words]
    assert len(shards) == servers
    os.kill(shards[-1], signal.SIGKILL)
    ended = run.wait(BOUND_SECONDS)
    assert ended.state == "FAILED" and (ended.failure["rank"], ended.failure["kind"]) == (-1, "lost")
    assert "the parameter server (process" in ended.message and "--resume test continues from epoch " in ended.message
    resumed = launch.run_cell(spark, cell(sleep=0), strategy="ps", ps=servers, resume=ended.run)
    assert resumed.state == "FINISHED" and len(resumed.history["loss"]) == 5
    assert resumed.history["loss"][:1] == ended.history["loss"][:1]
