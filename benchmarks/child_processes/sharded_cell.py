"""The cell of sharded_update.py, of a rank: a network of dense layers of 4 MB each trains with Adam.

Before the text stand LAYERS, BATCH and STEPS. It prints a line of JSON: the milliseconds of each step but the first
ones, and by how many megabytes its memory has grown since Keras was imported, after the last step.
"""

import json
import time

import keras
import numpy as np

LAYERS, BATCH, STEPS = globals().get("LAYERS", 1), globals().get("BATCH", 64), globals().get("STEPS", 10)
WIDTH, NOT_MEASURED = 1024, 5


def megabytes() -> float:
    """Of this process, without what it shares with others."""
    with open("/proc/self/smaps_rollup") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith(("Private_Dirty", "Private_Clean"))) / 1024


class Times(keras.callbacks.Callback):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.milliseconds: list[float] = []
        self.megabytes = 0.0

    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
        self._began = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        self.milliseconds.append(1000 * (time.perf_counter() - self._began))
        self.megabytes = megabytes()


before = megabytes()
random = np.random.default_rng(0)
x = random.normal(size=(BATCH * STEPS, WIDTH)).astype("float32")
model = keras.Sequential([keras.Input((WIDTH,)), *(keras.layers.Dense(WIDTH, "relu") for _ in range(LAYERS))])
model.compile(keras.optimizers.Adam(1e-4), "mse")
times = Times()
model.fit(x, x, batch_size=BATCH, epochs=1, verbose=0, shuffle=False, callbacks=[times])
print(json.dumps([times.milliseconds[NOT_MEASURED:], times.megabytes - before]), flush=True)
