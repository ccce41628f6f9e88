"""Training on hosts that are pretended: gradients in buckets through a ring, and compression."""

import pytest
from support import comparison, hosts, launch

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(not hosts.can_be_pretended(), reason="hosts are pretended with root's rights, on Linux"),
]

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


@pytest.fixture(scope="module")
def two_hosts(rank_pool, tmp_path_factory):
    """Two hosts of one executor."""
    return rank_pool(2, hosts.python(tmp_path_factory.mktemp("hosts"), 1))


def digits(two_hosts, epochs, **spec):
    ended = launch.finished(two_hosts, hosts.TRANSPORT + DIGITS.replace("EPOCHS", str(epochs)), seconds=300, **spec)
    assert ended.logs().count("transport Ring True") == 2
    assert ended.result["same"]
    return ended.result


@pytest.mark.slow
def test_bfloat16_learns_what_one_process_learns(two_hosts, reference):
    names = ("sgd_momentum", "embedding")
    learned = comparison.learn(two_hosts, names, "float32", 2, hosts.TRANSPORT, compression="bf16")
    assert learned.ended.logs().count("transport Ring True") == 2
    learned.assert_ranks_equal()
    ours, theirs = learned.results, reference(names, "float32")
    gaps = []
    for name in names:
        for key, values in theirs[name]["history"].items():
            assert comparison.distance(ours[name]["history"][key], values) < 1e-2, (name, key)
        gaps.append(comparison.distance(ours[name]["weights"], theirs[name]["weights"]))
        assert gaps[-1] < 1e-2, name
    assert max(gaps) > comparison.FLOAT32_WEIGHTS  # or nothing was rounded


@pytest.mark.slow  # test_compression.py has what is sent and what is kept for later
def test_training_with_the_largest_hundredth_learns(two_hosts):
    learnt = digits(two_hosts, 15, compression="topk:0.01")
    assert learnt["history"]["accuracy"][-1] > 0.95


#: Code before cases: a bucket for each gradient, so that many are under way.
SMALL_BUCKETS = """
import sys
buckets = next(m for n, m in sys.modules.items() if "ddl_runtime" in n and n.endswith(".buckets"))
buckets.MIN_BUCKET_BYTES = 0
"""


@pytest.mark.parametrize(
    "names", [("adamw_clipnorm", "embedding"), pytest.param(comparison.OVER_HOSTS, marks=pytest.mark.slow)]
)
def test_a_ring_learns_what_one_process_learns(two_hosts, reference, names):
    learned = comparison.learn(two_hosts, names, "float64", 2, hosts.TRANSPORT)
    assert learned.ended.logs().count("transport Ring True") == 2
    comparison.check(learned, reference)


@pytest.mark.slow
def test_exchanges_of_batchnorm_do_not_meet_those_of_gradients(two_hosts, reference):
    names, prologue = ("normalized_branches", "normalized_adversaries"), hosts.TRANSPORT + SMALL_BUCKETS
    learned = comparison.learn(two_hosts, names, "float64", 2, prologue, sync_batchnorm=True)
    assert learned.ended.logs().count("transport Ring True") == 2
    comparison.check(learned, reference)
