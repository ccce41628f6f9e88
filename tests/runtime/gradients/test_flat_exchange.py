"""Gradients as they are exchanged where they lie on a GPU, here on a CPU. Equality with one process: tests/equality."""

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from support import comparison, launch

from ddl_magics.runtime.gradients import exchange, flat_exchange
from ddl_magics.runtime.gradients.batch import LocalShare, Share
from ddl_magics.runtime.gradients.exchange import _layouts as layouts_of_arrays
from ddl_magics.runtime.gradients.flat_exchange import FlatExchange, FlatGradients

SHAPES = ((3, 5), (), (17,), (2, 2))


def gradients():
    random = np.random.default_rng(0)
    made = [tf.constant(random.normal(size=shape), tf.float32) for shape in SHAPES]
    return [made[0], None, tf.constant([1.5, 2.5], tf.float64), *made[1:]]


def share(rows, total, kind=Share):
    return kind(None, tf.constant(rows, tf.int64), tf.constant(total, tf.int64))


def packed(rows=3, total=12, given=None):
    exchange = FlatExchange(None, None, check_finite=True)
    return exchange.packed(gradients() if given is None else given, share(rows, total))


def test_buffers_are_those_of_ranks_without_a_gpu():
    arrays = [gradient.numpy() for gradient in gradients() if gradient is not None]
    finite, *flats = packed()
    assert finite.numpy()
    for layout, flat in zip(layouts_of_arrays(arrays), flats, strict=True):
        expected = np.empty(layout.size, layout.dtype)
        layout.single_section.fill(expected, arrays, 3 / 12)
        np.testing.assert_array_equal(flat.numpy(), expected)


def test_they_are_cut_as_they_were():
    cut = list(FlatGradients(gradients(), packed(12, 12)[1:]))
    assert cut[1] is None
    for ours, expected in zip(cut, gradients(), strict=True):
        assert ours is expected is None or (ours.numpy() == expected.numpy()).all()


def test_without_rows_they_are_zero_and_finite():
    finite, *flats = packed(0, 12, [tf.constant([np.nan, 1.0])])
    assert finite.numpy() and not np.any(flats[0].numpy())
    assert not packed(1, 12, [tf.constant([np.inf, 1.0])])[0].numpy()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_large_numbers_are_finite(dtype):
    largest = np.full(5, np.finfo(dtype).max)
    assert exchange.is_finite(largest.astype(dtype))
    for number in (np.nan, np.inf):
        assert not exchange.is_finite(np.array([1, number, 2], dtype))


def test_it_is_for_dense_gradients_on_a_gpu_of_batches_that_are_shared():
    on_gpu, on_cpu = (SimpleNamespace(device=f"/job:localhost/replica:0/task:0/device:{at}:0") for at in ("GPU", "CPU"))
    dense, sparse = tf.ones(3), tf.IndexedSlices(tf.ones((1, 3)), tf.constant([0]), tf.constant([4, 3]))
    cut = share(1, 2)
    assert flat_exchange.is_for([dense, None], [on_gpu, on_gpu], cut)
    assert not flat_exchange.is_for([dense, None], [on_cpu, on_cpu], cut)
    assert not flat_exchange.is_for([dense, sparse], [on_gpu, on_gpu], cut)
    assert not flat_exchange.is_for([None], [on_gpu], cut)
    assert not flat_exchange.is_for([dense], [on_gpu], None)
    assert not flat_exchange.is_for([dense], [on_gpu], share(1, -1, LocalShare))


CELL = (
    comparison.AS_ON_GPU
    + comparison.IN_PARTS
    + """
import keras
import numpy as np

def weights(on_gpu, policy="float32", part_bytes=1 << 20):
    _flat.ALWAYS, _exchange.SECTION_BYTES = on_gpu, part_bytes
    keras.mixed_precision.set_global_policy(policy)
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01, clipnorm=0.1), "mse")
    x = np.random.default_rng(0).normal(size=(36, 4)).astype("float32")
    model.fit(x, x.sum(1), batch_size=12, epochs=2, verbose=0)
    return [type(model.optimizer).__name__, *model.get_weights()]

half = "mixed_float16"
{
    "plain": weights(False), "flat": weights(True), "of one rank": weights(ddl.rank == 0),
    "of one rank, in parts": weights(ddl.rank == 0, part_bytes=64), "in parts": weights(True, part_bytes=64),
    "plain half": weights(False, half), "flat half": weights(True, half),
}
"""
)


def test_one_rank_may_have_no_gpu_and_a_loss_may_be_scaled(rank_pool):
    learned = launch.finished(rank_pool(2), CELL, workers=2).result
    for ours, plain, bound in (
        ("flat", "plain", 1e-6),
        ("of one rank", "plain", 1e-6),
        ("of one rank, in parts", "plain", 1e-6),
        ("in parts", "plain", 1e-6),
        ("flat half", "plain half", 2e-3),
    ):
        (kind, *found), (same_kind, *expected) = learned[ours], learned[plain]
        assert kind == same_kind == ("LossScaleOptimizer" if "half" in ours else "Adam")
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=bound)


NOT_A_NUMBER = (
    comparison.AS_ON_GPU
    + """
import keras
import numpy as np

x = np.ones((8, 4), "float32")
x[6] = np.nan
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, np.ones(8), batch_size=8, verbose=0, shuffle=False)
"""
)


def test_the_rank_whose_gradient_is_no_number_is_named(rank_pool):
    ended = launch.run_cell(rank_pool(2), NOT_A_NUMBER, workers=2)
    assert ended.state == "FAILED" and "the gradient of rank 1 is NaN or infinite" in ended.failure["message"]
