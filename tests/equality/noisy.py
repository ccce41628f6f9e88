"""Models that draw random numbers in a training step; follows the text of normalized.py in the same cell.

They need --sync-noise to learn what one process learns.
"""

import keras
import numpy as np
import tensorflow as tf
from cases import BATCH, CLASSES, FEATURES, OwnStep, fit_classifier, layers, table  # cell: dropped
from normalized import momentum  # cell: dropped


def noisy_layers(dtype):
    kinds = [
        layers.Dense(16, activation="tanh"),
        layers.Dropout(0.3),
        layers.GaussianNoise(0.2),
        layers.AlphaDropout(0.1),
        layers.Dropout(0.2, noise_shape=(1, 16)),
        layers.Dense(CLASSES, activation="softmax"),
    ]
    return fit_classifier(momentum(), dtype, model=keras.Sequential([keras.Input((FEATURES,)), *kinds]))


def noisy_sequences(dtype):
    random = np.random.default_rng(12)
    x = random.normal(size=(74, 5, 4)).astype(dtype)
    inputs = keras.Input((5, 4))
    attended = layers.MultiHeadAttention(2, 4, dropout=0.3)(inputs, inputs)
    hidden = layers.LSTM(6, dropout=0.2, recurrent_dropout=0.1)(layers.SpatialDropout1D(0.3)(attended))
    model = keras.Model(inputs, layers.Dense(2)(hidden))
    model.compile(momentum(), "mse")
    return model, model.fit(x, x[:, 0, :2], batch_size=BATCH, epochs=2, verbose=0).history


class Noisy(OwnStep):
    """Draws in its step by all means that a cell has, alike in each run."""

    def train_step(self, data):
        x, y = data
        shape = tf.shape(x)
        x += self.generator.normal(shape, dtype=x.dtype) / 8
        x += tf.random.stateless_uniform(shape, (1, 2), dtype=x.dtype) * self.generator.uniform([], dtype=x.dtype)
        return super().train_step((x, y))


def noisy_step(dtype):
    x, _ = table(dtype, 90)
    model = Noisy(lambda y, p: tf.reduce_mean(tf.square(y - p)), layers.Dense(8, activation="tanh"), layers.Dense(2))
    model.generator = tf.random.Generator.from_seed(4)
    model(x[:1])  # builds it
    model.compile(momentum())
    return model, model.fit(x, x[:, :2], batch_size=BATCH, epochs=2, verbose=0).history
