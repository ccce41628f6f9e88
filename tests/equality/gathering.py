"""Train steps that look at the whole batch by themselves; follows the text of coupled.py in the same cell."""

import keras
import tensorflow as tf
from cases import fit_column, layers  # cell: dropped
from coupled import contrast, with_own_step  # cell: dropped


def all_rows(tensor):
    """`ddl.all_gather` in a cell of several workers; in one process a batch is whole."""
    return globals()["ddl"].all_gather(tensor) if "ddl" in globals() else tensor


def own_step_that_gathers(dtype):
    return with_own_step(dtype, lambda y, p: tf.reduce_mean(contrast(all_rows(y), all_rows(p))))


def own_step_of_own_rows_beside_all(dtype):
    """Each worker has the mean over its own rows, of which each looks at all."""

    def loss(y, p):
        distances = tf.reduce_sum((p[:, None] - all_rows(p)[None]) ** 2, -1)
        return tf.reduce_mean(tf.exp(-distances)) + tf.reduce_mean((y - p) ** 2)

    return with_own_step(dtype, loss)


def layer_that_gathers(dtype):
    class Centred(layers.Layer):
        def call(self, x):
            return x - tf.reduce_mean(all_rows(x), 0)

    sgd = keras.optimizers.SGD(0.1)
    return fit_column(dtype, layers.Dense(6), Centred(), layers.Dense(1), optimizer=sgd)
