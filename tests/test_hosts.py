"""Training on several hosts, as the ranks take it: gradients in buckets through a ring, leaders' rings, compression."""

import comparison
import hosts
import launch
import pytest

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(not hosts.can_be_pretended(), reason="hosts are pretended with root's rights, on Linux"),
]

#: What gradients are exchanged in different ways for.
CASES = (
    "sgd_momentum",
    "adamw_clipnorm",
    "accumulation",
    "weighted",
    "embedding",
    "own_step",
    "pipeline",
    "adversaries",
)

DENSE_AND_SPARSE = ("sgd_momentum", "embedding")

#: Code before a cell: which transport a rank has.
TRANSPORT = """
ring = ddl._context.ring
print("transport", type(ring).__name__, ring.crosses_network)
"""

DIGITS = """
import keras
import numpy as np
from sklearn.datasets import load_digits
keras.utils.set_random_seed(3)
x, y = load_digits(return_X_y=True)
x = (x / 16).astype("float32")
model = keras.Sequential([
    keras.Input((64,)), keras.layers.Dense(128, "relu"), keras.layers.Dense(128, "relu"), keras.layers.Dense(10)
])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss, metrics=["accuracy"])
history = model.fit(x, y, batch_size=64, epochs=EPOCHS, shuffle=False, verbose=0).history
weights = np.concatenate([each.reshape(-1) for each in model.get_weights()])
same = ddl.allreduce(weights) == weights
{"history": history, "weights": weights.tolist(), "same": bool(same.all())}
"""


@pytest.fixture
def spark(spark_cluster, tmp_path):
    """`spark(workers, executors on each host)`"""
    cluster = None

    def start(workers, executors):
        nonlocal cluster
        cluster = spark_cluster(workers, hosts.python(tmp_path, executors))
        return cluster

    return start


def digits(spark, epochs, **spec):
    ended = launch.run_cell(spark, TRANSPORT + DIGITS.replace("EPOCHS", str(epochs)), seconds=300, **spec)
    assert ended.state == "FINISHED", (ended.message, ended.failure)
    assert ended.logs().count("transport Ring True") == 2
    assert ended.result["same"]
    return ended.result


def test_bfloat16_learns_what_one_process_learns(spark, reference):
    names = tuple(name for name in CASES if name not in comparison.NOT_SGD)
    ended = comparison.distributed(spark(2, 1), names, "float32", 2, prologue=TRANSPORT, compression="bf16")
    assert ended.logs().count("transport Ring True") == 2
    comparison.assert_ranks_equal(ended, names, 2)
    ours, theirs = ended.result, reference(names, "float32")
    gaps = []
    for name in names:
        for key, values in theirs[name]["history"].items():
            assert comparison.distance(ours[name]["history"][key], values) < 1e-2, (name, key)
        gaps.append(comparison.distance(ours[name]["weights"], theirs[name]["weights"]))
        assert gaps[-1] < 1e-2, name
    assert max(gaps) > comparison.FLOAT32_WEIGHTS  # or nothing was rounded


def test_the_largest_hundredth_learns(spark):
    learnt = digits(spark(2, 1), 15, compression="topk:0.01")
    assert learnt["history"]["accuracy"][-1] > 0.95


def test_compression_on_one_machine_is_left_out_with_a_word(spark_cluster):
    cell = DIGITS.replace("EPOCHS", "1")
    ended = launch.run_cell(spark_cluster(2), cell, compression="bf16")
    assert ended.state == "FINISHED"
    said = [e["message"] for e in ended.of_kind("notice") if "compression" in e["message"]]
    assert said == ["--compression bf16 is left out: it saves bytes on a network, and all workers are on one machine"]


@pytest.mark.parametrize(
    ("workers", "a_host", "transport", "names"),
    [(2, 1, "Ring True", CASES), (4, 3, "Hierarchy True", CASES), (4, 2, "Hierarchy True", DENSE_AND_SPARSE)],
)
def test_equality_over_hosts(spark, reference, workers, a_host, transport, names):
    """Two hosts of one rank; one of three and one of one; two of two."""
    ended = comparison.distributed(spark(workers, a_host), names, "float64", workers, prologue=TRANSPORT)
    assert ended.logs().count(f"transport {transport}") == workers
    assert not comparison.differences(ended.result, reference(names, "float64"), names, "float64")
    comparison.assert_ranks_equal(ended, names, workers)
