"""Training code of many kinds, written as a user writes it, without a thought of distribution.

The text of this file is the cell: run as it is in a plain Python process it gives the reference, under `%%distributed`
what is compared with it. `run_cases` is called with the names of the cases and a dtype.
"""

import hashlib

import keras
import numpy as np
import tensorflow as tf
from keras import layers

ROWS, FEATURES, CLASSES = 202, 8, 4
BATCH = 40  # 202 rows: five full batches and one of 2 rows, fewer than 4 workers


def table(dtype, rows=ROWS, seed=3):
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, FEATURES)).astype(dtype)
    labels = (x @ random.normal(size=(FEATURES, CLASSES))).argmax(1)
    return x, labels


def network(activation="tanh"):
    return keras.Sequential(
        [keras.Input((FEATURES,)), layers.Dense(16, activation=activation), layers.Dense(CLASSES, activation="softmax")]
    )


def fit_classifier(optimizer, dtype, epochs=3, model=None, metrics=("accuracy",), **fit):
    x, y = table(dtype)
    xv, yv = table(dtype, 51, seed=4)
    model = model or network()
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=list(metrics))
    history = model.fit(x, y, batch_size=BATCH, epochs=epochs, validation_data=(xv, yv), verbose=0, **fit)
    return model, history.history


ENTROPY = "sparse_categorical_crossentropy"


def fit_network(dtype, optimizer="sgd", loss=ENTROPY, rows=ROWS, epochs=2, fit=None, model=None, **compiled):
    """fit, compiled: further arguments of `fit` and of `compile`."""
    x, y = table(dtype, rows)
    model = model or network()
    model.compile(optimizer, loss, **compiled)
    return model, model.fit(x, y, epochs=epochs, verbose=0, **{"batch_size": BATCH, **(fit or {})}).history


def fit_column(dtype, *kinds, optimizer="sgd", loss="mse", epochs=2, **compiled):
    """A model of these layers learns the first of its features."""
    x, _ = table(dtype)
    model = keras.Sequential([keras.Input((FEATURES,)), *kinds])
    model.compile(optimizer, loss, **compiled)
    return model, model.fit(x, x[:, :1], batch_size=BATCH, epochs=epochs, verbose=0).history


def fit_batches(data, fit, **compiled):
    """A network learns from batches."""
    model = network()
    model.compile("sgd", ENTROPY, **compiled)
    return model, model.fit(data, verbose=0, **fit).history


def sgd_momentum(dtype):
    return fit_classifier(keras.optimizers.SGD(0.1, momentum=0.9), dtype)


def adam(dtype):
    return fit_classifier("adam", dtype)


def adamw_clipnorm(dtype):
    return fit_classifier(keras.optimizers.AdamW(0.01, weight_decay=0.01, clipnorm=0.1), dtype)


def global_clipnorm(dtype):
    return fit_classifier(keras.optimizers.SGD(0.5, global_clipnorm=0.2), dtype)


def accumulation(dtype):
    return fit_classifier(keras.optimizers.SGD(0.1, gradient_accumulation_steps=3), dtype)


def moving_average(dtype):
    return fit_classifier(keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.8, ema_overwrite_frequency=4), dtype)


def schedule(dtype):
    return fit_classifier(keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.3, 4, 0.7)), dtype)


def callbacks(dtype):
    best = keras.callbacks.ModelCheckpoint("best.weights.h5", save_weights_only=True, save_best_only=True)
    reduce = keras.callbacks.ReduceLROnPlateau(patience=1, factor=0.3)
    stop = keras.callbacks.EarlyStopping(patience=3)

    class Batches(keras.callbacks.Callback):
        losses: list = []  # noqa: RUF012

        def on_test_batch_end(self, batch, logs=None):
            self.losses.append(float(logs["loss"]))

    of_cell = [best, reduce, stop, Batches()]
    model, history = fit_classifier(keras.optimizers.SGD(1.5), dtype, epochs=12, callbacks=of_cell)
    model.load_weights("best.weights.h5")
    return model, {**history, "batches of validations": Batches.losses}


def weighted(dtype):
    x, y = table(dtype)
    weights = np.random.default_rng(5).uniform(0.2, 2.0, ROWS).astype(dtype)
    model = network()
    model.compile("sgd", "sparse_categorical_crossentropy", weighted_metrics=["accuracy"])
    first = model.fit(x, y, batch_size=BATCH, epochs=2, sample_weight=weights, verbose=0).history
    second = model.fit(
        x, y, batch_size=BATCH, epochs=2, class_weight={0: 1.0, 1: 3.0, 2: 0.5, 3: 1.0}, verbose=0
    ).history
    return model, {"loss": first["loss"] + second["loss"], "accuracy": first["accuracy"] + second["accuracy"]}


def two_by_two(dtype):
    x, y = table(dtype)
    target = x[:, :2].sum(1, keepdims=True)
    left, right = keras.Input((4,), name="left"), keras.Input((4,), name="right")
    hidden = layers.Dense(12, activation="tanh")(layers.Concatenate()([left, right]))
    outputs = {
        "kind": layers.Dense(CLASSES, activation="softmax", name="kind")(hidden),
        "value": layers.Dense(1, name="value")(hidden),
    }
    model = keras.Model([left, right], outputs)
    losses = {"kind": "sparse_categorical_crossentropy", "value": "mse"}
    model.compile(
        "sgd", losses, loss_weights={"kind": 1.0, "value": 0.5}, metrics={"kind": ["accuracy"], "value": ["mae"]}
    )
    data = {"left": x[:, :4], "right": x[:, 4:]}
    history = model.fit(data, {"kind": y, "value": target}, batch_size=BATCH, epochs=3, validation_split=0.2, verbose=0)
    return model, history.history


def embedding(dtype):
    random = np.random.default_rng(6)
    words = random.integers(0, 12, (ROWS, 6))
    y = (words.sum(1) % CLASSES).astype("int64")
    model = keras.Sequential(
        [
            keras.Input((6,), dtype="int32"),
            layers.Embedding(12, 5),
            layers.Flatten(),
            layers.Dense(CLASSES, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.SGD(0.3, momentum=0.5), "sparse_categorical_crossentropy")
    return model, model.fit(words, y, batch_size=BATCH, epochs=3, verbose=0).history


def lstm(dtype):
    random = np.random.default_rng(7)
    x = random.normal(size=(ROWS, 5, 3)).astype(dtype)
    y = x[:, -1, :1]
    model = keras.Sequential([keras.Input((5, 3)), layers.LSTM(6), layers.Dense(1)])
    r2 = [keras.metrics.R2Score()] if keras.__version__ >= "3" else []  # that of Keras 2.13 takes no such rows
    model.compile("adam", "mse", metrics=["mae", *r2])
    return model, model.fit(x, y, batch_size=BATCH, epochs=2, validation_split=0.25, verbose=0).history


class OwnStep(keras.Model):
    """Its train_step has a loss of its own, for each row or for the batch, and averages it.

    loss_of: of the targets and the outputs; parts: its layers, one after the other.
    """

    def __init__(self, loss_of, *parts):
        super().__init__()
        self.loss_of, self.parts = loss_of, list(parts)
        self.mean = keras.metrics.Mean(name="loss")

    def call(self, x):
        for part in self.parts:
            x = part(x)
        return x

    @property
    def metrics(self):
        return [self.mean]

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            losses = self.loss_of(y, self(x, training=True))
            loss = tf.reduce_mean(losses) if losses.shape.rank else losses + sum(self.losses)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        self.mean.update_state(losses if losses.shape.rank else loss)
        return {"loss": self.mean.result()}


def own_step(dtype):
    def entropies(y, outputs):
        return tf.keras.losses.sparse_categorical_crossentropy(y, outputs, from_logits=True)

    x, y = table(dtype)
    model = OwnStep(entropies, layers.Dense(10, activation="tanh"), layers.Dense(CLASSES))
    model.compile(keras.optimizers.SGD(0.2))
    return model, model.fit(x, y, batch_size=BATCH, epochs=3, verbose=0).history


def pipeline(dtype):
    x, y = table(dtype)
    data = (
        tf.data.Dataset.from_tensor_slices((x, y)).shuffle(ROWS).map(lambda a, b: (a * 0.5, b)).batch(BATCH).prefetch(2)
    )
    return fit_batches(data, {"epochs": 3, "validation_data": data.take(2)}, metrics=["accuracy"])


def rich_metrics(dtype):
    x, y = table(dtype)
    y = np.eye(CLASSES)[y].astype(dtype)
    model = network()
    metrics = [keras.metrics.AUC(), "categorical_accuracy"]
    if dtype == "float32" or keras.__version__ >= "3":  # Keras 2 has no F1 score for float64
        metrics.append(keras.metrics.F1Score())
    if dtype == "float32":  # TensorFlow has no top-k for float64
        metrics.append(keras.metrics.TopKCategoricalAccuracy(2))
    model.compile("sgd", "categorical_crossentropy", metrics=metrics)
    history = model.fit(x, y, batch_size=BATCH, epochs=2, validation_split=0.3, verbose=0).history
    return model, {name: [float(np.mean(v)) for v in values] for name, values in history.items()}


def two_fits(dtype):
    model = network("relu")
    model.layers[0].trainable = False
    fit_classifier("sgd", dtype, epochs=2, model=model)
    model.layers[0].trainable = True
    return fit_classifier(keras.optimizers.SGD(0.05, momentum=0.9), dtype, epochs=2, model=model)


def summed_loss(dtype):
    loss = keras.losses.SparseCategoricalCrossentropy(reduction="sum")
    sgd = keras.optimizers.SGD(0.004)
    return fit_network(dtype, sgd, loss, fit={"validation_split": 0.2}, metrics=["accuracy"])


def sequence(dtype):
    x, y = table(dtype)

    class Batches(keras.utils.Sequence):
        def __len__(self):
            return -(-ROWS // BATCH)

        def __getitem__(self, index):
            rows = slice(index * BATCH, (index + 1) * BATCH)
            return x[rows], y[rows]

    return fit_batches(Batches(), {"epochs": 2}, metrics=["accuracy"])


def regularised(dtype):
    hidden = layers.Dense(16, activation="tanh", kernel_regularizer="l2")
    model = keras.Sequential([keras.Input((FEATURES,)), hidden, layers.Dense(CLASSES, activation="softmax")])
    return fit_classifier("sgd", dtype, model=model, epochs=2, steps_per_epoch=None, shuffle=True)


def multi_step_execution(dtype):
    return fit_network(dtype, rows=200, fit={"batch_size": 20}, steps_per_execution=5)


def compiled(dtype):
    sgd = keras.optimizers.SGD(0.1, momentum=0.9, clipnorm=0.5)
    fit = {"validation_split": 0.2}
    return fit_network(dtype, sgd, epochs=3, fit=fit, metrics=["accuracy"], jit_compile=True)


def compiled_many_steps(dtype):
    sgd = keras.optimizers.SGD(0.1)
    return fit_network(dtype, sgd, metrics=["accuracy", ENTROPY], jit_compile=True, steps_per_execution=4)


def four_steps_and_a_remainder(dtype):
    fit = {"validation_split": 0.1}
    return fit_network(dtype, "adam", epochs=3, fit=fit, metrics=["accuracy"], steps_per_execution=4)


def learned(model, history, name, ddl):
    """{"history", "weights" (flat list)}; with `ddl`, every rank also logs a digest of its weights by this name."""
    arrays = [array.ravel() for array in model.get_weights() if array.dtype != object]  # no vocabularies of Keras 2
    flat = np.concatenate(arrays)
    if ddl is not None:
        ddl.log(**{name: int(hashlib.sha256(flat.tobytes()).hexdigest()[:12], 16)})
    history = {key: [float(value) for value in values] for key, values in history.items()}
    return {"history": history, "weights": flat.tolist()}


def run_cases(names, dtype, ddl=None, label=""):
    """{case: what is learned}. label: begins the digests' names, where cases are run more than once."""
    keras.backend.set_floatx(dtype)
    results = {}
    for name in names:
        keras.backend.clear_session()  # Keras numbers names, also those of metrics
        keras.utils.set_random_seed(11)
        results[name] = learned(*globals()[name](dtype), label + name, ddl)
    keras.backend.set_floatx("float32")
    return results
