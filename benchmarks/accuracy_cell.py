"""The training of b5.py, as a user's cell; before it stand FILE, the tasks' data, SEEDS, and EPOCHS by task.

Prints a line of JSON for each task and seed: seconds of training until the end of each epoch, its validation left out,
and the accuracy on the test rows then.
"""

import json
import time

import keras
import numpy as np


class Curve(keras.callbacks.Callback):
    """What comes of one fit."""

    def __init__(self):
        super().__init__()
        self.seconds, self.accuracy, self._spent = [], [], 0.0

    def on_epoch_begin(self, epoch, logs=None):
        self._began = time.perf_counter()

    def on_test_begin(self, logs=None):
        self._spent += time.perf_counter() - self._began
        self.seconds.append(self._spent)

    def on_epoch_end(self, epoch, logs=None):
        self.accuracy.append(float(logs["val_accuracy"]))


def network(columns, classes):
    layers = keras.layers
    hidden = [layers.Dense(64, activation="relu") for _ in range(2)]
    model = keras.Sequential([keras.Input((columns,)), *hidden, layers.Dense(classes)])
    # Of SGD with Nesterov momentum, as one of the rules is for no other.
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True), loss, metrics=["accuracy"])
    model.optimizer.build(model.trainable_variables)
    return model


with np.load(FILE) as arrays:  # noqa: F821
    tasks = {name: [arrays[f"{name}_{part}"] for part in ("x", "y", "x_test", "y_test")] for name in EPOCHS}  # noqa: F821

for name, (x, y, x_test, y_test) in tasks.items():
    shape = x.shape[1], int(y.max()) + 1
    model = network(*shape)
    fresh = [variable.numpy() for variable in model.optimizer.variables]
    for seed in range(SEEDS):  # noqa: F821
        keras.utils.set_random_seed(seed)
        model.set_weights(network(*shape).get_weights())  # the model stays, as its step is compiled
        for variable, value in zip(model.optimizer.variables, fresh, strict=True):
            variable.assign(value)
        curve = Curve()
        model.fit(
            x,
            y,
            batch_size=32,
            epochs=EPOCHS[name],  # noqa: F821
            validation_data=(x_test, y_test),
            validation_batch_size=2000,
            callbacks=[curve],
            verbose=0,
        )
        if ddl.is_chief:  # noqa: F821
            line = {"task": name, "seed": seed, "seconds": curve.seconds, "accuracy": curve.accuracy}
            print(json.dumps(line), flush=True)
