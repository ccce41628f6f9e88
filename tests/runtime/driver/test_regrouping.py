"""Workers that come and go: after a loss the others train on, and learn what one process learns."""

import importlib
import json
import os
import re
import signal

import numpy as np
import pandas as pd
import pytest
from support import launch, processes
from support.until import until

from ddl_magics.runtime.spark import slots

BOUND_SECONDS = 120.0

pytestmark = pytest.mark.timeout(300)

CELL = """
import keras, numpy as np, os, time
keras.config.set_floatx("float64")
x = np.random.default_rng(0).normal(size=(202, 8))
y = np.sin(x[:, :2])
class Slow(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if not os.path.exists(HURRY):
            time.sleep(SLEEP)
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(2)])
model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
first = model.fit(x, y, batch_size=40, epochs=2, verbose=0)
plateau = keras.callbacks.ReduceLROnPlateau(monitor="loss", factor=0.5, patience=0, min_delta=0.2)
rate = keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.98 * rate)
fit = model.fit(x, y, batch_size=20, epochs=12, validation_data=(x, y), callbacks=[rate, plateau, Slow()])
if ddl.is_chief:
    ddl.log(chief=ddl.rank)
[first.history, fit.history, fit.epoch, float(model.optimizer.learning_rate)]
"""


def cell(sleep=0.1, hurry=""):
    """sleep: seconds before each step, until the file `hurry` is there."""
    return CELL.replace("SLEEP", str(sleep)).replace("HURRY", repr(str(hurry)))


def wait_until_joined(run, hurry):
    run.until(lambda run: any("has joined" in e["message"] for e in run.of_kind("state")), BOUND_SECONDS)
    hurry.touch()


@pytest.fixture(autouse=True)
def nothing_left():
    yield
    assert processes.wait_until_gone(10) == {}


def assert_as_one_process(ended, one):
    assert ended.state == "FINISHED", ended.message
    assert {event["attempt"] for event in ended.of_kind("epoch")} == {1}
    for name, values in one.history.items():
        np.testing.assert_allclose(ended.history[name], values, rtol=1e-9)
    for mine, theirs in zip(launch.weights(ended.run), launch.weights(one.run), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9)
    assert ended.result[2:] == one.result[2:]


@pytest.fixture(scope="module")
def one(rank_pool):
    """What one process learns."""
    return launch.run_cell(rank_pool(1), cell(sleep=0), workers=1)


def members(ended):
    return [event["members"] for event in ended.of_kind("group")]


@pytest.mark.parametrize("rank", [pytest.param(1, marks=pytest.mark.slow), 0])
def test_the_others_train_on(rank_pool, one, rank):
    run = launch.start(rank_pool(3), cell(), workers=3, min_workers=2)
    launch.kill_in_epoch(run, 1, rank)
    ended = run.finished(BOUND_SECONDS)
    others = [each for each in range(3) if each != rank]
    assert members(ended)[:2] == [[0, 1, 2], others]
    assert_as_one_process(ended, one)
    assert ended.logged("chief") == [min(others)]
    shown = {each: [int(epoch) for epoch in re.findall(r"Epoch (\d+)/12", ended.logs(each))] for each in range(3)}
    chief = min(others)
    assert sorted({*shown[0], *shown[chief]}) == list(range(1, 13)) and shown[chief][-1] == 12
    assert all(not epochs for each, epochs in shown.items() if each not in (0, chief))
    assert len(re.findall(r"11/11 - .* - val_mae: ", ended.logs())) == 12


DIES = """
class Dies(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if epoch == 3 and ddl.rank == 0:
            os.kill(os.getpid(), 9)
fit = """


@pytest.mark.slow
def test_an_epoch_at_whose_end_the_chief_dies_is_in_the_history(rank_pool, one):
    source = cell(0).replace("Slow()]", "Slow(), Dies()]").replace("\nfit = ", DIES)
    ended = launch.run_cell(rank_pool(2), source, workers=2, min_workers=1)
    assert [event["epoch"] for event in ended.of_kind("epoch") if event["fit"] == 1] == list(range(12))
    assert_as_one_process(ended, one)


def test_another_joins_within_the_fit(spark_cluster, one, tmp_path):
    """In place of a worker whose executor was killed, on the executor that Spark starts again."""
    run = launch.start(spark_cluster(2), cell(0.8, tmp_path / "hurry"), min_workers=1)
    launch.kill_in_epoch(run, 1, 1, which=processes.executor_of)
    wait_until_joined(run, tmp_path / "hurry")
    ended = run.finished(BOUND_SECONDS)
    assert members(ended) == [[0, 1], [0], [0, 2]]
    said = [event["message"] for event in ended.of_kind("state") if event["state"] == "RUNNING"]
    assert [re.sub(" on .* died.*;| on .* has", "", message) for message in said] == [
        "running on 2 workers",
        "rank 1 1 worker trains on",
        "rank 2 joined; running on 2 workers",
    ]
    assert_as_one_process(ended, one)


def test_a_worker_leaves_an_executor_that_is_decommissioned(spark_cluster, one, tmp_path):
    """Which ends then: Spark waits for its tasks."""
    spark = spark_cluster(2)
    run = launch.start(spark, cell(0.8, tmp_path / "hurry"), min_workers=1)
    launch.wait_for_epoch(run, 1)
    (executor,) = {event["executor"] for event in run.of_kind("worker") if event["rank"] == 1}
    decommission(spark.sparkContext, executor)
    until(lambda: executor not in slots._listed(spark.sparkContext), 30)
    wait_until_joined(run, tmp_path / "hurry")
    ended = run.finished(BOUND_SECONDS)
    assert members(ended) == [[0, 1], [0], [0, 2]]
    assert any("died (Spark has decommissioned its executor)" in event["message"] for event in ended.of_kind("state"))
    assert_as_one_process(ended, one)


def decommission(sc, executor):
    scheduler, backend = sc._jvm.org.apache.spark.scheduler, sc._jsc.sc().schedulerBackend()
    reason = scheduler.ExecutorDecommissionInfo("its machine is taken away", sc._jvm.scala.Option.empty())
    assert backend.decommissionExecutor(executor, reason, False, False)


#: The chief dies while the second epoch of the second fit is validated. Who joins lets the others go on.
OF_CALLBACKS = """
import keras, numpy as np, os, time
keras.config.set_floatx("float64")
x = np.random.default_rng(0).normal(size=(200, 8))
y = np.sin(x[:, :2])
class Scaled(keras.layers.Layer):
    def build(self, shape):
        self.scale = self.add_weight(shape=(), initializer="ones", trainable=False)
    def call(self, inputs):
        return inputs * self.scale
class Changes(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        scale = model.layers[0].scale
        scale.assign(scale * 0.9)
        self.epoch = epoch
        if ddl.rank > 1:
            open(HURRY, "w").close()
    def on_train_batch_begin(self, batch, logs=None):
        if ddl.size > 1 and self.epoch > 1 and not os.path.exists(HURRY):
            time.sleep(0.4)
    def on_test_begin(self, logs=None):
        self.trained = model.get_weights()
        model.set_weights([0.5 * each for each in self.trained])
    def on_test_batch_end(self, batch, logs=None):
        if ddl.size > 1 and ddl.rank == 0 and self.epoch == 1 and calls == 2:
            os.kill(os.getpid(), 9)
    def on_test_end(self, logs=None):
        model.set_weights(self.trained)
model = keras.Sequential([keras.Input((8,)), Scaled(), keras.layers.Dense(2)])
model.compile(keras.optimizers.SGD(0.01), "mse")
plateau = keras.callbacks.ReduceLROnPlateau(monitor="loss", factor=0.5, patience=3, min_delta=10.0)
histories = []
how = {"batch_size": 20, "validation_data": (x, y), "verbose": 0}
for calls in (1, 2):
    fit = model.fit(x, y, epochs=4 * calls, callbacks=[Changes(), plateau], **how)
    histories.append(fit.history)
for _ in range(3):
    model.train_on_batch(x, y)
histories
"""


def test_callbacks_that_change_the_model_do_so_once(rank_pool, tmp_path):
    source = OF_CALLBACKS.replace("HURRY", repr(str(tmp_path / "hurry")))
    one = launch.finished(rank_pool(1), source, workers=1)
    ended = launch.finished(rank_pool(2), source, workers=2, min_workers=1)
    assert members(ended) == [[0, 1], [1], [1, 2]]
    assert {event["attempt"] for event in ended.of_kind("epoch")} == {1}
    for mine, theirs in zip(ended.result, one.result, strict=True):
        for name in theirs:
            np.testing.assert_allclose(mine[name], theirs[name], rtol=1e-9, err_msg=name)
    for mine, theirs in zip(launch.weights(ended.run), launch.weights(one.run), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9)
    assert {event["fit"] for event in ended.of_kind("fit")} == {0, 1, 2}, "the loop is told by the chief of then"


OF_PY_DATASET = """
import keras, numpy as np, os, time
x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        rows = slice(16 * index, 16 * index + 16)
        return x[rows], x[rows].sum(1)
class Slow(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        time.sleep(0.05)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, x.sum(1), batch_size=16, epochs=1, verbose=0)
model.fit(DATA, epochs=30, callbacks=[Slow()], verbose=0)
"""
VALIDATED = "x, x.sum(1), batch_size=16, validation_data=Batches()"


@pytest.mark.parametrize("data", ["Batches()", pytest.param(VALIDATED, marks=pytest.mark.slow)])
def test_where_ranks_compare_what_python_reads_all_restart(rank_pool, data):
    """And those that come have nobody to compare with."""
    run = launch.start(rank_pool(2), OF_PY_DATASET.replace("DATA", data), workers=2, min_workers=1)
    launch.kill_in_epoch(run, 1, 1)
    ended = run.finished(BOUND_SECONDS)
    assert {event["attempt"] for event in ended.of_kind("epoch")} == {1, 2}
    assert len(ended.history["loss"]) == 30


def test_fewer_than_the_least_number_restart(rank_pool, one):
    run = launch.start(rank_pool(2), cell(), workers=2, min_workers=2)
    launch.kill_in_epoch(run, 1, 1)
    ended = run.finished(BOUND_SECONDS)
    assert {event["attempt"] for event in ended.of_kind("epoch")} == {1, 2}
    assert ended.state == "FINISHED", ended.message


WITHOUT_CHECKPOINTS = """
import sys
checkpointing = next(m for n, m in sys.modules.items() if "ddl_runtime" in n and n.endswith(".checkpointing"))
checkpointing.MAX_BYTES = 0
"""


@pytest.mark.slow
def test_who_cannot_learn_how_a_fit_has_ended_gives_up(rank_pool, one, monkeypatch, tmp_path):
    """And so do those that come in its place, three in a row."""
    monkeypatch.setattr(
        importlib.import_module(launch.load_driver().__package__ + ".elastic_attempt"), "LATE_SECONDS", 1.0
    )
    source = WITHOUT_CHECKPOINTS + cell(0.4, tmp_path / "hurry")
    run = launch.start(rank_pool(2), source, workers=2, min_workers=1)
    launch.kill_in_epoch(run, 1, 1)
    gave_up = "it could not join the others: RuntimeError: the others are in a later fit, and no checkpoint tells how"
    run.until(lambda run: any(gave_up in e["message"] for e in run.of_kind("notice")), BOUND_SECONDS)
    (tmp_path / "hurry").touch()
    ended = run.finished(BOUND_SECONDS)
    assert members(ended)[-1] == [0]
    assert_as_one_process(ended, one)


def test_a_run_that_begins_alone_is_joined(rank_pool, one, monkeypatch, tmp_path):
    package = launch.load_driver().__package__
    executors = importlib.import_module(package + ".executors")
    monkeypatch.setattr(executors, "wait_for_slots", lambda *_: 1)
    run = launch.start(rank_pool(2), cell(0.8, tmp_path / "hurry"), workers=2, min_workers=1)
    wait_until_joined(run, tmp_path / "hurry")
    ended = run.finished(BOUND_SECONDS)
    assert members(ended) == [[0], [0, 1]]
    assert_as_one_process(ended, one)


AVERAGE = """
import keras, numpy as np, os, time
keras.config.set_floatx("float64")
if os.path.exists(DEATH):
    time.sleep(8)  # a worker that comes in place of the one that has died
x, y = np.random.default_rng(3).normal(size=(2, 384, 3))
y = y[:, :1]

class Counts(keras.callbacks.Callback):
    of_epochs = []

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
        MEET

    def on_train_batch_end(self, batch, logs=None):
        self.steps = batch + 1
        if not os.path.exists(HURRY):
            time.sleep(0.2)
        if (self.epoch, batch, ddl.rank) == (1, 3, VICTIM) and not os.path.exists(DEATH):
            open(DEATH, "w").close()
            os.kill(os.getpid(), 9)

    def on_epoch_end(self, epoch, logs=None):
        MEET
        self.of_epochs.append(self.steps)

model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
model.compile(keras.optimizers.SGD(keras.optimizers.schedules.PolynomialDecay(0.1, 480, 0.01)), "mse")
model.fit(x, y, batch_size=16, shuffle=False, verbose=0)
fit = model.fit(x, y, batch_size=16, epochs=20, shuffle=False, verbose=0, validation_data=(x, y), callbacks=[Counts()])
[x.tolist(), y.tolist(), model.get_weights()[0].tolist(), fit.history["val_loss"], Counts.of_epochs]
"""


def average_cell(folder, victim, meet="pass"):
    """A worker, `victim`, dies in the second epoch of the second fit. meet: what all do at an epoch's begin and end."""
    source = AVERAGE.replace("HURRY", repr(str(folder / "hurry"))).replace("DEATH", repr(str(folder / "death")))
    return source.replace("VICTIM", str(victim)).replace("MEET", meet)


def with_a_death(pool, folder, victim, meet="pass", **spec):
    """The end of such a run of three workers, which a fourth one has joined."""
    run = launch.start(pool(3), average_cell(folder, victim, meet), workers=3, min_workers=1, **spec)
    wait_until_joined(run, folder / "hurry")
    ended = run.finished(BOUND_SECONDS)
    assert ended.state == "FINISHED", ended.message
    assert [event["epoch"] for event in ended.of_kind("epoch")] == [0, *range(20)]
    counts = ended.result[4]
    assert counts[:2] == [8, 8] and set(counts[2:]) == {8, 12} and counts[-1] == 8
    return ended, [np.array(values) for values in ended.result]


def averaged(x, y, counts, killed):
    """What three workers learn of AVERAGE. counts: a worker's steps in each epoch of the second fit; killed: who is."""
    w, steps = np.ones((3, 1)), 0
    for epoch, count in enumerate([8, *counts]):
        workers, ends = 24 // count, []
        for worker in range(workers):
            end = w
            for i, batch in enumerate(range(worker, 24, workers)):
                rate = 0.1 - 0.09 * min(480, steps + i * workers) / 480
                rows = slice(16 * batch, 16 * batch + 16)
                end = end - rate * 2 * x[rows].T @ (x[rows] @ end - y[rows]) / 16
            ends += [] if (epoch, worker) == (2, killed) else [end]
        w, steps = sum(ends) / len(ends), steps + 24
    return w


@pytest.mark.parametrize("rank", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_an_average_is_that_of_those_who_are_there(rank_pool, tmp_path, rank):
    """Who is lost is missing in the mean of its epoch; who joins has its share of the next. A schedule counts on."""
    meet = "ddl.allreduce(epoch)"
    ended, (x, y, weights, losses, counts) = with_a_death(rank_pool, tmp_path, rank, meet, strategy="average")
    others = [each for each in range(3) if each != rank]
    assert members(ended) == [[0, 1, 2], others, [*others, 3]]
    assert {event["attempt"] for event in ended.of_kind("epoch")} == {1}
    expected = averaged(x, y, counts.tolist(), rank)
    np.testing.assert_allclose(weights, expected, rtol=1e-6)  # Keras' rate is in float32
    np.testing.assert_allclose(losses[-1], np.mean((x @ expected - y) ** 2), rtol=1e-6)


@pytest.mark.slow
def test_an_elastic_average_is_that_of_those_who_are_there(rank_pool, tmp_path):
    """Its rule and the factor of the learning rate follow their number."""
    ended, (x, y, weights, *_) = with_a_death(rank_pool, tmp_path, 1, rule="easgd")
    assert members(ended) == [[0, 1, 2], [0, 2], [0, 2, 3]]
    assert {event["attempt"] for event in ended.of_kind("epoch")} == {1}
    np.testing.assert_allclose(weights, np.linalg.lstsq(x, y, rcond=None)[0], atol=0.05)


def steps_of_epochs(ended):
    """How many batches all workers have trained in each epoch of the second fit."""
    counts = dict.fromkeys(range(20), 0)
    for event in ended.of_kind("steps"):
        if event["fit"] == 1:
            counts[event["epoch"]] += event["count"]
    return list(counts.values())


def test_beside_a_parameter_server_epochs_are_shared_out_among_those_who_are_there(rank_pool, tmp_path):
    ended, (x, y, weights, *_) = with_a_death(rank_pool, tmp_path, 1, strategy="ps")
    assert members(ended) == [[0, 1, 2], [0, 2], [0, 1, 2]]
    counts = steps_of_epochs(ended)
    assert 16 <= counts.pop(1) <= 20 and counts == [24] * 19
    np.testing.assert_allclose(weights, np.linalg.lstsq(x, y, rcond=None)[0], atol=0.05)


@pytest.mark.slow
def test_beside_a_parameter_server_the_chief_comes_before_others(rank_pool, monkeypatch, tmp_path):
    """The third worker waits for a slot when that of rank 0 becomes free."""
    executors = importlib.import_module(launch.load_driver().__package__ + ".executors")
    monkeypatch.setattr(executors, "wait_for_slots", lambda *_: 2)
    run = launch.start(rank_pool(2), average_cell(tmp_path, 0), workers=3, min_workers=1, strategy="ps")
    wait_until_joined(run, tmp_path / "hurry")
    ended = run.finished(BOUND_SECONDS)
    assert ended.state == "FINISHED", ended.message
    assert members(ended) == [[0, 1]] * 3, "it stays the chief"
    assert [event["epoch"] for event in ended.of_kind("epoch")] == [0, *range(20)]
    assert len(ended.history["val_loss"]) == 20


SHUFFLED = """
import keras, numpy as np, os, time
keras.config.set_floatx("float64")
class Rows(keras.metrics.Metric):
    def __init__(self):
        super().__init__(name="rows")
        self.total = self.add_weight(shape=(), initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.total.assign_add(keras.ops.sum(y_true**2))

    def result(self):
        return self.total + 0.0

class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if not os.path.exists(HURRY):
            time.sleep(0.2)

x = np.arange(384.0)[:, None]
model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="zeros")])
model.compile(keras.optimizers.SGD(1e-9), "mse", metrics=[Rows()])
model.fit(x, x, batch_size=16, verbose=0)
model.fit(x, x, batch_size=16, epochs=16, verbose=0, callbacks=[Slow()]).history["rows"]
"""


@pytest.mark.parametrize("strategy", ["average", pytest.param("ps", marks=pytest.mark.slow)])
def test_each_row_is_used_once_in_an_epoch_that_keras_shuffles(rank_pool, tmp_path, strategy):
    """Whoever is there: its arrays, which is what it does where nothing is said of it."""
    source = SHUFFLED.replace("HURRY", repr(str(tmp_path / "hurry")))
    run = launch.start(rank_pool(3), source, workers=3, min_workers=1, strategy=strategy)
    launch.kill_in_epoch(run, 0, 1)
    wait_until_joined(run, tmp_path / "hurry")
    ended = run.finished(BOUND_SECONDS)
    assert {event["attempt"] for event in ended.of_kind("epoch")} == {1}
    assert len(members(ended)) == 3
    assert ended.result[2:] == [sum(row**2 for row in range(384))] * 14


SHUFFLED_DATA = SHUFFLED.replace("x = np.arange(384.0)[:, None]\n", "").replace("(x, x, batch_size=16", "(dataset")
#: What one worker reads by itself must not part it from the others.
SHUFFLED_DATA = SHUFFLED_DATA.replace("model.fit(", "if ddl.is_chief:\n    next(iter(dataset))\nmodel.fit(", 1)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["average", "ps"])
def test_each_row_of_data_is_used_once_in_an_epoch(spark_cluster, tmp_path, strategy):
    numbers = np.arange(384.0)
    options = {"data": "df", "label": "y", "batch_size": 16, "strategy": strategy, "min_workers": 1}
    source = SHUFFLED_DATA.replace("HURRY", repr(str(tmp_path / "hurry")))
    run = launch.start(spark_cluster(2), source, {"df": pd.DataFrame({"x": numbers, "y": numbers})}, **options)
    launch.kill_in_epoch(run, 0, 1)
    wait_until_joined(run, tmp_path / "hurry")
    ended = run.finished(BOUND_SECONDS)
    assert {event["attempt"] for event in ended.of_kind("epoch")} == {1}
    assert ended.result[2:] == [sum(numbers**2)] * 14


SHORT_FITS = """
import keras, numpy as np, os, time
x = np.zeros((384, 3), np.float32)
class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.05)
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
for _ in range(10):
    model.fit(x, x[:, :1], batch_size=16, shuffle=False, epochs=2, verbose=0, callbacks=[Slow()])
"""


def test_who_comes_too_late_for_a_fit_has_no_share_of_the_next(rank_pool, monkeypatch):
    """Until it has joined."""
    executors = importlib.import_module(launch.load_driver().__package__ + ".executors")
    monkeypatch.setattr(executors, "wait_for_slots", lambda *_: 1)
    ended = launch.finished(rank_pool(2), SHORT_FITS, workers=2, min_workers=1, strategy="average")
    counts = dict.fromkeys(range(10), 0)
    for event in ended.of_kind("steps"):
        counts[event["fit"]] += event["count"]
    assert list(counts.values()) == [48] * 10
    assert members(ended) == [[0], [0, 1]]


BESIDE = """
import keras, numpy as np, os, time
keras.config.set_floatx("float64")
x = np.random.default_rng(0).normal(size=(202, 8))
y = np.sin(x[:, :2])

class Scaled(keras.layers.Layer):
    def build(self, shape):
        self.scale = self.add_weight(shape=(), initializer="ones", trainable=False, name="scale")

    def call(self, inputs):
        return inputs * self.scale

class Slow(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.model.layers[0].scale.assign(1.0 / (1 + epoch))

    def on_train_batch_begin(self, batch, logs=None):
        if not os.path.exists(HURRY):
            time.sleep(SLEEP)

def batches():
    for begin in range(0, 200, 20):
        yield x[begin : begin + 20], y[begin : begin + 20]

signature = tuple(keras.tree.map_structure(lambda array: tf.TensorSpec([None, array.shape[1]], array.dtype), (x, y)))
generated = tf.data.Dataset.from_generator(batches, output_signature=signature)
ddl.barrier()
model = keras.Sequential([keras.Input((8,)), Scaled(), keras.layers.Dense(8, "relu"), keras.layers.Dense(2)])
model.compile(keras.optimizers.SGD(0.05), "mse")
before = [float(model.train_on_batch(x[:31], y[:31])) for _ in range(2)]
fit = model.fit(x, y, batch_size=20, epochs=6, callbacks=[Slow()], verbose=0)
ddl.barrier()
after = [float(model.train_on_batch(x[31:64], y[31:64])) for _ in range(2)]
read = [float(model.train_on_batch(*batch)) for batch in generated]
last = model.fit(generated, epochs=2, verbose=0)
[before, fit.history, after, read, last.history]
"""


def beside(sleep=0.0, hurry=""):
    return "import tensorflow as tf" + BESIDE.replace("SLEEP", str(sleep)).replace("HURRY", repr(str(hurry)))


@pytest.mark.parametrize("workers", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_what_a_cell_trains_beside_a_fit_is_cut_for_those_who_are_there(rank_pool, tmp_path, workers):
    """One begins and is joined by another; or one of three dies, and another one comes."""
    expected = launch.run_cell(rank_pool(1), beside(), workers=1).result
    hurry = tmp_path / "hurry"
    run = launch.start(rank_pool(max(2, workers)), beside(0.4, hurry), workers=workers, min_workers=1)
    if workers > 1:
        run.until(lambda run: any(e["epoch"] == 1 for e in run.of_kind("steps")), 90)
        os.kill(run.pid(1), signal.SIGKILL)
        wait_until_joined(run, hurry)
    hurry.touch()
    ended = run.finished(BOUND_SECONDS)
    for mine, theirs in zip(ended.result, expected, strict=True):
        mine, theirs = (each["loss"] if isinstance(each, dict) else each for each in (mine, theirs))
        np.testing.assert_allclose(mine, theirs, rtol=1e-9)


OF_DATA = """
import keras, os, time
keras.config.set_floatx("float64")
class Slow(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        next(iter(dataset))  # begins another iteration
    def on_train_batch_begin(self, batch, logs=None):
        if not os.path.exists(HURRY):
            time.sleep(SLEEP)
if ddl.is_chief:
    next(iter(dataset))
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
first = model.fit(dataset, epochs=2, validation_data=validation, verbose=0)
fit = model.fit(dataset, epochs=12, validation_data=validation, callbacks=[Slow()])
[first.history, fit.history, fit.epoch, ddl.all_rows(dataset).cardinality().numpy()]
"""
DATA = {"data": "df", "features": ["a", "b"], "label": "y", "validation": 0.2, "batch_size": 20}


def of_data(sleep=0.0, hurry=""):
    return OF_DATA.replace("SLEEP", str(sleep)).replace("HURRY", repr(str(hurry)))


@pytest.mark.parametrize("of_files", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_rows_of_data_are_not_lost_with_a_worker(spark_cluster, tmp_path, of_files):
    """Worker 0 dies, and another one comes. Spark deals the rows, and misses those that were on the executor that was
    killed, as it starts the worker's task again where a slot is free; or the workers read them of files.
    """
    spark = spark_cluster(3)
    frame = spark.range(250).selectExpr("sin(id) a", "cos(2 * id) b", "sin(id) * cos(id) y")
    if of_files:
        frame.write.parquet(str(tmp_path / "rows"))
    data = {**DATA, "data": str(tmp_path / "rows")} if of_files else DATA
    one = launch.run_cell(spark, of_data(), {"df": frame}, workers=1, **data)
    hurry = tmp_path / "hurry"
    run = launch.start(spark, of_data(0.3, hurry), {"df": frame}, workers=2, min_workers=1, **data)
    launch.kill_in_epoch(run, 2, 0, which=processes.executor_of)
    wait_until_joined(run, hurry)
    ended = run.finished(BOUND_SECONDS)
    assert members(ended) == [[0, 1], [1], [1, 2]]
    assert_as_one_process(ended, one)
    reference = launch.fetch(ended.run, "reference.json")
    assert json.loads(reference)["rows"] == json.loads(launch.fetch(one.run, "reference.json"))["rows"]
