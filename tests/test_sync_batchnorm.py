"""BatchNormalization over all ranks' rows: n workers learn what one process learns, or it is said why they do not."""

import comparison
import hosts
import launch
import numpy as np
import pytest
import tensorflow as tf
from rings import ThreadRing
from test_keras2 import PYTHON as KERAS2

from ddl_magics.runtime import step, sync_batchnorm, within_step
from ddl_magics.runtime.share import Share

#: Models that ask for it themselves, and those that --sync-batchnorm is for.
SYNCHRONIZED = ("synchronized", "synchronized_by_its_data", "synchronized_compiled", "synchronized_images")
NORMALIZED = (
    "normalized",
    "normalized_images",
    "normalized_branches",
    "normalized_masked",
    "normalized_sum",
    "normalized_eager",
    "normalized_adversaries",
)

pytestmark = pytest.mark.timeout(600)


def test_float64(spark_cluster, reference):
    comparison.check(spark_cluster(2), reference, NORMALIZED, "float64", 2, sync_batchnorm=True)


def test_layers_that_say_so_need_no_option(spark_cluster, reference):
    comparison.check(spark_cluster(2), reference, SYNCHRONIZED, "float64", 2)


def test_without_the_option_slices_are_another_model_and_the_run_says_so(spark_cluster, reference):
    """Negative control, and what a reader is told."""
    names = ("normalized", "normalized_images")
    ended = comparison.distributed(spark_cluster(2), names, "float64", 2)
    found = comparison.differences(ended.result, reference(NORMALIZED, "float64"), names, "float64")
    assert {name for name in names for difference in found if f"{name}: weights" in difference} == set(names)
    assert said(ended) == [("info", sync_batchnorm._SLICES)]


TRAINS = """
import keras
import numpy as np
model = keras.Sequential([keras.Input((3,)), keras.layers.BatchNormalization(synchronized=True), keras.layers.Dense(1)])
model.compile("sgd", "mse", jit_compile=COMPILED)
x = np.ones((32, 3), "float32")
model.fit(x, x[:, :1], batch_size=16, verbose=0)
ddl.log(jit=int(model.jit_compile))
"""


def test_what_cannot_be_is_said_in_a_line(spark_cluster):
    spark = spark_cluster(2)
    compiled = launch.run_cell(spark, TRAINS.replace("COMPILED", "True"))
    assert said(compiled) == [("info", step.NOT_COMPILED)] and compiled.state == "FINISHED"
    apart = launch.run_cell(spark, TRAINS.replace("COMPILED", "False"), strategy="average")
    ((level, message),) = said(apart)
    assert (
        level == "warning" and "changes nothing here: workers of --strategy average take steps of their own" in message
    )


def said(ended):
    """The notices about BatchNormalization: their level and text."""
    return [(e["level"], e["message"]) for e in ended.of_kind("notice") if "BatchNormalization" in e["message"]]


class Hooks:
    """What `WithinStep` and `SyncBatchNorm` want of a rank and of its hooks."""

    put_aside, loss_sums, reduces, fit, epoch, step = None, False, True, 0, 0, 0
    config, stop_requested, stop_asked = {}, False, False

    def __init__(self, ring, share=None):
        self.context, self.ring, self.share, self.place = self, ring, share, 0

    def guarded(self, function):
        return function

    def note_collective(self):
        pass


def layer(ring, rows):
    hooks = Hooks(ring, of_rows(rows))
    return sync_batchnorm.SyncBatchNorm(hooks, within_step.WithinStep(hooks), object)


def of_rows(rows):
    return Share(None, tf.constant(rows, tf.int64), None)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_moments_and_gradients_are_those_of_all_rows(dtype):
    """Also far from zero, where float32 has no digits for squares. One rank has no row, and computes on another's."""
    x = (1000 + np.random.default_rng(1).normal(size=(7, 5, 3))).astype(dtype)
    slices = [x[:4], x[4:], x[:1]]
    rows = [4, 3, 0]
    goal = np.array([1.0, -2.0, 0.5], dtype)

    def loss(x, moments):
        mean, variance = moments(x)
        return (mean, variance), tf.reduce_mean(((x - mean) / tf.sqrt(variance)) ** 3 * goal)

    def learn(x, moments):
        x = tf.constant(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            told, value = loss(x, moments)
        return [each.numpy() for each in told], tape.gradient(value, x).numpy()

    (mean, variance), gradient = learn(x, lambda x: tf.nn.moments(x, [0, 1]))
    with ThreadRing(3) as ring:
        layers = [layer(rank, rows[rank.rank]) for rank in ring.ranks]
        learnt = ring.each(lambda rank: learn(slices[rank.rank], lambda x: layers[rank.rank].moments(x, [0, 1])))
    bound = 1e-3 if dtype == "float32" else 1e-9
    for (ours_mean, ours_variance), _ in learnt:
        np.testing.assert_allclose(ours_mean, mean, rtol=bound)
        np.testing.assert_allclose(ours_variance, variance, rtol=bound)
    ours = [learnt[rank][1] * (rows[rank] / 7) for rank in range(3)]
    np.testing.assert_allclose(np.concatenate(ours[:2]), gradient, atol=bound * np.abs(gradient).max())
    assert not ours[2].any()


def test_ranks_that_call_layers_in_another_order_are_told():
    with ThreadRing(2) as ring:

        def call(rank):
            layers = layer(rank, 2)
            for _ in range(rank.rank):  # as if it had called others before
                layers._within.number()
            return layers.moments(tf.ones((2, 3)), [0])

        problems = ring.each(call)
    assert all("compute step 1 of epoch 1 in different order" in str(p) for p in problems)


#: Code before a cell: a bucket for each gradient, so that many would be under way.
SMALL_BUCKETS = """
import sys
buckets = next(m for n, m in sys.modules.items() if "ddl_runtime" in n and n.endswith(".buckets"))
buckets.LEAST_BUCKET_BYTES = 0
print("crosses", ddl._context.ring.crosses_network)
"""


@pytest.mark.skipif(not hosts.can_be_pretended(), reason="hosts are pretended with root's rights, on Linux")
def test_between_hosts_its_exchanges_do_not_meet_those_of_gradients(spark_cluster, reference, tmp_path):
    names = ("normalized_branches", "normalized_adversaries")
    spark = spark_cluster(2, hosts.python(tmp_path, 1))
    ended = comparison.distributed(spark, names, "float64", 2, prologue=SMALL_BUCKETS, sync_batchnorm=True)
    assert ended.logs().count("crosses True") == 2
    assert not comparison.differences(ended.result, reference(NORMALIZED, "float64"), names, "float64")


def test_keras2(spark_cluster, tmp_path):
    assert KERAS2.exists(), "make keras2-env builds what this test needs"
    reference = comparison.Reference(tmp_path, python=KERAS2)
    # But for normalized_images: docs/how-it-works.md says what its moving variance is without; and normalized_masked,
    # of whose batch of nothing but masked values Keras 2 makes NaN.
    names = ("synchronized_images", "normalized", "normalized_branches", "normalized_sum")
    comparison.check(spark_cluster(2, KERAS2), reference, names, "float64", 2, sync_batchnorm=True)


def test_four_workers_of_whom_two_have_no_row_of_the_last_batch(spark_cluster, reference):
    names = ("normalized", "normalized_masked")
    comparison.check(spark_cluster(4), reference, names, "float64", 4, sync_batchnorm=True)
