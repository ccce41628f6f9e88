"""Random numbers of a step differ from rank to rank, and are as many as in one process; all others are alike."""

import json

import pytest
from support import launch
from support.paths import KERAS2_PYTHON

pytestmark = pytest.mark.timeout(300)

ROWS, BATCH, EPOCHS = 24, 8, 2

#: Prints for each kind of noise what the steps of a fit, or of a loop, have drawn for each row.
CELL = f"""
import hashlib
import json
import random
import keras, numpy as np
import tensorflow as tf

x = np.arange({ROWS}.0, dtype="float32").reshape(-1, 1)
SEEN = []

def see(noise):
    tf.numpy_function(lambda values: SEEN.extend(values.ravel().tolist()), [noise], [])

class Noisy(keras.Model):
    def __init__(self, draw):
        super().__init__()
        self.draw, self.out = draw, keras.layers.Dense(1)
    def call(self, inputs):
        return self.out(inputs)
    def train_step(self, data):
        data = data[0] if isinstance(data, tuple) else data
        noise = tf.reshape(tf.cast(self.draw(tf.shape(data)[0]), tf.float32), [-1, 1])
        see(noise)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(data / 20.0 + noise)))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {{"loss": loss}}

generator = tf.random.Generator.from_seed(4)
layer = keras.layers.GaussianNoise(1.0)
draws = {{
    "global": lambda n: tf.random.normal([n, 1]),
    "seeded": lambda n: tf.random.uniform([n, 1], seed=3),
    "stateless": lambda n: tf.random.stateless_normal([n, 1], seed=[1, 2]),
    "stateless_poisson": lambda n: tf.random.stateless_poisson([n, 1], seed=[1, 2], lam=1e6, dtype=tf.float32) / 1e6,
    "generator": lambda n: generator.normal([n, 1]),
    "layer": lambda n: layer(tf.zeros([n, 1]), training=True),
}}
if keras.__version__.startswith("3."):
    seeds = keras.random.SeedGenerator(5)
    draws.update(
        keras=lambda n: keras.random.normal((n, 1)),
        keras_seeded=lambda n: keras.random.normal((n, 1), seed=6),
        keras_generator=lambda n: keras.random.normal((n, 1), seed=seeds),
    )

def log(name):
    print("noise", json.dumps([name, SEEN]))
    del SEEN[:]

def learned(name, model):
    flat = np.concatenate([np.ravel(w) for w in model.get_weights()])
    ddl.log(**{{name: int(hashlib.sha256(flat.tobytes()).hexdigest()[:12], 16)}})

def fit(name, draw, **compiled):
    keras.utils.set_random_seed(7)
    model = Noisy(draw)
    model.compile(keras.optimizers.SGD(1e-3), **compiled)
    data = tf.data.Dataset.from_tensor_slices(x).map(lambda row: row + tf.random.normal([1])).batch({BATCH})
    model.fit(data, epochs={EPOCHS}, verbose=0)
    log(name)
    learned(name, model)

for name, draw in draws.items():
    fit(name, draw)
fit("again", draws["global"])
fit("eager", draws["global"], run_eagerly=True)
fit("numpy", lambda n: np.random.normal(size=(int(n), 1)), run_eagerly=True)
fit("python", lambda n: [[random.random()] for _ in range(int(n))], run_eagerly=True)
fit("three_steps", draws["global"], steps_per_execution=3)

looking = keras.layers.Lambda(lambda hidden: (see(hidden), hidden)[1])
masked = keras.Sequential([keras.Input((8,)), keras.layers.Dropout(0.25), looking, keras.layers.Dense(1)])
masked.compile("sgd", "mse")
masked.fit(np.ones(({ROWS}, 8), "float32"), np.ones(({ROWS}, 1), "float32"), batch_size={BATCH}, verbose=0)
log("dropout")
learned("dropout", masked)

def loop(name, kind):
    keras.utils.set_random_seed(7)
    model = Noisy(draws["global"])
    model.compile(keras.optimizers.SGD(1e-3))
    step = kind(lambda rows: model.train_step(rows))
    for _ in range({EPOCHS}):
        for rows in ddl.distribute(tf.data.Dataset.from_tensor_slices(x).shuffle({ROWS}).batch({BATCH})):
            step(rows)
    log(name)
    learned(name, model)

loop("loop", tf.function)
loop("eager_loop", lambda step: step)
for _ in range(3):  # noise that the cell draws for a batch is alike, and cut
    noise = np.random.normal(size=({BATCH}, 1)).astype("float32")
    see(ddl.distribute(noise))
log("cut")
"""


def seen(ended):
    """{kind of noise: {rank: numbers}}, of a run of `CELL` whose ranks have equal weights after each fit."""
    digests = {}
    for event in ended.of_kind("values"):
        for name, value in event["metrics"].items():
            digests.setdefault(name, []).append(value)
    assert all(len(values) == 2 and len(set(values)) == 1 for values in digests.values()), digests
    assert len(digests) >= 14
    return printed(ended, "noise")


def printed(ended, word):
    """{name: {rank: values}} of the lines that begin with the word."""
    found = {}
    for rank in range(2):
        for line in ended.logs(rank).splitlines():
            if line.startswith(f"{word} ["):
                name, values = json.loads(line.partition(" ")[2])
                found.setdefault(name, {})[rank] = values
    return found


def check(found):
    masks = found.pop("dropout")
    cut = found.pop("cut")
    assert len(set(cut[0] + cut[1])) == 3 * BATCH
    for name, ranks in found.items():
        numbers = ranks[0] + ranks[1]
        constant = name in ("stateless", "stateless_poisson", "keras_seeded")  # the same in each step, by its seed
        batches = 1 if constant else ROWS // BATCH * EPOCHS
        assert len(numbers) == ROWS * EPOCHS and len(set(numbers)) == BATCH * batches, name
    assert found["again"] == found["global"]  # a seed makes a cell repeatable
    normal = sorted(found["global"][0] + found["global"][1])
    assert -1.0 < normal[len(normal) // 2] < 1.0 and normal[0] < -1.0 < 1.0 < normal[-1]
    kept = [sum(value > 0 for value in numbers) / len(numbers) for numbers in masks.values()]
    assert masks[0] != masks[1] and all(0.6 < share < 0.9 for share in kept)
    assert {round(value, 4) for numbers in masks.values() for value in numbers} == {0.0, round(4 / 3, 4)}


@pytest.mark.slow
def test_each_row_has_its_own_noise_with_keras_2(spark_cluster):
    """With Keras 3: test_randomness.py."""
    check(seen(launch.finished(spark_cluster(2, KERAS2_PYTHON), CELL)))
