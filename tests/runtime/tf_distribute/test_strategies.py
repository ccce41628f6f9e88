"""`--strategy tf-allreduce` and `tf-ps`: cells written for tf.distribute, on clusters of TensorFlow's own."""

import os
import re
import signal
import socket

import numpy as np
import pytest
from pyspark.sql import Row
from support import launch, processes
from support.paths import KERAS2_PYTHON as KERAS2

from ddl_magics.runtime.tf_distribute import cluster

pytestmark = pytest.mark.timeout(400)

# A line through 48 rows in batches of 16: what one process learns of it is worked out in NumPy.
HEAD = """
import time, keras, numpy as np, tensorflow as tf
random = np.random.default_rng(3)
x, y = random.normal(size=(48, 3)).astype("float32"), random.normal(size=(48, 1)).astype("float32")
"""
MIRRORED = (
    HEAD
    + """
with strategy.scope():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
    optimizer = keras.optimizers.SGD(0.1)
data = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((x, y)).batch(16))

@tf.function
def step(batch):
    def of_replica(batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((model(batch[0]) - batch[1]) ** 2) / 16
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss
    return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(of_replica, args=(batch,)), axis=None)
"""
)
TRAIN = """
for epoch in range(2):
    for batch in data:
        loss = step(batch)
    ddl.log(loss=loss, step=epoch)
ddl.log(workers=ddl.allreduce(1.0, "sum"), weights=ddl.allreduce(float(np.sum(model.get_weights()[0]))))
assert ddl.strategy is strategy and strategy.num_replicas_in_sync == ddl.size
loss
"""
FOREVER = """
while True:
    for batch in data:
        step(batch)
    ddl.log(round=1)
"""
#: A stop interrupts Python: this is how it looks while the chief waits in TensorFlow for a worker that has left.
UNINTERRUPTED = "import signal\nif ddl.is_chief:\n    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\n"
SERVED = (
    HEAD
    + """
with strategy.scope():
    w = tf.Variable(tf.ones((3, 1)))
    seen = tf.Variable(0.0)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
def read():
    return tf.data.Dataset.from_tensor_slices((x, x @ tf.constant([[1.0], [2.0], [3.0]]))).repeat().batch(16)
rows = iter(coordinator.create_per_worker_dataset(read))

@tf.function
def step(rows):
    def of_replica(batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((batch[0] @ w - batch[1]) ** 2)
        w.assign_sub(0.05 * tape.gradient(loss, w))
        seen.assign_add(16.0)
        return loss
    return strategy.run(of_replica, args=(next(rows),))
"""
)
LEARN = """
losses = [coordinator.schedule(step, args=(rows,)) for _ in range(150)]
coordinator.join()
ddl.log(loss=losses[-1].fetch())
ddl.log(seen=seen, workers=strategy._num_workers)
w.numpy()[:, 0].tolist()
"""
SCHEDULE = """
while True:
    for _ in range(10):
        coordinator.schedule(step, args=(rows,))
    coordinator.join()
    ddl.log(round=1)
"""


FITTED = (
    HEAD
    + """
with strategy.scope():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
    model.compile(keras.optimizers.SGD(0.1), "mse")
"""
)
FIT = {
    "tf-allreduce": "model.fit(x, y, batch_size=16, epochs=2, shuffle=False)",
    "tf-ps": """
def read(context):
    return tf.data.Dataset.from_tensor_slices((x, x @ tf.constant([[1.0], [2.0], [3.0]]))).repeat().batch(16)
model.fit(tf.keras.utils.experimental.DatasetCreator(read), steps_per_epoch=40, epochs=2)""",
}


def one_process():
    random = np.random.default_rng(3)
    x, y, w = random.normal(size=(48, 3)), random.normal(size=(48, 1)), np.ones((3, 1))
    for _ in range(2):
        for i in (0, 16, 32):
            xb, yb = x[i : i + 16], y[i : i + 16]
            loss = np.mean((xb @ w - yb) ** 2)
            w = w - 0.1 * 2 * xb.T @ (xb @ w - yb) / 16
    return w, loss


SUMS = """
total = 0.0
for batch in dataset:
    def rows(batch):
        return tf.reduce_sum(batch[:, 0]), tf.reduce_sum(batch[:, 1] + 1.0)
    both = strategy.run(rows, args=(batch,))
    total += float(strategy.reduce(tf.distribute.ReduceOp.SUM, both[0], axis=None))
    ddl.log(rows=strategy.reduce(tf.distribute.ReduceOp.SUM, both[1], axis=None))
"""
FIT_OF_KERAS_3 = """
with strategy.scope():
    other = keras.Sequential([keras.layers.Dense(1)])
    other.compile("sgd", "mse")
try:
    other.fit(x, y)
except Exception as error:
    print(error)
"""


@pytest.fixture(scope="module")
def mirrored(spark_cluster):
    """One run under tf-allreduce: a training, sums over its --data, and a fit of Keras 3."""
    spark = spark_cluster(2)
    frame = spark.createDataFrame([Row(a=float(i), b=0.0) for i in range(40)])
    data = {"data": "frame", "features": ["a", "b"], "batch_size": 8}
    cell = MIRRORED + TRAIN + SUMS + FIT_OF_KERAS_3 + "[float(loss), total]"
    ended = launch.finished(spark, cell, {"frame": frame}, strategy="tf-allreduce", **data)
    assert not processes.wait_until_gone()
    return ended


def test_workers_learn_what_one_process_learns(mirrored):
    w, loss = one_process()
    np.testing.assert_allclose(launch.weights(mirrored.run)[0], w, rtol=1e-4)
    assert mirrored.result[0] == pytest.approx(loss, rel=1e-4)
    for rank in range(2):
        said = {k: v for e in mirrored.of_kind("values", rank) for k, v in e["metrics"].items()}
        assert said["workers"] == 2 and said["weights"] == pytest.approx(w.sum(), rel=1e-4)
    (notice,) = mirrored.of_kind("notice")
    assert "neither authenticated nor encrypted" in notice["message"]


def test_data_comes_distributed(mirrored):
    assert mirrored.result[1] == sum(range(40))
    assert mirrored.logged("rows", 0) == [8.0] * 5


def test_a_fit_of_keras_3_is_refused(mirrored):
    says = r"model.fit of Keras 3\S* does not run under --strategy tf-allreduce: .*tf_keras, or .*--strategy allreduce"
    assert re.search(says, mirrored.logs(0)) and re.search(says, mirrored.logs(1))


def test_servers_work_for_the_coordinator(spark_cluster):
    ended = launch.finished(spark_cluster(2), SERVED + LEARN, strategy="tf-ps", ps=2)
    np.testing.assert_allclose(ended.result, [1, 2, 3], atol=0.02)
    said = {k: v for e in ended.of_kind("values", 0) for k, v in e["metrics"].items()}
    assert said["seen"] == 150 * 16 and said["workers"] == 2 and said["loss"] < 0.01
    assert not ended.of_kind("values", 1)
    # Of rank 1 itself nothing is to be seen: TensorFlow, and its 100 MB at least, are in the server beside it.
    assert max(e["memory"] for e in ended.of_kind("sample", 1)) > 150 << 20
    assert [e["state"] for e in ended.of_kind("worker", 1)][-2:] == ["serving", "finished"]
    assert not processes.wait_until_gone()


@pytest.mark.parametrize("strategy", ["tf-allreduce", pytest.param("tf-ps", marks=pytest.mark.slow)])
def test_a_fit_of_keras_2_is_reported(spark_cluster, strategy):
    ended = launch.finished(spark_cluster(2, KERAS2), FITTED + FIT[strategy], strategy=strategy)
    (learnt,) = launch.weights(ended.run)
    assert len(ended.history["loss"]) == 2
    assert [e["fit"] for e in ended.of_kind("fit", 0)] == [e["fit"] for e in ended.of_kind("fit_end", 0)] == [0]
    if strategy == "tf-allreduce":
        w, _ = one_process()
        np.testing.assert_allclose(learnt, w, rtol=1e-4)
        assert sum(e["rows"] for e in ended.of_kind("steps")) == 2 * 48
    else:
        np.testing.assert_allclose(learnt[:, 0], [1, 2, 3], atol=0.02)
        assert sum(e["count"] for e in ended.of_kind("steps")) == 80


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["tf-allreduce", "tf-ps"])
def test_a_fit_of_keras_2_ends_at_its_target(spark_cluster, strategy):
    cell = FITTED + FIT[strategy].replace("epochs=2", "epochs=50")
    ended = launch.finished(spark_cluster(2, KERAS2), cell, strategy=strategy, target="loss:1e9")
    assert len(ended.history["loss"]) == 1 and "; target loss <= 1e+09 reached in epoch 1: " in ended.message


@pytest.mark.slow
def test_a_failure_of_one_worker_ends_all_with_its_message(spark_cluster):
    cell = MIRRORED + "if ddl.rank == 1:\n    raise ValueError('no such column')\n" + FOREVER
    ended = launch.run_cell(spark_cluster(2), cell, strategy="tf-allreduce")
    assert ended.state == "FAILED" and "ValueError: no such column" in ended.failure["message"]
    assert ended.failure["rank"] == 1


def test_a_reserved_port_is_taken_on_each_address():
    """TensorFlow's server listens on all of them."""
    with cluster.reserve() as reserved, socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.2", reserved.getsockname()[1]))


def test_a_cell_that_is_not_written_for_it_is_refused(spark_cluster):
    with pytest.raises(launch.Refused, match=r"mentions neither `strategy`.*use --strategy ps, which needs no change"):
        launch.run_cell(spark_cluster(2), HEAD, strategy="tf-ps")


@pytest.mark.slow
@pytest.mark.parametrize(
    "strategy, cell",
    [
        pytest.param("tf-allreduce", MIRRORED + FOREVER, id="interrupted"),
        pytest.param("tf-allreduce", UNINTERRUPTED + MIRRORED + FOREVER, id="waiting"),
        pytest.param("tf-ps", SERVED + SCHEDULE, id="coordinator", marks=pytest.mark.slow),
    ],
)
def test_a_stop_ends_it(spark_cluster, strategy, cell):
    run = launch.start(spark_cluster(2), cell, strategy=strategy)
    run.until(lambda run: any(event["kind"] == "values" for event in run.events), 120)
    ended = run.stopped(20)
    assert "by force" not in ended.message, (ended.message, ended.failure)
    if strategy == "tf-allreduce":
        assert launch.weights(ended.run)[0].shape == (3, 1)
    assert not processes.wait_until_gone()


@pytest.mark.slow
def test_after_the_death_of_a_worker_all_begin_again_as_often_as_was_asked(spark_cluster):
    run = launch.start(spark_cluster(2), MIRRORED + FOREVER, strategy="tf-allreduce", attempts=2)
    for attempt in (1, 2):
        run.until(lambda run, a=attempt: any(e["kind"] == "values" and e["attempt"] == a for e in run.events), 120)
        os.kill(run.pid(1), signal.SIGKILL)
    ended = run.wait(60)
    assert (ended.state, ended.failure["rank"], ended.failure["kind"]) == ("FAILED", 1, "signal")
    assert "it was attempt 2 of 2" in ended.failure["message"]
    assert not processes.wait_until_gone()


@pytest.mark.slow
def test_a_killed_server_is_named(spark_cluster):
    run = launch.start(spark_cluster(2), SERVED + SCHEDULE, strategy="tf-ps")
    run.until(lambda run: any(event["kind"] == "values" for event in run.events), 120)
    servers = [pid for pid, command in processes.our_processes().items() if "tf_distribute.server" in command]
    assert len(servers) == 3
    os.kill(servers[-1], signal.SIGKILL)
    ended = run.wait(60)
    assert ended.state == "FAILED"
    assert re.match(
        r"RuntimeError: TensorFlow's server for (worker|ps) \d \(process \d+\) ended", ended.failure["message"]
    )
    assert not processes.wait_until_gone()
