"""The convolutional network of cnn_keras.py with losses that a run tries before its first update.

    python -m benchmarks.child_processes.tried_keras

This file is also the cell that ranks of the runtime run. A message is a `Fit`, the answer a `Cost`.
"""

import json
import sys
from typing import Any, TypedDict

import numpy as np
import tensorflow as tf

from benchmarks.child_processes.cnn_keras import epoch_timer, network

Keras = Any
Model = Any
Tensor = Any

#: Seconds of the trials of this process; code before the cell adds to them.
spent = globals().get("spent", [0.0])


class Fit(TypedDict):
    """A fit of a new model.

    loss: "keras" for a loss of Keras, "own" for a function of the cell, "step" for a train_step of the cell. batch:
    rows of a step, of all workers. steps: number of them in an epoch.
    """

    loss: str
    batch: int
    steps: int


class Cost(TypedDict):
    """Seconds of the fit's trials, and of a step after them."""

    trial: float
    step: float


def error(y_true: Tensor, y_pred: Tensor) -> Tensor:
    """A loss of the cell: one number a row."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(tf.reshape(y_true, [-1]), tf.int32), y_pred)


def compiled(keras: Keras, loss: str) -> Model:
    """The network, compiled with the loss."""
    model = network(keras)
    if loss == "own":
        model.compile(keras.optimizers.Adam(1e-3), error, jit_compile=False)
    if loss != "step":
        return model

    class OwnStep(keras.Model):  # type: ignore[misc]  # Keras has no types
        def train_step(self, data: Any) -> dict[str, Tensor]:
            x, y = data
            with tf.GradientTape() as tape:
                value = tf.reduce_mean(error(y, self(x, training=True)))
            weights = self.trainable_weights
            self.optimizer.apply_gradients(zip(tape.gradient(value, weights), weights, strict=True))
            return {"error": value}

    model = OwnStep(model.inputs, model.outputs)
    model.compile(keras.optimizers.Adam(1e-3), jit_compile=False)
    return model


def serve(keras: Keras) -> None:
    """Answer messages until standard input ends."""
    timer = epoch_timer(keras)
    for line in sys.stdin:
        fit: Fit = json.loads(line)
        rows = fit["batch"] * fit["steps"]
        x = np.random.default_rng(0).random((rows, 28, 28, 1), np.float32)
        y = (x[:, 0, :10, 0]).argmax(1)
        spent[0] = 0.0
        compiled(keras, fit["loss"]).fit(x, y, batch_size=fit["batch"], epochs=2, verbose=0, callbacks=[timer])
        cost: Cost = {"trial": spent[0], "step": timer.seconds / fit["steps"]}
        print(json.dumps(cost), flush=True)


if __name__ == "__main__":
    import keras

    serve(keras)
