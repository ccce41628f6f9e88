"""The trial of a step, in one process: what it finds out about steps and models that need no second worker for that."""

import keras
import pytest
import tensorflow as tf
from keras.src.optimizers import base_optimizer
from tensorflow import maximum

from ddl_magics.runtime.gradients.traced_step import TracedStep
from ddl_magics.runtime.training.step_trial import Shares, StepTrial
from ddl_magics.runtime.training.step_weighing import StepWeighing
from ddl_magics.runtime.trial import COUPLED, MEAN, SUM
from ddl_magics.runtime.trial.cell_code import has_code_of_the_cell

ROWS, BATCH = tf.zeros((1, 6)), (tf.zeros((1, 6)), tf.zeros((1, 1)))


class InTraining(keras.layers.Layer):
    """In training alone, and in inference its inputs: a function of the cell."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def call(self, inputs, training=False):
        return self.function(inputs) if training else inputs


def model(*parts):
    given = keras.Input((6,))
    outputs = keras.layers.Dense(4, activation="tanh")(given)
    for part in (*parts, keras.layers.BatchNormalization(), keras.layers.Dropout(0.5), keras.layers.Dense(1)):
        outputs = part(outputs)
    made = keras.Model(given, outputs)
    made.compile("sgd")
    return made


@pytest.fixture
def trial(monkeypatch):
    weighing = StepWeighing(TracedStep(), None, None)
    monkeypatch.setattr(base_optimizer.BaseOptimizer, "apply", lambda _, grads, *rest: weighing.note_update(grads))
    return StepTrial(weighing, keras.layers.Layer)


def step(of, loss, change=lambda gradients: gradients):
    def train_step(data):
        x, y = data
        with tf.GradientTape() as tape:
            value = loss(y, of(x, training=True))
        variables = of.trainable_variables
        of.optimizer.apply_gradients(zip(change(tape.gradient(value, variables)), variables, strict=True))

    return train_step


def squares(y, p):
    return tf.reduce_sum((y - p) ** 2, -1)


def mean(y, p):
    return tf.reduce_mean(squares(y, p))


def over_rows(least, by_python=False):
    def loss(y, p):
        rows = tf.shape(y)[0]
        return tf.reduce_sum(squares(y, p)) / tf.cast(
            max(rows, least) if by_python else tf.maximum(rows, least), p.dtype
        )

    return loss


def over_rows_by_a_name(y, p):
    return tf.reduce_sum(squares(y, p)) / tf.cast(maximum(tf.shape(y)[0], 16), p.dtype)


def over_kept(y, p):
    kept = tf.cast(y[:, 0] > 0, p.dtype)
    return tf.reduce_sum(squares(y, p) * kept) / keras.ops.maximum(tf.reduce_sum(kept), 10.0)


LOSSES = {
    "by the rows, at least one": (over_rows(1), MEAN),
    "by the rows, at least 16": (over_rows(16), COUPLED),
    "by the rows, at least 16, by Python": (over_rows(16, by_python=True), COUPLED),
    "by the rows, at least 16, in a tf.function": (lambda y, p: tf.function(over_rows(16))(y, p), COUPLED),
    "by the rows, at least 16, by a name of its own": (over_rows_by_a_name, COUPLED),
    "by the rows that are kept, at least 10": (over_kept, COUPLED),
    "bounded errors": (lambda y, p: tf.reduce_mean(tf.clip_by_value(squares(y, p), 1e-7, 1e4)), MEAN),
    "errors below 500": (lambda y, p: tf.reduce_sum(tf.where(squares(y, p) < 500, squares(y, p), 0)), SUM),
    "a bounded mean": (lambda y, p: tf.minimum(mean(y, p), 1e5), COUPLED),
    "a bound that is there for no number": (lambda y, p: tf.minimum(mean(y, p), 1e30), MEAN),
}


@pytest.mark.parametrize("name", LOSSES)
def test_bounds_that_few_rows_do_not_reach(trial, name):
    loss, kind = LOSSES[name]
    made = model()
    assert set(trial(made, step(made, loss), BATCH, Shares(0, 2)).of("update").values()) == {kind}


def by_hand(gradients):
    norm = tf.linalg.global_norm(gradients)
    return [one * tf.minimum(1.0, 1e4 / norm) for one in gradients]


@pytest.mark.parametrize(
    "change",
    [
        lambda gradients: tf.clip_by_global_norm(gradients, 1e4)[0],
        lambda gradients: [tf.clip_by_norm(one, 1e4) for one in gradients],
        lambda gradients: [keras.ops.clip(one, -1e4, 1e4) for one in gradients],
        lambda gradients: [tf.where(tf.norm(one) > 1e4, one * 1e4 / tf.norm(one), one) for one in gradients],
        by_hand,
    ],
)
def test_gradients_that_are_clipped_where_they_are_very_large(trial, change):
    made = model()
    assert set(trial(made, step(made, mean, change), BATCH, Shares(0, 2)).of("update").values()) == {COUPLED}


@pytest.mark.parametrize(("rows", "kind"), [(16, COUPLED), (0, SUM), (8, SUM)])
def test_rows_that_a_step_knows_as_a_number_of_python(trial, rows, kind):
    """It is tried with those that its batches have: 2 ranks with 8 rows each never have more than 16."""
    made = model()

    def loss(y, p):
        return tf.reduce_sum(squares(y, p)) / max(p.shape[0], 20)

    assert set(trial(made, step(made, loss), BATCH, Shares(rows, 2)).of("update").values()) == {kind}


@pytest.mark.parametrize(("eagerly", "kind"), [(True, COUPLED), (False, MEAN)])
def test_the_weight_of_a_term_that_a_callback_will_raise(trial, eagerly, kind):
    """A step that is run eagerly reads it each time; another one is tried again when it is traced again."""
    made = model()
    made.run_eagerly, made.share = eagerly, 0.0

    def loss(y, p):
        return mean(y, p) + made.share * tf.math.reduce_std(p)

    assert set(trial(made, step(made, loss), BATCH, Shares(0, 2)).of("update").values()) == {kind}
    assert made.share == 0.0


def centred(inputs):
    return inputs - tf.reduce_mean(inputs, 0)


def noisy(inputs):
    return inputs + tf.random.normal(tf.shape(inputs))


def noisy_by_keras(inputs):
    return keras.random.dropout(inputs, 0.5, seed=3)


@tf.custom_gradient
def with_gradients_of_one_norm(inputs):
    return tf.identity(inputs), lambda gradients: gradients / tf.norm(gradients)


@pytest.mark.parametrize(
    ("layer", "coupled"),
    [
        (keras.layers.Softmax(axis=0), True),
        (keras.layers.Softmax(), False),
        (keras.layers.Concatenate(axis=-1), False),
        (keras.layers.Dense(4, activation=centred), True),
        (keras.layers.Dense(4, activation=tf.nn.silu), False),
        (InTraining(with_gradients_of_one_norm), True),
    ],
)
def test_layers_that_look_at_the_whole_batch(trial, layer, coupled):
    """Also with arguments and functions of the cell in layers of Keras, and in the gradient alone."""
    given = keras.Input((6,))
    hidden = keras.layers.Dense(4, activation="tanh")(given)
    both = [hidden, hidden] if isinstance(layer, keras.layers.Concatenate) else hidden
    made = keras.Model(given, keras.layers.Dense(1)(layer(both)))
    found = has_code_of_the_cell(made) and trial.couples_rows(made, (ROWS,), Shares(0, 2))
    assert bool(found) == coupled


@pytest.mark.parametrize(("function", "kind"), [(centred, COUPLED), (noisy, MEAN), (noisy_by_keras, MEAN)])
def test_what_the_layers_of_a_cell_do_in_training_alone(trial, function, kind):
    """Noise that the trial cannot repeat for the same rows is no reason to refuse a layer."""
    made = model(InTraining(function))
    assert bool(trial.couples_rows(made, (ROWS,), Shares(0, 2))) == (kind == COUPLED)
    assert set(trial(made, step(made, mean), BATCH, Shares(0, 2)).of("update").values()) == {kind}


def test_what_a_step_keeps_in_python_is_as_before(trial):
    """Numbers, lists, and an attribute that the step makes."""
    made = model()
    made.seen, made.queue = 0, [1]

    def keeping(data):
        made.seen, made.last = made.seen + 1, data[0]
        made.queue.append(data[0])
        return step(made, mean)(data)

    assert set(trial(made, keeping, BATCH, Shares(0, 2)).of("update").values()) == {MEAN}
    assert (made.seen, list(made.queue), hasattr(made, "last")) == (0, [1], False)
