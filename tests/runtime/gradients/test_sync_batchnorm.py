"""BatchNormalization and noise of the whole batch: n workers learn what one process learns, or it is said why not."""

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from support import comparison, launch
from support.channels import SentFrames
from support.rings import ThreadRing, rank_on

from ddl_magics.runtime.gradients import sync_batchnorm, within_step
from ddl_magics.runtime.gradients.traced_step import TracedStep
from ddl_magics.runtime.training.share import Share

#: Models that --sync-batchnorm is for; those that ask for it themselves are in tests/equality/test_equality.py, some
#: over two hosts in test_hosts.py, and these with Keras 2 in ../training/test_keras2.py.
NORMALIZED = ("normalized", "normalized_masked")
#: The rest with `make test-slow`.
MORE_NORMALIZED = ("noisy_sequences", "noisy_step", "normalized_branches", "normalized_sum", "normalized_adversaries")
MORE_NORMALIZED += ("normalized_images", "normalized_eager")
pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize(
    "names", [(*NORMALIZED, "noisy_layers"), pytest.param(MORE_NORMALIZED, marks=pytest.mark.slow)]
)
def test_float64(rank_pool, reference, names):
    options = {"sync_batchnorm": True, "sync_noise": True}
    comparison.check(comparison.learn(rank_pool(2), names, "float64", 2, **options), reference)


APART = """
import keras
import numpy as np
model = keras.Sequential([keras.Input((3,)), keras.layers.BatchNormalization(synchronized=True), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x = np.ones((32, 3), "float32")
model.fit(x, x[:, :1], batch_size=16, verbose=0)
"""


def test_workers_that_take_steps_of_their_own_synchronize_nothing_and_the_run_says_so(rank_pool):
    ((level, message),) = said(launch.run_cell(rank_pool(2), APART, strategy="average"))
    assert level == "warning"
    assert "changes nothing here: workers of --strategy average take steps of their own" in message


def said(ended):
    """The notices about BatchNormalization: their level and text."""
    return [(e["level"], e["message"]) for e in ended.of_kind("notice") if "BatchNormalization" in e["message"]]


def layer(ring, rows):
    """What synchronizes a layer of the rank of `ring`, while a step with so many rows is traced."""
    rank, traced = rank_on(ring), TracedStep()
    traced.enter(of_rows(rows))
    within = within_step.WithinStep(rank.peers, rank.errors, traced)
    return sync_batchnorm.SyncBatchNorm(rank.config, rank.reporter, traced, within, object)


def test_only_layers_that_learn_statistics_of_a_slice_are_worth_a_line():
    class Normalizing:
        def __init__(self, trainable, synchronized):
            self.trainable, self.synchronized = trainable, synchronized

    dense, frozen = SimpleNamespace(trainable=True), Normalizing(False, False)
    with ThreadRing(2) as ring:
        for layers, lines in (
            ([dense, frozen, Normalizing(True, True)], 0),
            ([dense, Normalizing(True, True), Normalizing(True, False)], 1),
        ):
            channel = SentFrames()
            rank = rank_on(ring.ranks[0], channel)
            within = within_step.WithinStep(rank.peers, rank.errors, TracedStep())
            batchnorm = sync_batchnorm.SyncBatchNorm(rank.config, rank.reporter, TracedStep(), within, Normalizing)
            batchnorm.begin_fit(SimpleNamespace(_flatten_layers=lambda layers=layers: layers))
            assert len(channel.sent) == lines


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


@pytest.mark.parametrize("masked", [False, True])
def test_moments_are_of_the_values_that_a_mask_keeps_on_any_rank(masked):
    x = np.random.default_rng(2).normal(5.0, 2.0, (6, 4, 3))
    mask = np.arange(24).reshape(6, 4) % 3 > 0 if masked else None
    if masked:
        mask[4:] = False  # the second rank has none
    sums, shares = [], [slice(0, 4), slice(4, 6)]
    for total in (sums.append, lambda _: tf.add_n(sums)):
        for share in shares:
            with contextlib.suppress(ValueError, TypeError):  # there is no sum yet
                kept = None if mask is None else tf.constant(mask[share])
                mean, variance = sync_batchnorm.moments(tf.constant(x[share]), [0, 1], total, kept)
    values = x.reshape(-1, 3) if mask is None else x[mask]
    np.testing.assert_allclose(mean, values.mean(0))
    np.testing.assert_allclose(variance, values.var(0))
    slack = sync_batchnorm.moments(tf.constant(x[:4]), [0, 1], lambda one: one, slack=16.0)
    np.testing.assert_allclose(slack[0], x[:4].reshape(-1, 3).mean(0) / 2)


def test_ranks_that_call_layers_in_another_order_are_told():
    with ThreadRing(2) as ring:

        def call(rank):
            layers = layer(rank, 2)
            for _ in range(rank.rank):  # as if it had called others before
                layers._within.number()
            return layers.moments(tf.ones((2, 3)), [0])

        problems = ring.each(call)
    assert all("compute step 1 of epoch 1 in different order" in str(p) for p in problems)
