"""Losses that are no mean over the rows of a batch; follows the text of unusual.py in the same cell."""

import keras
import numpy as np
import tensorflow as tf
from cases import BATCH, CLASSES, FEATURES, ROWS, OwnStep, fit_column, fit_network, layers, network, table


def regression(dtype, loss, epochs=2, rate=0.01, outputs=3, **compiled):
    x, _ = table(dtype)
    y = np.concatenate([x[:, :2], np.where(x[:, 2:3] > 0.5, -1.0, x[:, 2:3])], 1).astype(dtype)[:, :outputs]
    model = keras.Sequential([keras.Input((FEATURES,)), layers.Dense(6, activation="tanh"), layers.Dense(outputs)])
    model.compile(keras.optimizers.SGD(rate, momentum=0.5), loss, metrics=["mae"], **compiled)
    history = model.fit(x, y, batch_size=BATCH, epochs=epochs, validation_split=0.2, verbose=0)
    return model, history.history


def sum_of_squares(y_true, y_pred):
    return tf.reduce_sum(tf.square(tf.cast(y_true, y_pred.dtype) - y_pred))


def summed_by_itself(dtype):
    return regression(dtype, sum_of_squares, rate=0.001)


def summed_and_divided(dtype):
    return regression(dtype, lambda y, p: tf.reduce_sum(tf.abs(y - p)) / BATCH, jit_compile=True)


def contrast(y_true, y_pred):
    unit = tf.math.l2_normalize(y_pred, 1)
    other = tf.math.l2_normalize(tf.cast(y_true, y_pred.dtype), 1)
    rows = tf.range(tf.shape(unit)[0])
    return tf.nn.sparse_softmax_cross_entropy_with_logits(rows, 5.0 * unit @ tf.transpose(other))


def contrastive(dtype):
    return regression(dtype, contrast, rate=0.1)


def contrastive_in_many_steps(dtype):
    return regression(dtype, contrast, rate=0.1, steps_per_execution=3)


def contrastive_compiled(dtype):
    return regression(dtype, contrast, rate=0.1, jit_compile=True)


def contrastive_eager(dtype):
    return regression(dtype, contrast, epochs=1, rate=0.1, run_eagerly=True)


def mean_of_the_kept(dtype):
    """The third target is -1 where it does not count."""

    def loss(y_true, y_pred):
        kept = tf.cast(y_true[:, 2] != -1.0, y_pred.dtype)
        each = tf.reduce_sum(tf.square(y_true - y_pred), -1)
        return tf.reduce_sum(each * kept) / tf.reduce_sum(kept)

    return regression(dtype, loss)


def kept_by_an_object_of_keras(dtype):
    entropy = keras.losses.SparseCategoricalCrossentropy(reduction="none")

    def loss(y_true, y_pred):
        kept = tf.cast(y_true > 0, y_pred.dtype)
        return tf.reduce_sum(entropy(y_true, y_pred) * kept[:, 0]) / tf.reduce_sum(kept)

    x, y = table(dtype)
    model = network()
    model.compile(keras.optimizers.SGD(0.1), loss)
    return model, model.fit(x, y[:, None], batch_size=BATCH, epochs=2, verbose=0).history


class Ranking(keras.losses.Loss):
    """Every row beside every other."""

    def call(self, y_true, y_pred):
        difference = y_pred - tf.transpose(y_pred[:, :1])
        return tf.nn.relu(1.0 - difference * tf.sign(y_true - tf.transpose(y_true[:, :1])))


def ranking(dtype):
    return regression(dtype, Ranking(), outputs=1)


def losses_of_all_kinds(dtype):
    """A sum, a mean and a loss of the whole batch; weights of losses and rows; regularization."""
    x, y = table(dtype)
    inputs = keras.Input((FEATURES,))
    hidden = layers.Dense(10, activation="tanh", kernel_regularizer="l2")(inputs)
    outputs = {
        "mean": layers.Dense(CLASSES, activation="softmax", name="mean")(hidden),
        "total": layers.Dense(1, name="total")(hidden),
        "whole": layers.Dense(2, name="whole")(hidden),
    }
    model = keras.Model(inputs, outputs)
    losses = {"mean": "sparse_categorical_crossentropy", "total": sum_of_squares, "whole": contrast}
    model.compile(keras.optimizers.SGD(0.002), losses, loss_weights={"mean": 1.0, "total": 0.1, "whole": 0.5})
    targets = {"mean": y, "total": x[:, :1], "whole": x[:, 1:3]}
    weights = np.random.default_rng(12).uniform(0.2, 2.0, ROWS).astype(dtype)
    weights = {"mean": weights, "total": weights[::-1].copy(), "whole": weights}
    fit = {"batch_size": BATCH, "epochs": 2, "sample_weight": weights, "verbose": 0}
    return model, model.fit(x, targets, **fit).history


def weighted_mean_of_weights(dtype):
    """Keras' own reduction that divides by the weights of a batch."""
    loss = keras.losses.SparseCategoricalCrossentropy(reduction="mean_with_sample_weight")
    weights = np.linspace(0.1, 2.0, ROWS).astype(dtype)
    return fit_network(dtype, keras.optimizers.SGD(0.1), loss, fit={"sample_weight": weights})


def overlap_of_sets(dtype):
    x, y = table(dtype)
    model = network()
    model.compile(keras.optimizers.SGD(0.5), keras.losses.Dice(), metrics=["accuracy"])
    return model, model.fit(x, np.eye(CLASSES)[y].astype(dtype), batch_size=BATCH, epochs=2, verbose=0).history


def tagger_of_the_whole_batch(dtype):
    """The mask of the outputs is gathered too."""
    random = np.random.default_rng(13)
    words = random.integers(1, 9, (ROWS, 6))
    words[np.arange(6) >= random.integers(0, 7, (ROWS, 1))] = 0

    def loss(y_true, y_pred):
        each = tf.square(y_pred[..., 0] - y_true)
        return each / (1.0 + tf.reduce_mean(each))

    model = keras.Sequential([layers.Embedding(9, 4, mask_zero=True), layers.Dense(2)])
    model.compile(keras.optimizers.SGD(0.5), loss)
    target = (words / 9).astype(dtype)
    return model, model.fit(words, target, batch_size=BATCH, epochs=2, validation_split=0.2, verbose=0).history


def summed_and_regularized(dtype):
    loss = keras.losses.MeanSquaredError(reduction="sum")
    sgd = keras.optimizers.SGD(0.001)
    return fit_column(dtype, layers.Dense(1, kernel_regularizer="l2"), optimizer=sgd, loss=loss)


# -- losses that layers add


class Added(layers.Layer):
    """Adds a loss of what passes through it."""

    def __init__(self, loss, **kwargs):
        super().__init__(**kwargs)
        self.loss = loss

    def call(self, inputs):
        self.add_loss(self.loss(inputs))
        return inputs


def with_added(dtype, *added, loss="mse", **compiled):
    x, _ = table(dtype)
    inputs = keras.Input((FEATURES,))
    hidden = layers.Dense(6, activation="tanh")(inputs)
    for one in added:
        hidden = Added(one)(hidden)
    hidden = layers.Dropout(0.0)(hidden)
    model = keras.Model(inputs, layers.Dense(2, kernel_regularizer="l2")(hidden))
    model.compile(keras.optimizers.SGD(0.02), loss, **compiled)
    return model, model.fit(x, x[:, :2], batch_size=BATCH, epochs=2, validation_split=0.2, verbose=0).history


def added_sum(dtype):
    return with_added(dtype, lambda x: 0.01 * tf.reduce_sum(x**2))


def added_sum_and_mean(dtype):
    return with_added(dtype, lambda x: 0.01 * tf.reduce_sum(x**2), lambda x: 0.1 * tf.reduce_mean(tf.abs(x)))


def added_sum_beside_a_sum(dtype):
    return with_added(
        dtype, lambda x: 0.001 * tf.reduce_sum(x**2), loss=lambda y, p: 0.01 * tf.reduce_sum((y - p) ** 2)
    )


def added_sum_beside_a_contrast(dtype):
    return with_added(dtype, lambda x: 0.01 * tf.reduce_sum(x**2), loss=contrast, jit_compile=True)


def active(dtype):
    active = layers.Dense(6, activity_regularizer="l2")
    return fit_column(dtype, active, layers.Dense(1), optimizer=keras.optimizers.SGD(0.02))


# -- a compute_loss and a train_step of one's own


def with_own_loss(dtype, each, *added):
    class Own(keras.Model):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            return each(x, y, y_pred) + sum(self.losses)

    x, _ = table(dtype)
    inputs = keras.Input((FEATURES,))
    hidden = layers.Dense(6, activation="tanh", kernel_regularizer="l2")(inputs)
    for one in added:
        hidden = Added(one)(hidden)
    model = Own(inputs, layers.Dense(2)(hidden))
    model.compile(keras.optimizers.SGD(0.02))
    return model, model.fit(x, x[:, :2], batch_size=BATCH, epochs=2, verbose=0).history


def own_mean(dtype):
    return with_own_loss(dtype, lambda x, y, p: tf.reduce_mean((y - p) ** 2))


def own_sum(dtype):
    return with_own_loss(dtype, lambda x, y, p: 0.01 * tf.reduce_sum((y - p) ** 2))


def own_sum_beside_an_added_mean(dtype):
    return with_own_loss(
        dtype, lambda x, y, p: 0.01 * tf.reduce_sum((y - p) ** 2), lambda x: 0.1 * tf.reduce_mean(x**2)
    )


def own_contrast(dtype):
    return with_own_loss(dtype, lambda x, y, p: tf.reduce_mean(contrast(y + x[:, 2:4], p)))


def with_own_step(dtype, loss_of, added=lambda x: tf.constant(0.0, x.dtype)):
    x, _ = table(dtype)
    model = OwnStep(loss_of, Added(added), layers.Dense(6, activation="tanh"), layers.Dense(2))
    model.compile(keras.optimizers.SGD(0.02))
    return model, model.fit(x, x[:, :2], batch_size=BATCH, epochs=3, verbose=0).history


def own_step_of_a_mean(dtype):
    """Its average counts batches, the last of which is smaller."""
    return with_own_step(dtype, lambda y, p: tf.reduce_mean((y - p) ** 2))


def own_step_of_a_sum(dtype):
    return with_own_step(dtype, lambda y, p: 0.01 * tf.reduce_sum((y - p) ** 2))


def own_step_of_sums(dtype):
    return with_own_step(dtype, lambda y, p: 0.01 * tf.reduce_sum((y - p) ** 2), lambda x: 0.001 * tf.reduce_sum(x**2))


# -- metrics of any state


class Largest(keras.metrics.Metric):
    """A maximum whose state begins at 0."""

    def __init__(self, name="largest"):
        super().__init__(name=name)
        self.value = self.add_weight(name="value", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.value.assign(tf.maximum(self.value, tf.cast(tf.reduce_max(y_pred), self.value.dtype)))

    def result(self):
        return self.value


class Smallest(Largest):
    """One whose state begins elsewhere."""

    def reset_state(self):
        self.value.assign(1e9)

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.value.assign(tf.minimum(self.value, tf.cast(tf.reduce_min(y_pred), self.value.dtype)))


class Histogram(keras.metrics.Metric):
    """Adds up, as a trial finds out."""

    def __init__(self):
        super().__init__(name="histogram")
        self.counts = self.add_weight(name="counts", shape=(4,), initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        places = tf.clip_by_value(tf.cast(tf.reshape(y_pred, [-1]) * 2 + 2, tf.int32), 0, 3)
        self.counts.assign_add(tf.cast(tf.math.bincount(places, minlength=4, maxlength=4), self.counts.dtype))

    def reset_state(self):
        self.counts.assign(np.zeros(4))

    def result(self):
        return self.counts[3] / tf.reduce_sum(self.counts)


def largest_error(y_true, y_pred):
    """A function of a batch."""
    return tf.reduce_max(tf.abs(y_true - y_pred))


def error_of_rows(y_true, y_pred):
    return tf.reduce_mean(tf.abs(y_true - y_pred), -1)


def metrics_of_all_kinds(dtype):
    x, _ = table(dtype)
    y = x[:, :2]
    model = keras.Sequential([keras.Input((FEATURES,)), layers.Dense(6, activation="tanh"), layers.Dense(2)])
    metrics = [Largest(), Smallest("smallest"), Histogram(), largest_error, error_of_rows, "mae"]
    model.compile(keras.optimizers.SGD(0.05), "mse", metrics=metrics)
    return model, model.fit(x, y, batch_size=BATCH, epochs=3, validation_split=0.2, verbose=0).history
