"""Networks that a GPU trains, in Keras as a user writes it: some epochs for each message.

    python -m benchmarks.child_processes.gpu_networks

This file is also the cell that ranks of the runtime run. A message is `Epochs`, the answer a list of seconds, one for
each epoch. A model lasts: the first epoch of each kind of message has the time that XLA takes to compile it.
"""

import itertools
import json
import sys
import time
from typing import Any, TypedDict

import numpy as np

Keras = Any  # the module keras, which has no types
Model = Any


class Epochs(TypedDict):
    """Training. network: of NETWORKS. image: its height and width. batch: rows of a step, of all who train together.

    steps: of an epoch. policy: Keras' dtype policy.
    """

    network: str
    image: int
    batch: int
    steps: int
    epochs: int
    policy: str


def cnn(keras: Keras, image: int) -> Model:
    """A small network: 2.4 million parameters for images of 32 x 32 x 3."""
    convolutions = [
        keras.layers.Conv2D(filters, 3, activation="relu", padding="same", strides=strides)
        for filters, strides in ((64, 1), (64, 2), (128, 1), (128, 2))
    ]
    dense = [keras.layers.Dense(256, activation="relu"), keras.layers.Dense(10, activation="softmax", dtype="float32")]
    return keras.Sequential([keras.Input((image, image, 3)), *convolutions, keras.layers.Flatten(), *dense])


def resnet50(keras: Keras, image: int) -> Model:
    return keras.applications.ResNet50(weights=None, input_shape=(image, image, 3), classes=10)


NETWORKS = {"cnn": cnn, "resnet50": resnet50}


def seconds(keras: Keras, models: dict[str, Model], asked: Epochs) -> list[float]:
    """Train as asked; the seconds from the begin of each epoch to that of the next, or to the end of the fit."""
    image, rows = asked["image"], asked["batch"] * asked["steps"]
    key = json.dumps({**asked, "epochs": 0})
    if key not in models:
        keras.mixed_precision.set_dtype_policy(asked["policy"])
        models[key] = model = NETWORKS[asked["network"]](keras, image)
        model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "sparse_categorical_crossentropy", metrics=["accuracy"])
    x = np.random.default_rng(0).random((rows, image, image, 3), dtype=np.float32)
    y = np.random.default_rng(1).integers(0, 10, rows)
    times: list[float] = []
    note = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: times.append(time.perf_counter()),
        on_train_end=lambda logs: times.append(time.perf_counter()),
    )
    fit = {"batch_size": asked["batch"], "epochs": asked["epochs"], "shuffle": False, "verbose": 0}
    models[key].fit(x, y, callbacks=[note], **fit)
    return [stop - start for start, stop in itertools.pairwise(times)]


def main() -> None:
    import keras
    import tensorflow as tf

    if "ddl" not in globals():  # two processes share a GPU, as two ranks do
        for gpu in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)
    models: dict[str, Model] = {}
    for line in sys.stdin:
        print(json.dumps(seconds(keras, models, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
