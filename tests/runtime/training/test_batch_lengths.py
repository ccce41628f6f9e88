"""Lengths that a model takes from its rows: on which of them workers agree, and which the trial of the model finds."""

import keras
import pytest
import tensorflow as tf
from keras.src.optimizers import base_optimizer

from ddl_magics.runtime.gradients.traced_step import TracedStep
from ddl_magics.runtime.training.batch_lengths import BatchLengths
from ddl_magics.runtime.training.step_trial import BY_LENGTHS, BY_ROWS, Shares, StepTrial
from ddl_magics.runtime.training.step_weighing import StepWeighing
from ddl_magics.runtime.trial import COUPLED, MEAN


class OfRows(keras.Model):
    """A model of the cell: what a function makes of its inputs, embedded, averaged."""

    def __init__(self, function, embedded=True):
        super().__init__()
        self.function = function
        self.embed = keras.layers.Embedding(200, 4) if embedded else keras.layers.Identity()
        self.mean, self.last = keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(1)

    def call(self, inputs):
        return self.last(self.mean(self.embed(self.function(inputs))))


def trimmed(ids):
    return ids[:, : tf.reduce_max(tf.reduce_sum(tf.cast(ids != 0, tf.int32), 1))]


def without_rows_of(padding):
    def trimmed(series):
        is_padding = tf.reduce_all(tf.equal(series, padding), -1)
        return series[:, : tf.reduce_max(tf.reduce_sum(tf.cast(~is_padding, tf.int32), 1))]

    return trimmed


def words(texts):
    return tf.strings.to_hash_bucket_fast(tf.strings.split(texts), 200)


IDS, SERIES, TEXTS = tf.zeros((1, 20), tf.int64), tf.zeros((1, 20, 3)), tf.constant(["a"])
RAGGED, NUMBERS = tf.ragged.constant([[1, 2]]), tf.zeros((1,), tf.int64)


@pytest.fixture
def trial(monkeypatch):
    monkeypatch.setattr(tf.RaggedTensor, "to_tensor", tf.RaggedTensor.to_tensor)
    monkeypatch.setattr(tf, "sequence_mask", tf.sequence_mask)
    traced = TracedStep()
    BatchLengths(traced, None, None).install()
    weighing = StepWeighing(traced, None, None)
    monkeypatch.setattr(base_optimizer.BaseOptimizer, "apply", lambda _, grads, *rest: weighing.note_update(grads))
    return StepTrial(weighing, keras.layers.Layer)


@pytest.mark.parametrize(
    ("model", "inputs", "coupled_by"),
    [
        (OfRows(trimmed), IDS, BY_LENGTHS),
        (OfRows(lambda ids: ids), IDS, ""),
        (OfRows(lambda ids: ids - tf.reduce_min(ids, 0)), IDS, BY_ROWS),
        (OfRows(without_rows_of(0.0), embedded=False), SERIES, BY_LENGTHS),
        (OfRows(without_rows_of(-9.0), embedded=False), SERIES, BY_LENGTHS),
        (OfRows(lambda both: both[0][:, : tf.reduce_max(both[1])]), (IDS, NUMBERS), BY_LENGTHS),
        (OfRows(lambda texts: words(texts).to_tensor()), TEXTS, ""),
        (OfRows(lambda texts: words(texts).to_tensor(shape=[None, 3])), TEXTS, ""),
        (
            OfRows(
                lambda texts: tf.RaggedTensor.to_tensor(words(texts))[:, : tf.reduce_max(words(texts).row_lengths())]
            ),
            TEXTS,
            BY_LENGTHS,
        ),
        (OfRows(lambda ragged: ragged.to_tensor()), RAGGED, ""),
        (OfRows(lambda ragged: ragged.to_tensor(default_value=5)), RAGGED, ""),
        (OfRows(lambda ragged: ragged[:, :4].to_tensor()), RAGGED, ""),
        (
            OfRows(lambda ragged: ragged.to_tensor() + tf.cast(tf.reduce_max(ragged.row_lengths()), tf.int32)),
            RAGGED,
            BY_LENGTHS,
        ),
        (OfRows(lambda lengths: tf.cast(tf.sequence_mask(lengths), tf.int32)), NUMBERS, ""),
    ],
)
def test_models_that_take_a_length_from_the_rows(trial, model, inputs, coupled_by):
    """Workers agree on the lengths of ragged tensors and of masks, and on no others."""
    model(inputs)
    assert trial.couples_rows(model, (inputs,), Shares(0, 2)) == coupled_by


@pytest.mark.parametrize(
    ("function", "inputs", "kind"),
    [
        (lambda texts: words(texts).to_tensor(), TEXTS, MEAN),
        (lambda texts: words(texts).to_tensor()[:, : tf.reduce_max(words(texts).row_lengths())], TEXTS, COUPLED),
        (lambda ragged: ragged.to_tensor(), RAGGED, MEAN),
        (lambda ragged: ragged.to_tensor() + tf.cast(tf.reduce_max(ragged.row_lengths()), tf.int32), RAGGED, COUPLED),
    ],
)
def test_steps_that_take_a_length_from_the_rows(trial, function, inputs, kind):
    model = OfRows(function)
    model.compile("sgd")
    model(inputs)

    def train_step(data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        variables = model.trainable_variables
        model.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    kinds = trial(model, train_step, (inputs, tf.zeros((1, 1))), Shares(0, 2))
    assert (set(kinds.of("update").values()), kinds.hint != "") == ({kind}, kind == COUPLED)
