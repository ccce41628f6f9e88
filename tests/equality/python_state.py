"""Code that keeps numbers and lists in Python; follows the text of cases.py in the same cell."""

import keras
import numpy as np
import tensorflow as tf
from cases import BATCH, layers, table  # cell: dropped


class WarmingUp(keras.losses.Loss):
    """Counts its calls in an attribute, a list, its class, a closure and a global, and has a weight of all of these."""

    calls_of_class = 0

    def __init__(self):
        super().__init__(name="warming_up")
        self.calls, self.seen, self._random = 0, [], np.random.default_rng(4)
        count = 0

        def counted():
            nonlocal count
            count += 1
            counted.calls = count
            return count

        self.counted = counted

    def call(self, y, p):
        global calls_of_losses
        calls_of_losses += 1
        WarmingUp.calls_of_class += 1
        self.calls += 1
        self.seen.append(self.calls)
        counts = (self.calls, len(self.seen), WarmingUp.calls_of_class, self.counted(), calls_of_losses)
        weight = sum(min(1.0, count / 12) for count in counts) / len(counts) + 0.1 * self._random.uniform()
        return weight * tf.reduce_mean((y - p) ** 2, axis=-1)


calls_of_losses = 0


class CollectedMean(keras.metrics.Metric):
    """Has the rows in lists, as metrics of other libraries want them."""

    def __init__(self):
        super().__init__(name="collected")
        self.targets, self.outputs = [], []

    def update_state(self, y, p, sample_weight=None):
        self.targets.append(np.asarray(y))
        self.outputs.append(np.asarray(p))

    def result(self):
        if not self.targets:
            return 0.0
        y, p = np.concatenate(self.targets), np.concatenate(self.outputs)
        return float(np.corrcoef(y[:, 0], p[:, 0])[0, 1])

    def reset_state(self):
        self.targets, self.outputs = [], []


def correlation(y, p):
    return tf.py_function(lambda y, p: np.corrcoef(y.numpy()[:, 0], p.numpy()[:, 0])[0, 1], (y, p), y.dtype)


def correlation_of_numpy(y, p):
    value = tf.numpy_function(lambda y, p: np.corrcoef(y[:, 0], p[:, 0])[0, 1].astype(y.dtype), (y, p), y.dtype)
    value.set_shape(())
    return value


def fit_tracked(dtype, model=None, metrics=(), eager=False, loss=None, batch=BATCH):
    x, _ = table(dtype)
    kind = model or keras.Model
    inputs = keras.Input((x.shape[1],))
    made = kind(inputs, layers.Dense(1)(inputs))
    loss = loss or WarmingUp()
    made.compile(keras.optimizers.SGD(0.05), loss, metrics=list(metrics) or None, run_eagerly=eager)
    history = made.fit(x, x[:, :1], batch_size=batch, epochs=2, validation_split=0.15, verbose=0).history
    return made, {**history, "calls": [float(getattr(loss, "calls", 0))]}


def warming_up(dtype):
    return fit_tracked(dtype)


def warming_up_eagerly(dtype):
    return fit_tracked(dtype, eager=True)


def metrics_in_python(dtype):
    return fit_tracked(dtype, metrics=[CollectedMean(), correlation, correlation_of_numpy], eager=True)


def metrics_of_functions_in_python(dtype):
    return fit_tracked(dtype, metrics=[correlation_of_numpy], loss="mse")


def loss_that_follows_its_values(dtype):
    """A number of Python that the loss sets from its rows: each worker would have one of its own."""

    class Following(keras.losses.Loss):
        level = 1.0

        def call(self, y, p):
            values = tf.reduce_mean((y - p) ** 2, axis=-1)
            self.level = 0.8 * self.level + 0.2 * float(tf.reduce_mean(values))
            return values / self.level

    return fit_tracked(dtype, loss=Following(), eager=True)


class Counting(keras.Model):
    """Its step has a schedule of its own."""

    steps_made = 0

    def train_step(self, data):
        x, y = data
        self.steps_made += 1
        with tf.GradientTape() as tape:
            loss = min(1.0, self.steps_made / 6) * tf.reduce_mean((y - self(x, training=True)) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss, "steps": tf.constant(float(self.steps_made))}


def step_that_counts(dtype):
    return fit_tracked(dtype, model=Counting, loss="mse")


def step_that_counts_eagerly(dtype):
    return fit_tracked(dtype, model=Counting, loss="mse", eager=True)


def step_that_lists(dtype):
    """Each worker has a part of the rows in its list, and is told so."""

    class Listing(keras.Model):
        def __init__(self, *args):
            super().__init__(*args)
            self.outputs_seen = []

        def train_step(self, data):
            self.outputs_seen.append(self(data[0]))
            return super().train_step(data)

    return fit_tracked(dtype, model=Listing, loss="mse", metrics=[CollectedMean()], eager=True)
