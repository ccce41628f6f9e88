"""How long training waits for its data: with a step a call, with several, eagerly, and in a loop.

The data and the steps sleep, so that the least time of either is known on any machine.
"""

import time

import numpy as np
import pytest

from ddl_magics.runtime.rank.data_wait import READERS, DataWait

#: Seconds that a batch takes to make, or a step to compute; and how many there are.
SLOW, BATCHES = 0.2, 4


@pytest.fixture
def data_wait(monkeypatch):
    from tensorflow.python.ops import gen_dataset_ops

    for name in READERS:  # put back afterwards
        monkeypatch.setattr(gen_dataset_ops, name, getattr(gen_dataset_ops, name))
    waits = DataWait()
    waits.install()
    return waits


def delayed(seconds, values):
    import tensorflow as tf

    def wait(given):
        time.sleep(seconds)
        return given

    return tf.ensure_shape(tf.numpy_function(wait, [values], tf.float32), values.shape)


def dataset(seconds):
    import tensorflow as tf

    rows = np.ones((2 * BATCHES, 3), "float32")
    data = tf.data.Dataset.from_tensor_slices((rows, rows[:, :1])).batch(2, drop_remainder=True)
    return data.map(lambda x, y: (delayed(seconds, x), y))


def build(seconds=0.0, **options):
    import keras

    class Busy(keras.layers.Layer):
        def call(self, values):
            return delayed(seconds, values) if seconds else values

    model = keras.Sequential([keras.Input((3,)), Busy(), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False, **options)
    return model


@pytest.mark.parametrize("options", [{}, {"steps_per_execution": BATCHES}, {"run_eagerly": True}])
def test_a_fit_waits_for_slow_data(data_wait, options):
    build(**options).fit(dataset(SLOW), verbose=0)
    assert data_wait.sums().reads >= SLOW  # TensorFlow may make the others ahead, while a step computes
    assert (data_wait.outside_graphs > 0) == ("run_eagerly" in options)


def test_a_loop_that_reads_itself_waits_for_slow_data(data_wait):
    model = build()
    for x, y in dataset(SLOW):
        model.train_on_batch(x, y)
    assert data_wait.outside_graphs >= SLOW and data_wait.sums().reads == data_wait.outside_graphs


def test_a_slow_step_is_no_waiting_for_data(data_wait):
    """Also with one thread for TensorFlow's operations, which may do a step before it takes the time of a read."""
    data = dataset(0.0).cache()
    list(data)
    model = build(SLOW)
    model.fit(data, verbose=0)
    before = data_wait.sums()
    model.fit(data, verbose=0)
    assert data_wait.sums().reads - before.reads < SLOW


def test_steps_of_one_call_are_timed_with_their_updates(data_wait):
    import tensorflow as tf

    model = build(SLOW)
    x, y = next(iter(dataset(0.0)))

    @tf.function
    def several():
        for _ in tf.range(BATCHES):
            data_wait.timed_step(model.train_step, (x, y), lambda: [each._value for each in model.trainable_variables])

    before = model.get_weights()
    several()
    assert data_wait.sums().steps >= SLOW * BATCHES
    assert any((now != then).any() for now, then in zip(model.get_weights(), before, strict=True))
