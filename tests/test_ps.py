"""Training against a parameter server: as accurate as one process, disjoint shares, commits from every worker."""

import json
import statistics
import subprocess
import sys
from pathlib import Path

import launch
import pytest

HERE = Path(__file__).parent / "equality"
SEEDS = ("1", "2", "3", "4", "5")
WITHIN = 0.02


@pytest.fixture(scope="module")
def one_process(tmp_path_factory):
    """Accuracies of plain Keras, by seed."""
    out = tmp_path_factory.mktemp("reference") / "digits.json"
    command = [sys.executable, HERE / "reference.py", HERE / "digits.py", "float32", out, *SEEDS]
    subprocess.run(command, check=True, timeout=300, capture_output=True)
    return json.loads(out.read_text())


@pytest.mark.timeout(400)
@pytest.mark.parametrize("workers", [2, 4])
def test_accuracy_of_one_process(spark_cluster, one_process, workers):
    cell = (HERE / "digits.py").read_text() + f"\nrun_cases({SEEDS!r}, 'float32')"
    ended = launch.run_cell(spark_cluster(workers), cell, strategy="ps", workers=workers, seconds=350)
    assert ended.state == "FINISHED", ended.failure
    ours, theirs = (statistics.mean(accuracies.values()) for accuracies in (ended.result, one_process))
    assert ours >= theirs - WITHIN, (ended.result, one_process)
    commits = {rank: ended.of_kind("commits", rank) for rank in range(workers)}
    assert all(sum(e["commits"] for e in events) > 50 for events in commits.values())
    assert max(e["staleness_max"] for e in ended.of_kind("commits")) > 0


SEEN = """
import keras, numpy as np, tensorflow as tf
x = np.stack([np.arange(150), np.random.default_rng(0).normal(size=150)], 1).astype("float32")
seen = []
class Spy(keras.Model):
    def train_step(self, data):
        tf.py_function(lambda ids: seen.extend(ids.numpy().astype(int).tolist()), [data[0][:, 0]], [])
        return super().train_step(data)
inputs = keras.Input((2,))
model = Spy(inputs, keras.layers.Dense(1)(inputs * 0.01))
model.compile("sgd", "mse")
model.fit(x, x[:, 1], batch_size=16, epochs=1, verbose=0)
for row in seen:
    ddl.log(row=row)
"""


@pytest.mark.parametrize("strategy", ["ps", "allreduce"])
def test_shares_are_disjoint_and_complete(spark_cluster, strategy):
    ended = launch.run_cell(spark_cluster(2), SEEN, strategy=strategy)
    assert ended.state == "FINISHED", ended.failure
    shares = [[e["metrics"]["row"] for e in ended.of_kind("values", rank)] for rank in range(2)]
    assert min(map(len, shares)) >= 60
    assert sorted(shares[0] + shares[1]) == list(range(150))


BATCH_NORM = """
import keras, numpy as np
x = np.random.default_rng(ddl.rank).normal(loc=3.0, size=(320, 4)).astype("float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.BatchNormalization(), keras.layers.Dense(1)])
model.compile("sgd", "mse")
import tensorflow as tf
data = ddl.local(tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(32))
model.fit(data, epochs=2, verbose=0)
norm = model.layers[0]
ddl.log(mean=float(norm.moving_mean.numpy().sum()), variance=float(norm.moving_variance.numpy().sum()))
"""


@pytest.mark.parametrize("strategy", ["ps", "allreduce"])
def test_batch_norm_statistics_are_averaged(spark_cluster, strategy):
    ended = launch.run_cell(spark_cluster(2), BATCH_NORM, strategy=strategy)
    assert ended.state == "FINISHED", ended.failure
    values = [e["metrics"] for e in ended.of_kind("values")]
    assert len(values) == 2 and values[0] == values[1] and values[0]["mean"] != 0
