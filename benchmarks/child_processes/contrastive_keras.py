"""A network with a contrastive loss in Keras, as a user writes it, that trains one block for each message.

    python -m benchmarks.child_processes.contrastive_keras

This file is also the cell that ranks of the runtime run. A message is a `Block` of cnn_keras.py, the answer its
`Times`.
"""

import sys
from typing import Any

import numpy as np
import tensorflow as tf

OUTPUTS = 128

Keras = Any
Model = Any
Tensor = Any


def contrast(y_true: Tensor, y_pred: Tensor) -> Tensor:
    """Each row's output beside the targets of all rows."""
    left, right = tf.math.l2_normalize(y_pred, 1), tf.math.l2_normalize(y_true, 1)
    rows = tf.range(tf.shape(left)[0])
    return tf.nn.sparse_softmax_cross_entropy_with_logits(rows, 10.0 * left @ tf.transpose(right))


def network(keras: Keras) -> Model:
    """The convolutional network of cnn_keras.py, with an output of `OUTPUTS` numbers and a contrastive loss."""
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(419, activation="relu"),
            layers.Dense(OUTPUTS),
        ]
    )
    model.compile(keras.optimizers.Adam(1e-3), contrast, jit_compile=False)
    return model


def serve(keras: Keras) -> None:
    """Answer messages until standard input ends."""
    import json

    from benchmarks.child_processes.cnn_keras import epoch_timer

    model, timer = network(keras), epoch_timer(keras)
    for line in sys.stdin:
        block = json.loads(line)
        batch, rows = block["batch"], block["batch"] * block["steps"]
        random = np.random.default_rng(batch)
        x = random.random((rows, 28, 28, 1), np.float32)
        y = random.normal(size=(rows, OUTPUTS)).astype(np.float32)
        model.fit(x, y, batch_size=batch, epochs=1, verbose=0, callbacks=[timer])
        print(json.dumps({"seconds": timer.seconds, "cpu": timer.cpu}), flush=True)


if __name__ == "__main__":
    import keras

    serve(keras)
