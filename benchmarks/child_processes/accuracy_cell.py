"""The cell of accuracy.py: fits the same small network to each task, once for each seed.

The environment variable ACCURACY_TASKS holds JSON: {"file": of `accuracy.tasks`, "seeds": number, "epochs": {task:
number}}. The chief prints a line of JSON for each fit: `seconds` of training until the end of each epoch, without
validation, and the `accuracy` on the test rows then.
"""

import json
import os
import time
from typing import Any

import keras
import numpy as np

WANTED = json.loads(os.environ["ACCURACY_TASKS"])
PARTS = ("x", "y", "x_test", "y_test")
BATCH, VALIDATION_BATCH = 32, 2000


class Curve(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """`seconds` and `accuracy` at the end of each epoch of one fit."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self.accuracy: list[float] = []
        self._trained = 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._began = time.perf_counter()

    def on_test_begin(self, logs: Any = None) -> None:
        self._trained += time.perf_counter() - self._began
        self.seconds.append(self._trained)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.accuracy.append(float(logs["val_accuracy"]))


def network(columns: int, classes: int) -> Any:
    layers = keras.layers
    hidden = [layers.Dense(64, activation="relu") for _ in range(2)]
    model = keras.Sequential([keras.Input((columns,)), *hidden, layers.Dense(classes)])
    # SGD with Nesterov momentum: the rule eamsgd works with no other optimizer.
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True), loss, metrics=["accuracy"])
    model.optimizer.build(model.trainable_variables)
    return model


def main() -> None:
    is_chief = globals()["ddl"].is_chief  # the runtime defines ddl
    with np.load(WANTED["file"]) as arrays:
        tasks = {task: [arrays[f"{task}_{part}"] for part in PARTS] for task in WANTED["epochs"]}
    for task, (x, y, x_test, y_test) in tasks.items():
        shape = x.shape[1], int(y.max()) + 1
        model = network(*shape)
        fresh = [variable.numpy() for variable in model.optimizer.variables]
        for seed in range(WANTED["seeds"]):
            keras.utils.set_random_seed(seed)
            model.set_weights(network(*shape).get_weights())  # a new model would compile its step again
            for variable, value in zip(model.optimizer.variables, fresh, strict=True):
                variable.assign(value)
            curve = Curve()
            model.fit(
                x,
                y,
                batch_size=BATCH,
                epochs=WANTED["epochs"][task],
                validation_data=(x_test, y_test),
                validation_batch_size=VALIDATION_BATCH,
                callbacks=[curve],
                verbose=0,
            )
            if is_chief:
                line = {"task": task, "seed": seed, "seconds": curve.seconds, "accuracy": curve.accuracy}
                print(json.dumps(line), flush=True)


main()
