"""Pipelines and models count as the bytes that they take when they are sent."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from ddl_magics.clusters import preflight
from ddl_magics.runtime.cell import names

pytest.importorskip("pyspark")

rows = np.zeros((1000, 200))
table = tf.constant(rows)


def trained():
    model = keras.Sequential([keras.Input((200,)), keras.layers.Dense(1000), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    model.fit(rows[:4], rows[:4, :1], verbose=0)
    return model


VALUES = {
    "tensor": lambda: tf.constant(rows),
    "texts": lambda: tf.constant(["word" * 50] * 5000),
    "variable": lambda: tf.Variable(rows),
    "pipeline": lambda: tf.data.Dataset.from_tensor_slices((rows, rows[:, :1])).shuffle(9).batch(8).prefetch(1),
    "twice in a pipeline": lambda: tf.data.Dataset.zip((tf.data.Dataset.from_tensor_slices(rows),) * 2),
    "used by a function": lambda: tf.data.Dataset.range(9).map(lambda number: table[number]),
    "windows": lambda: keras.utils.timeseries_dataset_from_array(rows, rows, 3),
    "trained model": trained,
    "model": lambda: keras.Sequential([keras.Input((200,)), keras.layers.Dense(1000)]),
    "in a dict": lambda: {"model": trained(), "data": [tf.data.Dataset.from_tensors(rows)]},
}


@pytest.mark.parametrize("kind", VALUES)
def test_what_is_counted_is_what_is_sent(kind):
    value = VALUES[kind]()
    sent = len(names.pack("value", {"value": value}, {}))
    counted = preflight.estimate(value)
    assert sent > 100_000 and abs(sent - counted) < 0.1 * sent


def test_what_has_no_variables_yet_counts_as_little():
    assert preflight.estimate(keras.Sequential([keras.layers.Dense(1000)])) < 1000
    assert preflight.estimate(keras.optimizers.Adam()) < 1000
