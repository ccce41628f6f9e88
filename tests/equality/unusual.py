"""More training code as users write it; follows the text of cases.py in the same cell."""

import os

import keras
import numpy as np
import tensorflow as tf
from cases import BATCH, CLASSES, FEATURES, ROWS, fit_batches, fit_classifier, fit_column, fit_network, layers, table


def generator(dtype):
    x, y = table(dtype)

    def batches():
        while True:
            for begin in range(0, ROWS, BATCH):
                yield x[begin : begin + BATCH], y[begin : begin + BATCH]

    return fit_batches(batches(), {"steps_per_epoch": 4, "epochs": 3}, metrics=["accuracy"])


def endless_pipeline(dtype):
    x, y = table(dtype)
    data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(50, seed=3).repeat().batch(BATCH)
    return fit_batches(data, {"steps_per_epoch": 7, "epochs": 3, "validation_data": (x, y), "validation_freq": 2})


def weighted_pipeline(dtype):
    x, y = table(dtype)
    weights = np.linspace(0.1, 2.0, ROWS).astype(dtype)
    data = tf.data.Dataset.from_tensor_slices((x, y, weights)).batch(BATCH)
    return fit_batches(data, {"epochs": 2}, weighted_metrics=["accuracy"])


def eager(dtype):
    return fit_network(dtype, rows=90, metrics=["accuracy"], run_eagerly=True)


def added_loss(dtype):
    class Penalty(layers.Layer):
        def call(self, inputs):
            self.add_loss(0.01 * tf.reduce_mean(tf.square(inputs)))
            return inputs

    inputs = keras.Input((FEATURES,))
    hidden = Penalty()(layers.Dense(10, activation="tanh")(inputs))
    model = keras.Model(inputs, layers.Dense(CLASSES, activation="softmax")(hidden))
    return fit_classifier("sgd", dtype, model=model, epochs=2)


def own_loss(dtype):
    def smooth(y_true, y_pred):
        return tf.reduce_mean(tf.math.log(tf.cosh(y_pred - tf.cast(y_true, y_pred.dtype))), axis=-1)

    x, _ = table(dtype)
    model = keras.Sequential([keras.Input((FEATURES,)), layers.Dense(6, activation="relu"), layers.Dense(2)])
    model.compile(keras.optimizers.Nadam(0.01), smooth, metrics=["mae", keras.metrics.RootMeanSquaredError()])
    return model, model.fit(x, x[:, :2], batch_size=BATCH, epochs=2, verbose=0).history


def one_pipeline_twice(dtype):
    """Each iteration of a dataset that shuffles has a new order, also in the next fit."""
    data = tf.data.Dataset.from_tensor_slices(table(dtype)).shuffle(ROWS, seed=5).batch(BATCH)
    inputs = keras.Input((FEATURES,))
    hidden = layers.Dense(10, activation="tanh")(inputs)
    model = keras.Model(inputs, layers.Dense(CLASSES, activation="softmax")(hidden))
    model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy")
    first, second = (model.fit(data, epochs=epochs, verbose=0).history["loss"] for epochs in (2, 6))
    return model, {"first": first, "second": second}


def list_of_outputs(dtype):
    x, y = table(dtype)
    inputs = keras.Input((FEATURES,))
    hidden = layers.Dense(10, activation="tanh")(inputs)
    model = keras.Model(inputs, [layers.Dense(CLASSES, activation="softmax")(hidden), layers.Dense(1)(hidden)])
    model.compile("adam", ["sparse_categorical_crossentropy", "mae"], loss_weights=[1.0, 0.3])
    return model, model.fit(x, [y, x[:, 0]], batch_size=BATCH, epochs=3, validation_split=0.1, verbose=0).history


def slices(data):
    """Each worker's slices of the batches of `data`, which it cuts itself; in one process a batch is whole."""
    if "ddl" not in globals():
        return data
    ddl = globals()["ddl"]

    def cut(*parts):
        rows = tf.shape(parts[0])[0]
        return tf.nest.map_structure(
            lambda part: part[rows * ddl.rank // ddl.size : rows * (ddl.rank + 1) // ddl.size], parts
        )

    return ddl.local(data.map(cut))


def outputs_of_own_slices(dtype):
    """The loss of each output is a mean over rows, also where a last batch does not share out evenly."""
    x, y = table(dtype, 4 * BATCH - 1)
    inputs = keras.Input((FEATURES,))
    hidden = layers.Dense(10, activation="tanh")(inputs)
    outputs = {
        "a": layers.Dense(CLASSES, activation="softmax", name="a")(hidden),
        "b": layers.Dense(1, name="b")(hidden),
    }
    model = keras.Model(inputs, outputs)
    model.compile("adam", {"a": "sparse_categorical_crossentropy", "b": "mae"}, loss_weights={"a": 1.0, "b": 0.3})
    data = slices(tf.data.Dataset.from_tensor_slices((x, {"a": y, "b": x[:, 0]})).batch(BATCH))
    return model, model.fit(data, epochs=2, verbose=0).history


def outputs_eagerly(dtype):
    """Keras knows the rows of a batch, and weighs the losses of outputs by them."""
    x, y = table(dtype, 3 * BATCH + 5)
    inputs = keras.Input((FEATURES,))
    hidden = layers.Dense(10, activation="tanh")(inputs)
    model = keras.Model(inputs, [layers.Dense(CLASSES, activation="softmax")(hidden), layers.Dense(1)(hidden)])
    model.compile("adam", ["sparse_categorical_crossentropy", "mae"], run_eagerly=True)
    return model, model.fit(x, [y, x[:, 0]], batch_size=BATCH, epochs=2, verbose=0).history


def precise_metrics(dtype):
    x, y = table(dtype)
    y = (y == 1).astype(dtype)
    model = keras.Sequential([keras.Input((FEATURES,)), layers.Dense(1, activation="sigmoid")])
    metrics = [keras.metrics.Precision(), keras.metrics.Recall(), keras.metrics.BinaryIoU(), "binary_accuracy"]
    model.compile(keras.optimizers.RMSprop(0.01), "binary_crossentropy", metrics=metrics)
    return model, model.fit(x, y, batch_size=BATCH, epochs=3, validation_split=0.2, verbose=0).history


def callbacks_of_all_kinds(dtype):
    log = []
    calls = [
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.7),
        keras.callbacks.CSVLogger("log.csv"),
        keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: log.append(logs["loss"])),
        keras.callbacks.EarlyStopping(patience=1, restore_best_weights=True, monitor="val_loss"),
        keras.callbacks.ModelCheckpoint("at-{epoch}.keras"),
        keras.callbacks.TerminateOnNaN(),
    ]
    _, history = fit_classifier(keras.optimizers.SGD(2.0), dtype, epochs=8, callbacks=calls)
    assert log == history["loss"] and os.path.exists("at-1.keras") and os.path.exists("log.csv")
    best = keras.models.load_model("at-1.keras")
    best.fit(*table(dtype), batch_size=BATCH, epochs=1, verbose=0)
    return best, history


def callbacks_of_batches(dtype):
    """They see the logs of all rows, of Keras' step and of one that returns its own, and decide by them."""

    class Own(keras.Model):
        def train_step(self, data):
            super().train_step(data)
            loss = tf.reduce_mean((self(data[0]) - tf.one_hot(data[1], CLASSES, dtype=data[0].dtype)) ** 2)
            return {"loss": loss, "twice": 2 * loss}

        def test_step(self, data):
            return {"accuracy": super().test_step(data)["accuracy"]}

    class Slower(keras.callbacks.Callback):
        seen: list = []  # noqa: RUF012

        def on_train_batch_end(self, batch, logs=None):
            self.seen.append(logs["loss"])
            self.model.optimizer.learning_rate = 0.1 * min(1.0, logs["loss"])
            self.model.stop_training = len(self.seen) == 16  # ends with a fit in which each batch counts

    histories = []
    for kind in (keras.Model, Own):
        x, y = table(dtype)
        held = table(dtype, BATCH + 11, seed=4)
        inputs = keras.Input((FEATURES,))
        model = kind(inputs, layers.Dense(CLASSES, activation="softmax")(inputs))
        model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy", metrics=["accuracy"])
        fit = {"batch_size": BATCH, "epochs": 2, "verbose": 0, "validation_data": held}  # 6 batches an epoch
        histories.append(model.fit(x, y, callbacks=[Slower()], **fit).history)
    keras_own, own = histories
    return model, {**keras_own, **{f"own {key}": value for key, value in own.items()}, "seen": Slower.seen}


def own_optimizers(dtype):
    """They change the gradients of the whole batch before Keras' optimizer has them, in `fit` and in single batches."""

    class Normalized(keras.optimizers.SGD):
        def apply_gradients(self, grads_and_vars, **kwargs):
            pairs = [(gradient / tf.norm(gradient), variable) for gradient, variable in grads_and_vars]
            return super().apply_gradients(pairs, **kwargs)

    class Signs(keras.optimizers.SGD):
        def apply(self, grads, trainable_variables=None):
            return super().apply([tf.sign(gradient) for gradient in grads], trainable_variables)

    histories = {}
    for kind in (Normalized, Signs):
        model, history = fit_classifier(kind(0.01, momentum=0.9), dtype, epochs=2)
        histories[kind.__name__] = history["loss"]
    x, y = table(dtype)
    model.train_on_batch(x[:50], y[:50])
    return model, histories


def adversaries(dtype):
    maker = keras.Sequential([keras.Input((4,)), layers.Dense(FEATURES)])
    judge = keras.Sequential([keras.Input((FEATURES,)), layers.Dense(8, activation="tanh"), layers.Dense(1)])
    return fit_adversaries(dtype, maker, judge, keras.optimizers.Adam(0.01))


def fit_adversaries(dtype, maker, judge, maker_optimizer):
    class Adversaries(keras.Model):
        def __init__(self):
            super().__init__()
            self.maker, self.judge = maker, judge
            self.maker_optimizer, self.judge_optimizer = maker_optimizer, keras.optimizers.SGD(0.1)

        def train_step(self, real):
            noise = real[:, :4] * 0.5
            with tf.GradientTape() as tape:
                made = self.maker(noise, training=True)
                judged_real, judged_made = self.judge(real, training=True), self.judge(made, training=True)
                loss = tf.reduce_mean(tf.nn.softplus(judged_made) + tf.nn.softplus(-judged_real))
            weights = self.judge.trainable_variables
            self.judge_optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
            with tf.GradientTape() as tape:
                judged = self.judge(self.maker(noise, training=True), training=True)
                fooled = tf.reduce_mean(tf.nn.softplus(-judged))
            weights = self.maker.trainable_variables
            self.maker_optimizer.apply_gradients(zip(tape.gradient(fooled, weights), weights, strict=True))
            return {"judge": loss, "maker": fooled}

    model = Adversaries()
    model.compile()
    x, _ = table(dtype)
    return model, model.fit(x, batch_size=BATCH, epochs=2, verbose=0).history


def convolutions(dtype):
    random = np.random.default_rng(8)
    x = random.normal(size=(90, 8, 8, 1)).astype(dtype)
    y = random.integers(0, CLASSES, 90)
    model = keras.Sequential(
        [keras.Input((8, 8, 1)), layers.Conv2D(4, 3, activation="relu"), layers.MaxPooling2D(), layers.Flatten()]
        + [layers.LayerNormalization(), layers.Dense(CLASSES)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Lion(0.001), loss, metrics=["accuracy"])
    return model, model.fit(x, y, batch_size=BATCH, epochs=2, validation_split=0.1, verbose=0).history


def masked_sequences(dtype):
    random = np.random.default_rng(9)
    words = random.integers(0, 9, (ROWS, 6))
    model = keras.Sequential([layers.Embedding(9, 4, mask_zero=True), layers.GRU(5), layers.Dense(1)])
    model.compile(keras.optimizers.Adagrad(0.05), "mse")
    return model, model.fit(words, words.sum(1).astype(dtype) / 20, batch_size=BATCH, epochs=2, verbose=0).history


def tagger(dtype, *hidden, **compiled):
    """A word for each word: the loss is a mean over what is not padding, of which slices have different numbers."""
    random = np.random.default_rng(10)
    words = random.integers(1, 9, (ROWS, 6))
    words[np.arange(6) >= random.integers(0, 7, (ROWS, 1))] = 0
    words[3:20] = 0  # whole slices of nothing but padding
    model = keras.Sequential([layers.Embedding(9, 4, mask_zero=True), *hidden, layers.Dense(9, activation="softmax")])
    model.compile(keras.optimizers.SGD(0.5), "sparse_categorical_crossentropy", metrics=["accuracy"], **compiled)
    weights = random.uniform(size=(ROWS, 1)).astype(dtype)
    fit = {"batch_size": BATCH, "epochs": 2, "validation_split": 0.2, "sample_weight": weights, "verbose": 0}
    return model, model.fit(words, words[:, ::-1].copy(), **fit).history


def masked_losses(dtype):
    return tagger(dtype, layers.LSTM(5, return_sequences=True))


def masked_losses_compiled(dtype):
    return tagger(dtype, layers.Dense(5, activation="tanh"), jit_compile=True)


def masked_sequences_compiled(dtype):
    return tagger(dtype, layers.LSTM(5, return_sequences=True), jit_compile=True)


def by_its_own_step(loss_of, inputs, outputs, rate):
    """A model whose train_step has a loss of its own."""

    class Own(keras.Model):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = loss_of(y, self(x, training=True))
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            return {"loss": loss}

    model = Own(inputs, outputs)
    model.compile(keras.optimizers.SGD(rate))
    return model


def masked_in_its_own_step(dtype):
    words = np.random.default_rng(11).integers(0, 9, (ROWS, 6))
    inputs = keras.Input((6,), dtype="int32")
    outputs = layers.Dense(9, activation="softmax")(layers.Embedding(9, 4, mask_zero=True)(inputs))
    model = by_its_own_step(keras.losses.SparseCategoricalCrossentropy(), inputs, outputs, 0.5)
    return model, model.fit(words, words, batch_size=ROWS, epochs=2, verbose=0).history


def trained_twice(dtype):
    model, _ = fit_classifier("adam", dtype, epochs=2)
    x, y = table(dtype)
    history = model.fit(x, y, batch_size=13, epochs=4, initial_epoch=2, shuffle=False, verbose=0)
    score = model.evaluate(x, y, verbose=0)
    return model, {**history.history, "score": [float(value) for value in score]}


def built_by_its_data(dtype):
    model = keras.Sequential([layers.Dense(9, activation="tanh"), layers.Dense(CLASSES, activation="softmax")])
    metrics = ["accuracy", "sparse_categorical_crossentropy"]
    return fit_network(dtype, epochs=3, fit={"validation_split": 0.2}, model=model, metrics=metrics)


def own_reduction(dtype):
    each = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    inputs = keras.Input((FEATURES,))
    outputs = layers.Dense(CLASSES)(inputs)
    model = by_its_own_step(lambda y, predicted: tf.reduce_mean(each(y, predicted)), inputs, outputs, 0.2)
    x, y = table(dtype)
    return model, model.fit(x, y, batch_size=BATCH, epochs=3, verbose=0).history


def unreduced_loss(dtype):
    loss = keras.losses.SparseCategoricalCrossentropy(reduction="none")
    return fit_network(dtype, keras.optimizers.SGD(0.004), loss)[0], {}


def one_weight_eagerly(dtype):
    """A single gradient, which TensorFlow hands over in another way where a step runs eagerly."""
    sgd = keras.optimizers.SGD(0.1)
    return fit_column(dtype, layers.Dense(1, use_bias=False), optimizer=sgd, epochs=1, run_eagerly=True)
