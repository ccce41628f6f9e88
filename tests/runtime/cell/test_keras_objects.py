"""Objects of Keras arrive on a rank as they are: what a cell prints there, it would print in the notebook."""

import json
import sys

import numpy as np
import pytest
from support import launch
from support.processes import completed, environment

pytest.importorskip("pyspark")

#: A notebook keeps the source of its cells.
NOTEBOOK = """
import linecache, sys
def run(name, source):
    source = "import keras, numpy as np, tensorflow as tf\\n" + source
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    exec(compile(source, name, "exec"), globals())
"""

TAKES_OVER = """
from ddl_magics.runtime.cell import names
names.unpack(open(sys.argv[1], "rb").read(), streams=True)
"""

PACKS = """
from ddl_magics.runtime.cell import names
source = {cell!r}
open(sys.argv[1], "wb").write(names.pack(source, names.captured(source, vars()), vars()))
"""


def same_in_both(earlier, cell, folder, python=sys.executable):
    """What the cell prints, in the session and in a process that has only what has travelled."""
    runs = f"run('<cell>', {cell!r})"
    outputs = []
    for code in (f"run('<earlier>', {earlier!r})" + PACKS.format(cell=cell) + runs, TAKES_OVER + runs):
        command = [python, "-c", NOTEBOOK + code, str(folder / "names.pkl")]
        outputs.append(completed(command, env=environment(), timeout=110).stdout.splitlines()[-1])
    there, here = map(json.loads, outputs)
    assert here == there
    return there


MODELS = """
keras.config.set_floatx("float64")
keras.utils.set_random_seed(1)
x = np.random.rand(32, 6); y = x[:, :1]
scale = 2.0

# models that share layers
inputs = keras.Input((6,))
code = keras.layers.Dense(2, activation=lambda t: t * scale)(inputs)
encoder = keras.Model(inputs, keras.layers.Dropout(0.5)(code))
decoder = keras.Sequential([keras.layers.Dense(6)])
outer = keras.Input((6,))
autoencoder = keras.Model(outer, decoder(encoder(outer)))
autoencoder.compile(keras.optimizers.Adam(0.01), "mse", metrics=[keras.metrics.MeanAbsoluteError(name="mae")])
autoencoder.fit(x, x, verbose=0)
optimizer = autoencoder.optimizer
between = keras.Model(encoder.input, encoder.layers[1].output)
unused = keras.Model(outer, encoder(outer))

# a class without get_config whose attributes say more than its arguments
def close(truth, prediction):
    return tf.reduce_mean((truth - prediction) ** 2) * scale

class Own(keras.Model):
    def __init__(self, encoder):
        super().__init__()
        self.encoder, self.head, self.seen = encoder, [keras.layers.Dense(1)], {"rows": [1]}
        self.total = keras.metrics.Mean(name="total")
    def compile(self, first, second, loss):
        super().compile()
        self.first, self.second, self.loss_function = first, second, loss
    def call(self, rows):
        return self.head[0](self.encoder(rows))
    def train_step(self, data):
        with tf.GradientTape(persistent=True) as tape:
            loss = self.loss_function(data[1], self(data[0], training=True))
        for optimizer, layer in ((self.first, self.encoder), (self.second, self.head[0])):
            optimizer.apply(tape.gradient(loss, layer.trainable_variables), layer.trainable_variables)
        self.total.update_state(loss)
        return {"total": self.total.result()}

own = Own(keras.Sequential([keras.layers.Dense(3), keras.layers.BatchNormalization()]))
own.compile(keras.optimizers.Adam(0.05), keras.optimizers.SGD(0.1, momentum=0.9), close)
own.fit(x, y, verbose=0)
own.seen["rows"].append(2)

# what belongs to no model
alone = keras.optimizers.AdamW(keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5), use_ema=True)
weight = keras.Variable(np.ones(3))
alone.apply([np.ones(3)], [weight])
area = keras.metrics.AUC()
area.update_state([0, 1, 1], [0.2, 0.9, 0.1])
loss = keras.losses.Huber(0.3)
callback = keras.callbacks.EarlyStopping(patience=7)

norm = keras.layers.Normalization(); norm.adapt(x)
look = keras.layers.StringLookup(); look.adapt(np.array(["a", "b", "a"]))
text = keras.layers.TextVectorization(output_mode="tf_idf", standardize=lambda t: tf.strings.lower(t))
text.adapt(["red blue", "blue"])
bins = keras.layers.Discretization(num_bins=3); bins.adapt(x[:, 0])
table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
table.insert(["k"], [5])
augment = keras.Sequential([keras.layers.GaussianNoise(0.1)])
augment(x, training=True)

# a graph without a model
symbolic = keras.Input((6,))
layer = keras.layers.Dense(2, name="first")
score = layer(keras.layers.Rescaling(0.5)(symbolic)) + 1.0
"""

CELL = """
import json
seen = []
def see(*values):
    seen.extend(np.asarray(value).tolist() for value in values)

see(autoencoder.fit(x, x, shuffle=False, batch_size=8, verbose=0).history["mae"], optimizer is autoencoder.optimizer)
see(int(optimizer.iterations), *autoencoder.get_weights(), *optimizer.variables)
see(encoder.predict(x[:3], verbose=0), between.predict(x[:3], verbose=0), *unused.get_weights())
autoencoder.summary()
see(str([layer["inbound_nodes"] for layer in autoencoder.get_config()["layers"]]))
encoder.trainable = False
see(len(autoencoder.trainable_weights), unused.layers[1] is encoder, keras.layers.Dense(1).name)
see(own.fit(x, y, shuffle=False, batch_size=8, verbose=0).history["total"], own.seen["rows"], *own.get_weights())
see(*own.first.variables, *own.second.variables, len(own.metrics), len(own.layers))
alone.apply([np.ones(3)], [weight])
see(weight, *alone.variables)
area.update_state([1], [0.8])
see(area.result(), loss(y[:2], y[2:4]), callback.patience)
model = keras.Sequential([keras.Input((6,)), norm, keras.layers.Dense(1)])
see(model.predict(x[:3], verbose=0), look(np.array(["b", "z"])), text(np.array(["blue Red"])), bins(x[:5, 0]))
see(table.lookup(tf.constant(["k", "z"])), augment(x[:2], training=True))
model = keras.Model(symbolic, score)

see(model.predict(x[:3], verbose=0), layer is model.get_layer("first"), np.random.rand())
print(json.dumps([value.decode() if isinstance(value, bytes) else value for value in seen]))
"""


def test_objects_of_keras_arrive_as_they_are(tmp_path):
    same_in_both(MODELS, CELL, tmp_path)


#: A model that earlier cells have made and trained goes on; its encoder and its optimizer are also variables.
GOES_ON = """
fit = dict(batch_size=8, epochs=2, shuffle=False, verbose=0)
losses = autoencoder.fit(x, x, **fit).history["loss"]
encoder.trainable = False
optimizer.learning_rate = 0.001
autoencoder.compile(optimizer, close)
losses += autoencoder.fit(x, x, **fit).history["loss"]
value = [losses, int(optimizer.iterations)]
value += [weight.tolist() for weight in encoder.get_weights() + autoencoder.get_weights()]
"""


@pytest.fixture
def float64():
    keras = pytest.importorskip("keras")
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")  # another test may have set one, which does not follow floatx
    yield
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")


def test_a_trained_model_goes_on_as_in_one_process(rank_pool, float64):
    session = {"__name__": "builtins"}
    earlier = """
import keras, numpy as np
x = np.random.default_rng(0).normal(size=(32, 6))
scale = 2.0
def close(truth, prediction):
    return keras.ops.mean((truth - prediction) ** 2, axis=-1) * scale
encoder = keras.Sequential([keras.Input((6,)), keras.layers.Dense(3, activation=lambda t: keras.ops.tanh(t * scale))])
autoencoder = keras.Sequential([keras.Input((6,)), encoder, keras.layers.Dense(6)])
optimizer = keras.optimizers.Adam(0.01)
autoencoder.compile(optimizer, close)
autoencoder.fit(x, x, batch_size=8, verbose=0)
"""
    exec(earlier, session)
    value = launch.finished(rank_pool(2), GOES_ON + "value", session).result
    exec(GOES_ON, session)
    for theirs, ours in zip(value, session["value"], strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=0, atol=1e-9)
