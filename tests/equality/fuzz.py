"""Small models and losses put together from choices, behind the text of the other cases in a cell.

A case's name is the JSON of its choices.
"""

import hashlib
import json

import keras
import numpy as np
import tensorflow as tf
from cases import layers, learned  # cell: dropped
from coupled import Added, Largest, largest_error  # cell: dropped

FEATURES, CLASSES = 5, 3


def squares(y, p):
    return tf.square(tf.cast(y, p.dtype) - p)


def rows_beside_rows(y, p):
    """A vector: each row beside all."""
    scores = p @ tf.transpose(tf.cast(y, p.dtype))
    return tf.nn.softmax_cross_entropy_with_logits(tf.eye(tf.shape(p)[0], dtype=p.dtype), scores)


def kept(y, p):
    return tf.cast(tf.reduce_sum(tf.cast(y, p.dtype), -1) > 0.8, p.dtype)


LOSSES = {
    "mse": lambda reduction: keras.losses.MeanSquaredError(reduction=reduction),
    "huber": lambda reduction: keras.losses.Huber(0.5, reduction=reduction),
    "cosine": lambda reduction: keras.losses.CosineSimilarity(reduction=reduction),
    "mean": lambda _: lambda y, p: tf.reduce_mean(squares(y, p)),
    "mean of rows": lambda _: lambda y, p: tf.reduce_mean(squares(y, p), -1),
    "sum": lambda _: lambda y, p: 0.1 * tf.reduce_sum(squares(y, p)),
    "sum of rows": lambda _: lambda y, p: tf.reduce_sum(squares(y, p), -1),
    "root": lambda _: lambda y, p: tf.sqrt(tf.reduce_mean(squares(y, p)) + 0.1),
    "contrast": lambda _: rows_beside_rows,
    "kept mean": lambda _: (
        lambda y, p: tf.reduce_sum(tf.reduce_mean(squares(y, p), -1) * kept(y, p)) / (tf.reduce_sum(kept(y, p)) + 0.01)
    ),
    "variance": lambda _: lambda y, p: tf.reduce_mean(squares(y, p)) + tf.reduce_mean(tf.math.reduce_variance(p, 0)),
    "largest": lambda _: lambda y, p: tf.reduce_max(squares(y, p)),
    "scaled sum": lambda _: lambda y, p: tf.reduce_sum(squares(y, p)) / 8.0,
    "log of sum": lambda _: lambda y, p: tf.math.log1p(tf.reduce_sum(squares(y, p))),
    "zero": lambda _: lambda y, p: 0.0 * tf.reduce_sum(p),
}
ADDED = {
    "none": None,
    "mean": lambda x: 0.1 * tf.reduce_mean(tf.square(x)),
    "sum": lambda x: 0.01 * tf.reduce_sum(tf.square(x)),
    "whole": lambda x: 0.1 * tf.reduce_mean(tf.math.reduce_variance(x, 0)),
}


METRICS = {"none": list, "mae": lambda: ["mae"], "largest": lambda: [Largest()], "own": lambda: [largest_error]}


class OwnStepOfLosses(keras.Model):
    def train_step(self, data):
        x, y, *_ = data
        with tf.GradientTape() as tape:
            loss = self.own_loss(y, self(x, training=True))
            loss = tf.reduce_mean(loss) if loss.shape.rank else loss
            loss = loss + sum(self.losses)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        self.average.update_state(loss)
        return {"loss": self.average.result()}

    @property
    def metrics(self):
        return [self.average]


class OwnLoss(keras.Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return tf.reduce_mean(self.own_loss(y, y_pred)) + sum(self.losses)


def case(choices, dtype):
    random = np.random.default_rng(choices["seed"])
    rows = choices["rows"]
    if choices["words"]:
        x = random.integers(0, 7, (rows, 4))
        y = random.normal(size=(rows, 4, CLASSES)).astype(dtype)
        given = keras.Input((4,), dtype="int32")
        hidden = layers.Embedding(7, choices["units"], mask_zero=choices["masked"])(given)
    else:
        x = random.normal(size=(rows, FEATURES)).astype(dtype)
        y = random.uniform(0.0, 1.0, (rows, CLASSES)).astype(dtype)
        given = keras.Input((FEATURES,))
        hidden = given
    for activation in choices["layers"]:
        regularizer = "l2" if choices["regularized"] else None
        hidden = layers.Dense(choices["units"], activation=activation, kernel_regularizer=regularizer)(hidden)
    if ADDED[choices["added"]]:
        hidden = Added(ADDED[choices["added"]])(hidden)
    outputs = layers.Dense(CLASSES)(hidden)
    loss = LOSSES[choices["loss"]](choices["reduction"])
    model = {"compiled": keras.Model, "own step": OwnStepOfLosses, "own loss": OwnLoss}[choices["kind"]](given, outputs)
    optimizer = keras.optimizers.SGD(0.01, momentum=0.5)
    how = {"run_eagerly": choices["eager"], "steps_per_execution": choices["steps"]}
    if choices["kind"] == "compiled":
        model.compile(optimizer, loss, metrics=METRICS[choices["metrics"]](), **how)
    else:
        model.own_loss = LOSSES[choices["loss"]]("sum_over_batch_size")
        model.average = keras.metrics.Mean(name="loss")
        model.compile(optimizer, **how)
    weights = random.uniform(0.2, 2.0, rows).astype(dtype) if choices["weighted"] else None
    fit = {"batch_size": choices["batch"], "epochs": 1, "sample_weight": weights, "verbose": 0}
    return model, model.fit(x, y, **fit).history


def run_cases(names, dtype, ddl=None, label=""):
    keras.backend.set_floatx(dtype)
    results = {}
    for name in names:
        keras.utils.set_random_seed(11)
        keras.backend.clear_session()
        try:
            model, history = case(json.loads(name), dtype)
        except Exception as error:
            results[name] = {"refused": str(error).strip().splitlines()[0]}
            continue
        results[name] = learned(model, history, label + hashlib.sha256(name.encode()).hexdigest()[:12], ddl)
    keras.backend.set_floatx("float32")
    return results
