"""The training of b1.py in Keras, as a user writes it; it trains a block when told to by a line on standard input.

    cnn_keras.py plain | fast | mirrored [RANK ADDRESS...]

plain: Keras as it is; fast: with the optimizer's update that the runtime compiles; mirrored: tf_keras under
MultiWorkerMirroredStrategy. Under the runtime this text is the cell. A line is JSON {"batch", "steps"}, batch of all
workers of one training together; the answer is {"seconds", "cpu"}, of an epoch of so many steps. Whoever puts a
function `told` before this text has it called with each line's JSON first.
"""

import json
import sys
import time

import numpy as np


def network(keras):
    """694 k parameters, for images like MNIST's."""
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
            layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-3), loss, jit_compile=False)
    return model


def clock(keras):
    """A callback that notes how long an epoch took: it has no hooks at steps, so that steps stay as they are."""

    class Clock(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.cpu, self.seconds = -time.process_time(), -time.perf_counter()

        def on_epoch_end(self, epoch, logs=None):
            self.seconds += time.perf_counter()
            self.cpu += time.process_time()

    return Clock()


def serve(keras, make=network, told=None):
    models, timer = {}, clock(keras)
    for line in sys.stdin:
        block = json.loads(line)
        if told is not None:
            told(block)
        batch, rows = block["batch"], block["batch"] * block["steps"]
        x = np.random.default_rng(batch).random((rows, 28, 28, 1), np.float32)
        y = (x[:, 0, :10, 0]).argmax(1)
        if batch not in models:
            models[batch] = make(keras)
        models[batch].fit(x, y, batch_size=batch, epochs=1, verbose=0, callbacks=[timer])
        print(json.dumps({"seconds": timer.seconds, "cpu": timer.cpu}), flush=True)


def mirrored(rank, addresses):
    import os

    cluster = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": int(rank)}}
    os.environ["TF_CONFIG"] = json.dumps(cluster)
    import tensorflow as tf
    import tf_keras

    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    def make(keras):
        with strategy.scope():
            return network(keras)

    serve(tf_keras, make)


def alone(update):
    import keras

    if update == "fast":
        from ddl_magics.runtime import compiled_update

        compiled_update.install()
    serve(keras)


if "ddl" in globals():
    import keras

    serve(keras, told=globals().get("told"))
elif sys.argv[1] == "mirrored":
    mirrored(sys.argv[2], sys.argv[3:])
else:
    alone(sys.argv[1])
