"""n workers learn what one process learns where each updates a part of the weights."""

import pytest
from support import comparison, hosts, launch
from support.comparison import ALWAYS, MORE, SHARDED

pytestmark = pytest.mark.timeout(1200)

#: What every mechanism needs once; the rest with `make test-slow`.
QUICK = ("every_optimizer", "states_saved", "averages_at_the_end", "frozen_and_unused", "embedding", "adamw_clipnorm")
QUICK += ("step_that_counts",)
#: Of the other cases, what matters to the optimizer.
CASES = ("sgd_momentum", "adamw_clipnorm", "accumulation", "moving_average", "schedule", "embedding", "own_step")
CASES += ("compiled_many_steps", "own_optimizers", "one_weight_eagerly")


@pytest.fixture(scope="module")
def learned(rank_pool):
    return comparison.learn(rank_pool(2), QUICK, "float64", 2, shard_optimizer="yes")


def test_two_workers(learned, reference):
    comparison.check(learned, reference)


def test_what_cannot_be_divided_is_said(learned):
    notices = [event["message"] for event in learned.ended.of_kind("notice")]
    said = [message for message in notices if "--shard-optimizer" in message]
    left_out = "--shard-optimizer is left out: "
    assert sorted(said) == [left_out + "Adafactor has a state that cannot be divided", left_out + "SGD has no state"]


ENDLESS = """
import keras, numpy as np
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(np.ones((64, 4)), np.ones(64), batch_size=32, epochs=1_000_000, verbose=0)
"""


def test_a_run_that_is_stopped_keeps_its_model(rank_pool):
    """Rank 0 alone saves it, and the state of all is there."""
    run = launch.start(rank_pool(2), ENDLESS, shard_optimizer="yes")
    run.until(lambda run: run.of_kind("epoch"))
    notices = [event["message"] for event in run.stopped().of_kind("notice")]
    assert not [message for message in notices if "cannot be saved" in message]


BY_SIZE = """
import keras, numpy as np
for megabytes, momentum in ((90, 0.9), (100, 0.9), (100, 0.0)):
    model = keras.Sequential([keras.Input((1000,)), keras.layers.Dense(megabytes * 256 * 1024 // 1001)])
    model.compile(keras.optimizers.SGD(momentum=momentum), "mse")
    model.fit(np.ones((2, 1000), "float32"), np.ones((2, model.output_shape[1]), "float32"), batch_size=2, verbose=0)
    print(megabytes, "MB,", momentum, "of momentum:", type(model.optimizer.variables[-1]).__name__)
    del model  # else it is saved
"""


def test_by_itself_an_update_is_sharded_that_is_large_and_has_a_state(rank_pool):
    logs = launch.finished(rank_pool(2), BY_SIZE).logs(0)
    assert "90 MB, 0.9 of momentum: Variable" in logs and "100 MB, 0.9 of momentum: WholeState" in logs
    assert "100 MB, 0.0 of momentum: Variable" in logs


@pytest.mark.slow
@pytest.mark.executors(4)
@pytest.mark.parametrize("workers", [2, 3, 4])
def test_more_workers(rank_pool, reference, workers):
    """One of four has nothing to update of a small model."""
    learned = comparison.learn(rank_pool(workers), SHARDED + CASES, "float64", workers, shard_optimizer="yes")
    comparison.check(learned, reference)


@pytest.mark.slow
@pytest.mark.executors(4)
@pytest.mark.skipif(not hosts.can_be_pretended(), reason="hosts are pretended with root's rights, on Linux")
@pytest.mark.parametrize("a_host", [1, 2, 3])
def test_hosts(rank_pool, reference, tmp_path, a_host):
    """Of one worker each, of two, and of three and one."""
    pool = rank_pool(4, hosts.python(tmp_path, a_host))
    learned = comparison.learn(pool, SHARDED, "float64", 4, hosts.TRANSPORT, shard_optimizer="yes")
    assert learned.ended.logs().count("transport %s True" % ("Ring" if a_host == 1 else "Hierarchy")) == 4
    comparison.check(learned, reference)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 4])
def test_all_cases(spark_cluster, reference, workers):
    names = ALWAYS + MORE
    spark = spark_cluster(workers)
    learned = comparison.learn(spark, names, "float64", workers, seconds=1000, shard_optimizer="yes")
    comparison.check(learned, reference)
