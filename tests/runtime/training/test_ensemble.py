"""`--strategy ensemble`: every worker trains a model of its own, and all of them come back."""

import json
import os
import signal

import numpy as np
import pytest
from pyspark.sql import Row
from support import launch

from ddl_magics.runtime.histories import histories

pytestmark = pytest.mark.timeout(300)

# One step of one batch for every epoch: what each rank must learn can be worked out here, from the rows that it saw.
CELL = """
import keras, numpy as np
random = np.random.default_rng(3)
x, y = random.normal(size=(40, 3)), random.normal(size=(40, 1))
keras.config.set_floatx("float64")
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, use_bias=False)])
first = model.get_weights()[0][:, 0].tolist()
model.compile(keras.optimizers.SGD(0.1), "mse")
"""
FIT = "model.fit(x, y, batch_size=40, epochs=EPOCHS, shuffle=False, verbose=0, validation_data=(x, y), callbacks=[SAY])"
SAY = 'keras.callbacks.LambdaCallback(on_train_end=lambda logs: ddl.log(**{f"w{i}": v for i, v in enumerate(first)}))'


def fit(epochs):
    return CELL + FIT.replace("EPOCHS", str(epochs)).replace("SAY", SAY)


def weights(run, rank, index=0):
    """The kernel of a model's one layer."""
    return launch.weights(run, index, "" if rank == 0 else f"rank-{rank}-")[0]


def first_weights(ended, rank):
    (said,) = [event["metrics"] for event in ended.of_kind("values", rank) if "w0" in event["metrics"]]
    return np.array([[said[f"w{i}"]] for i in range(3)])


#: Two models: of --data, and of arrays that every rank has. The first one decides the type of a process' numbers.
SHARED = """
import keras
keras.config.set_floatx("float64")
seen = sorted(float(v) for batch, _ in dataset for v in batch)
ddl.log(rows=len(seen), total=sum(seen), batch=int(next(iter(dataset))[0].shape[0]), size=ddl.size,
        validated=sum(len(batch) for batch, _ in validation))
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(dataset.map(lambda a, y: (a[:, None] / 40, y / 40)), epochs=2, verbose=0)
try:
    ddl.allreduce(1)
except Exception as error:
    print(error)
"""
OF_DATA, OF_ARRAYS = 0, 1


@pytest.fixture(scope="module")
def ended(spark_cluster):
    spark = spark_cluster(2)
    frame = spark.createDataFrame([Row(a=float(i), y=float(i)) for i in range(40)])
    data = {"data": "frame", "features": ["a"], "label": "y", "batch_size": 5, "validation": 0.25}
    return launch.finished(spark, SHARED + fit(3), {"frame": frame}, strategy="ensemble", **data)


def test_every_rank_trains_from_a_seed_of_its_own_on_all_that_its_fit_is_given(ended):
    random = np.random.default_rng(3)
    x, y = random.normal(size=(40, 3)), random.normal(size=(40, 1))
    assert not np.allclose(first_weights(ended, 0), first_weights(ended, 1))
    for rank in range(2):
        w, losses = first_weights(ended, rank), []
        for _ in range(3):
            losses.append(np.mean((x @ w - y) ** 2))
            w = w - 0.1 * 2 * x.T @ (x @ w - y) / 40
        np.testing.assert_allclose(weights(ended.run, rank, OF_ARRAYS), w, rtol=1e-9)
        history = histories(ended.events, rank)[OF_ARRAYS]
        np.testing.assert_allclose(history["loss"], losses, rtol=1e-6)
        np.testing.assert_allclose(history["val_loss"][-1], np.mean((x @ w - y) ** 2), rtol=1e-6)
    assert {e["name"] for e in ended.of_kind("artifact")} >= {"model-1.keras", "rank-1-model-1.keras"}


def test_data_is_shared_out_validation_is_everybodys_and_ranks_do_not_meet(ended):
    said = [ended.of_kind("values", rank)[0]["metrics"] for rank in range(2)]
    assert said[0]["rows"] + said[1]["rows"] == 30 and said[0]["rows"] == 15
    assert said[0]["total"] != said[1]["total"]
    assert all(s["batch"] == 5 and s["validated"] == 10 and s["size"] == 2 for s in said)
    assert not np.array_equal(weights(ended.run, 0, OF_DATA), weights(ended.run, 1, OF_DATA))
    assert all("workers of --strategy ensemble do not meet" in ended.logs(rank) for rank in range(2))


def test_a_failure_of_one_rank_ends_the_run_with_its_name(rank_pool):
    cell = CELL + "if ddl.rank == 1:\n    raise ValueError('no such column')\n" + fit(100_000).split("\n", 8)[-1]
    ended = launch.run_cell(rank_pool(2), cell, strategy="ensemble")
    assert (ended.state, ended.failure["rank"]) == ("FAILED", 1)
    assert "no such column" in ended.failure["message"]


@pytest.mark.slow
def test_a_killed_rank_begins_again_while_the_others_go_on(spark_cluster):
    cell = fit(3).replace("model.fit", "import time; time.sleep(4 if ddl.rank else 0); model.fit")
    run = launch.start(spark_cluster(2), cell, strategy="ensemble")
    run.until(lambda run: any(e["kind"] == "worker" and e["rank"] == 1 and e["state"] == "running" for e in run.events))
    os.kill(run.pid(1), signal.SIGKILL)
    ended = run.finished()
    assert [len(histories(ended.events, rank)[0]["loss"]) for rank in range(2)] == [3, 3]
    assert {e["attempt"] for e in ended.of_kind("worker", 0)} == {1}
    assert {e["attempt"] for e in ended.of_kind("worker", 1)} == {1, 2}
    assert weights(ended.run, 1).shape == (3, 1)


@pytest.mark.slow
def test_a_stop_keeps_every_model(rank_pool):
    run = launch.start(rank_pool(2), fit(100_000), strategy="ensemble")
    run.until(lambda run: {"epoch", "member"} <= {event["kind"] for event in run.events})
    ended = run.stopped()
    assert all(weights(ended.run, rank).shape == (3, 1) for rank in range(2))
    assert json.dumps(histories(ended.events, 1)[0]["loss"])
