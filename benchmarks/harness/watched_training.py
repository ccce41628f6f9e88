"""The training of live.py: an ordinary Keras cell that also records when each of its steps ended."""

from __future__ import annotations

import numpy as np

#: A convolutional network for images of 28 x 28: it keeps the cores of both workers busy.
_CELL = """\
%%distributed --workers 2 --name {name}
import time
import keras
import numpy as np

class Clock(keras.callbacks.Callback):
    ends = []
    def on_train_batch_end(self, batch, logs=None):
        time.sleep({pause})
        self.ends.append(time.time())
    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = self.ends[-1] > self.ends[0] + {seconds}

x = np.random.default_rng(0).random(({rows}, 28, 28, 1)).astype("float32")
y = np.arange(len(x)) % 10
model = keras.Sequential([
    keras.Input((28, 28, 1)),
    keras.layers.Conv2D(32, 3, activation="relu"), keras.layers.MaxPooling2D(),
    keras.layers.Conv2D(64, 3, activation="relu"), keras.layers.MaxPooling2D(),
    keras.layers.Flatten(), keras.layers.Dense(400, activation="relu"), keras.layers.Dense(10),
])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(x, y, batch_size={batch}, epochs=100_000, callbacks=[Clock()], verbose=0)
np.array(Clock.ends)
"""

BATCH = 64
#: Steps of an epoch; training can only end after one.
STEPS = 50


def cell(name: str, seconds: float, pause: float = 0.0) -> str:
    """The source of the cell, with its magic.

    Its result is an array of float64: the times (time.time) at which rank 0 ended each step, in order.

    Args:
        name: of the run.
        seconds: that it trains at least.
        pause: seconds of sleep in each step.
    """
    return _CELL.format(name=name, seconds=seconds, pause=pause, rows=BATCH * STEPS, batch=BATCH)


def step_seconds(ends: list[float], begin: float, end: float) -> float:
    """The mean duration of a step between two times; a step that is only partly between them counts by that part.

    Args:
        ends: when each step ended, in order.
        begin: the first of the two times.
        end: the second.

    Raises:
        ValueError: the training had not begun at the first time, or had ended before the second.
    """
    if not ends[0] <= begin < end <= ends[-1]:
        raise ValueError("the training began after the block, or ended before it")
    first, last = np.interp([begin, end], ends, range(len(ends)))
    return float((end - begin) / (last - first))
