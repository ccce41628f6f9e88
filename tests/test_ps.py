"""Training against a parameter server: as accurate as one process, disjoint shares, commits from every worker."""

import statistics

import comparison
import launch
import pytest

from ddl_magics.runtime import rules

pytestmark = pytest.mark.timeout(400)  # the fixture of one process is in the time of the first test that wants it

SEEDS = ("1", "2", "3", "4", "5")
WITHIN = 0.02


@pytest.fixture(scope="module")
def one_process(digits_reference):
    """Accuracies of plain Keras, by seed."""
    return digits_reference(SEEDS, "float32")


def _with_rule(rule, seeds, epochs=25):
    """The digits' cell, with the optimizer that a rule needs."""
    make = "keras.optimizers.SGD(0.02, momentum=0.9, nesterov=True)" if rule == "eamsgd" else "None"
    cases = f"{{seed: accuracy(int(seed), {epochs}, {make}) for seed in {seeds!r}}}"
    return f"{comparison.DIGITS}\n{cases}"


@pytest.mark.parametrize("rule", [name for name in rules.names("ps") if name != launch.DEFAULT_RULE])
def test_every_rule_trains(spark_cluster, one_process, rule):
    ended = launch.run_cell(spark_cluster(2), _with_rule(rule, SEEDS[:1], 12), strategy="ps", rule=rule)
    assert ended.state == "FINISHED", ended.failure
    assert ended.result["1"] >= one_process["1"] - 2 * WITHIN
    assert not [e for e in ended.of_kind("notice") if "diverge" in e["message"]]


@pytest.mark.slow
@pytest.mark.parametrize("rule", rules.names("ps"))
def test_every_rule_is_as_accurate_as_one_process(spark_cluster, one_process, rule):
    ended = launch.run_cell(spark_cluster(4), _with_rule(rule, SEEDS), strategy="ps", rule=rule, workers=4, seconds=350)
    assert ended.state == "FINISHED", ended.failure
    ours, theirs = (statistics.mean(accuracies.values()) for accuracies in (ended.result, one_process))
    assert ours >= theirs - WITHIN, (ended.result, one_process)


HASTY = """
import keras, numpy as np
x = np.random.default_rng(0).normal(size=(640, 8)).astype("float32")
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1), "mse")
model.fit(x, x[:, 0], batch_size=16, epochs=1, verbose=0)
"""


def test_momentum_elastic_averaging_wants_an_optimizer_with_momentum(spark_cluster):
    ended = launch.run_cell(spark_cluster(2), HASTY, strategy="ps", rule="eamsgd")
    assert ended.state == "FAILED"
    assert "--rule eamsgd is made for keras.optimizers.SGD with momentum and nesterov=True" in ended.message


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


@pytest.mark.parametrize(("strategy", "servers"), [("ps", 3), ("allreduce", None)])
def test_batch_norm_statistics_are_averaged(spark_cluster, strategy, servers):
    ended = launch.run_cell(spark_cluster(2), BATCH_NORM, strategy=strategy, ps=servers)
    assert ended.state == "FINISHED", ended.failure
    values = [e["metrics"] for e in ended.of_kind("values")]
    assert len(values) == 2 and values[0] == values[1] and values[0]["mean"] != 0


@pytest.mark.parametrize("workers", [2, 4])
def test_accuracy_of_one_process(spark_cluster, one_process, workers):
    cell = f"{comparison.DIGITS}\nrun_cases({SEEDS!r}, 'float32')"
    ended = launch.run_cell(spark_cluster(workers), cell, strategy="ps", workers=workers, seconds=350)
    assert ended.state == "FINISHED", ended.failure
    ours, theirs = (statistics.mean(accuracies.values()) for accuracies in (ended.result, one_process))
    assert ours >= theirs - WITHIN, (ended.result, one_process)
    commits = {rank: ended.of_kind("commits", rank) for rank in range(workers)}
    assert all(sum(e["commits"] for e in events) > 50 for events in commits.values())
    assert max(e["staleness_max"] for e in ended.of_kind("commits")) > 0


def test_divergence_is_foretold_before_the_first_step(spark_cluster):
    rule = "downpour:scale=1"
    ended = launch.run_cell(spark_cluster(4), HASTY, strategy="ps", rule=rule, workers=4, window=10)
    kinds = [
        e["kind"] for e in ended.events if e["kind"] == "steps" or "will probably diverge" in str(e.get("message"))
    ]
    assert kinds[0] == "notice" and kinds.count("notice") == 1, "the chief says it, once"
