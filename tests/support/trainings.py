"""The small training that the tests of kernels and clusters send: a line through 256 points."""

_SOURCE = """
import keras
import numpy as np
import time

x = np.random.default_rng(0).normal(size=(256, 4)).astype("float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
slowly = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: time.sleep({pause}))
model.fit(x, x.sum(1), epochs={epochs}, batch_size=32, verbose=0, callbacks=[slowly])
print("trained by", ddl.rank)
float(len(x))
"""


def source(epochs=2, pause=0.0):
    """The code of the cell; after each epoch it sleeps for `pause` seconds."""
    return _SOURCE.format(epochs=epochs, pause=pause)


def cell(options="", epochs=2, pause=0.0):
    """The cell with its magic."""
    return f"%%distributed {options}{source(epochs, pause)}"
