"""The training that is watched: an ordinary Keras cell that also notes when each of its steps ended."""

from __future__ import annotations

import numpy as np

#: A convolutional network for images like MNIST's: it keeps both workers' cores busy.
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
#: Of an epoch, after which it may end.
STEPS = 50


def cell(name: str, seconds: float, pause: float = 0.0) -> str:
    """The cell's source, with its magic: trains for at least `seconds`, each step `pause` longer than it takes.

    Its result is an array of float64: the times (time.time) at which rank 0 ended each step, in order.
    """
    return _CELL.format(name=name, seconds=seconds, pause=pause, rows=BATCH * STEPS, batch=BATCH)


def step_seconds(ends: list[float], begin: float, end: float) -> float:
    """The mean time of a step between two times, at the ends of which a step counts by its share.

    Raises:
        ValueError: the training was not going on all the time.
    """
    if not ends[0] <= begin < end <= ends[-1]:
        raise ValueError("the training began after the block, or ended before it")
    first, last = np.interp([begin, end], ends, range(len(ends)))
    return float((end - begin) / (last - first))
