"""Loops that a cell writes itself, instead of `fit`; follows the text of cases.py in the same cell."""

import inspect

import keras
import numpy as np
import tensorflow as tf
from cases import BATCH, CLASSES, FEATURES, ROWS, layers, network, table  # cell: dropped


def single_batches(dtype):
    """Weights of classes and of rows, logs as lists and as dicts, a last batch of 2 rows."""
    x, y = table(dtype)
    weights = np.linspace(0.1, 2.0, ROWS).astype(dtype)
    model = network()
    model.compile(
        keras.optimizers.SGD(0.1, momentum=0.9),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
        weighted_metrics=[keras.metrics.SparseCategoricalCrossentropy(name="entropy")],
    )
    history = {"listed": [], "loss": [], "entropy": [], "tested": [], "predicted": []}
    for epoch in range(3):
        for at in range(0, ROWS, BATCH):
            batch = slice(at, at + BATCH)
            if epoch == 0:
                history["listed"] += model.train_on_batch(x[batch], y[batch])
            elif epoch == 1:
                logs = model.train_on_batch(x[batch], y[batch], sample_weight=weights[batch], return_dict=True)
                history["loss"].append(logs["loss"])
                history["entropy"].append(logs["entropy"])
            else:
                history["listed"] += model.train_on_batch(x[batch], y[batch], class_weight={0: 1, 1: 3, 2: 0.5, 3: 1})
        history["tested"] += model.test_on_batch(x[:51], y[:51], sample_weight=weights[:51])
        history["predicted"].append(model.predict_on_batch(x[:3]).sum())
    return model, history


def single_batches_and_fits(dtype):
    """In turns, with the same functions, also eagerly; a model that is built by its first batch."""
    x, y = table(dtype)
    model = keras.Sequential([layers.Dense(9, activation="tanh"), layers.Dense(CLASSES, activation="softmax")])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    history = {"single": [], "loss": [], "accuracy": []}
    for _ in range(2):
        for at in range(0, 90, 30):
            history["single"] += model.train_on_batch(x[at : at + 30], y[at : at + 30])
        fitted = model.fit(x, y, batch_size=BATCH, epochs=1, validation_data=(x[:50], y[:50]), verbose=0).history
        history["loss"] += fitted["loss"] + fitted["val_loss"]
        history["accuracy"] += fitted["accuracy"] + model.evaluate(x, y, verbose=0)[1:]
        model.run_eagerly = True
        history["single"] += model.train_on_batch(x[:7], y[:7]) + model.test_on_batch(x[:3], y[:3])
        model.run_eagerly = False
    return model, history


def adversaries_in_single_batches(dtype):
    """Two compiled models, of which one contains the other."""
    judge = keras.Sequential([keras.Input((FEATURES,)), layers.Dense(8, activation="tanh"), layers.Dense(1)])
    judge.compile(keras.optimizers.SGD(0.1), keras.losses.BinaryCrossentropy(from_logits=True), metrics=["mae"])
    maker = keras.Sequential([keras.Input((4,)), layers.Dense(FEATURES)])
    judge.trainable = False
    both = keras.Sequential([keras.Input((4,)), maker, judge])
    both.compile(keras.optimizers.Adam(0.01), keras.losses.BinaryCrossentropy(from_logits=True))
    x, _ = table(dtype)
    history = {"judge": [], "both": []}
    for at in range(0, ROWS, BATCH):
        real = x[at : at + BATCH]
        noise = np.random.normal(size=(len(real), 4)).astype(dtype)
        rows = np.concatenate([real, maker.predict(noise, verbose=0)])
        judge.trainable = True
        history["judge"] += judge.train_on_batch(rows, np.repeat([1.0, 0.0], len(real))[:, None].astype(dtype))
        judge.trainable = False
        history["both"].append(both.train_on_batch(noise, np.ones((len(real), 1), dtype)))
    return both, history


def own_step_in_single_batches(dtype):
    """Its logs are no metrics; metrics that go on from batch to batch, where Keras has that."""

    class Own(keras.Model):
        def train_step(self, data):
            return {"doubled": 2 * super().train_step(data)["loss"]}

    x, y = table(dtype)
    inputs = keras.Input((FEATURES,))
    model = Own(inputs, layers.Dense(CLASSES, activation="softmax")(inputs))
    model.compile("sgd", "sparse_categorical_crossentropy")
    history = {"doubled": [model.train_on_batch(x[at : at + 30], y[at : at + 30]) for at in range(0, 120, 30)]}
    plain = network()
    plain.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    keeps = {"reset_metrics": False} if "reset_metrics" in inspect.signature(plain.train_on_batch).parameters else {}
    history["kept"] = [plain.train_on_batch(x[at : at + 30], y[at : at + 30], **keeps)[1] for at in range(0, 200, 30)]
    return model, history


def distributed(data, **options):
    """What a loop on several workers iterates over; `data` in one process."""
    return globals()["ddl"].distribute(data, **options) if "ddl" in globals() else data


def result(metric):
    return globals()["ddl"].result(metric) if "ddl" in globals() else metric.result()


def tape_loop(dtype, step_kind=lambda step: step, optimizer=None, model=None, **options):
    """An epoch ends with a batch of 2 rows."""
    x, y = table(dtype)
    model, optimizer = network() if model is None else model, optimizer or keras.optimizers.Adam(0.01)
    summed = options.get("reduction") == "sum"
    each = keras.losses.SparseCategoricalCrossentropy(reduction="none")
    entropy = keras.metrics.SparseCategoricalCrossentropy(dtype=dtype)
    accuracy = keras.metrics.SparseCategoricalAccuracy(dtype=dtype)

    @step_kind
    def train(rows, labels):
        with tf.GradientTape() as tape:
            predicted = model(rows, training=True)
            losses = each(labels, predicted)
            loss = tf.reduce_sum(losses) if summed else tf.reduce_mean(losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        if hasattr(optimizer, "apply") and not summed:  # Keras 3
            optimizer.apply(gradients, model.trainable_variables)
        else:
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return predicted

    history = {"entropy": [], "accuracy": []}
    data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(ROWS).batch(BATCH)
    batches = distributed(data, **options)
    for _ in range(3):
        seen = []
        for rows, labels in batches:
            seen.append((rows, labels, train(rows, labels)))
        for metric, name in ((entropy, "entropy"), (accuracy, "accuracy")):
            metric.reset_state()
            for _, labels, predicted in seen[:-1]:  # the last batch has fewer rows than some jobs have workers
                metric.update_state(labels, predicted)
            history[name].append(float(result(metric)))
    assert len(batches) == 6
    return model, history


def tape_in_a_function(dtype):
    return tape_loop(dtype, tf.function)


def tape_builds_the_model(dtype):
    """Its first call, within a tf.function that is traced, makes the variables."""
    unbuilt = keras.Sequential([layers.Dense(10, activation="tanh"), layers.Dense(CLASSES, activation="softmax")])
    return tape_loop(dtype, tf.function, model=unbuilt)


def tape_eagerly(dtype):
    return tape_loop(dtype, optimizer=keras.optimizers.SGD(0.1, momentum=0.9))


def tape_of_a_sum(dtype):
    return tape_loop(dtype, tf.function, keras.optimizers.SGD(0.005), reduction="sum")


def tape_of_a_masked_loss(dtype):
    """And one that Keras sums up, of sparse gradients too, from a generator of arrays."""
    random = np.random.default_rng(9)
    words = random.integers(1, 9, (ROWS, 6))
    words[np.arange(6) >= random.integers(0, 7, (ROWS, 1))] = 0
    models = []
    for reduction, rate in (("sum_over_batch_size", 0.5), ("sum", 0.002)):
        model = keras.Sequential([keras.Input((6,), dtype="int32"), layers.Embedding(9, 4, mask_zero=True)])
        model.add(layers.Dense(9, activation="softmax"))
        optimizer = keras.optimizers.SGD(rate)
        loss_of = keras.losses.SparseCategoricalCrossentropy(reduction=reduction)
        for _ in range(2):
            batches = (words[at : at + BATCH] for at in range(0, ROWS, BATCH))
            for batch in distributed(batches, reduction="sum" if reduction == "sum" else "mean"):
                with tf.GradientTape() as tape:
                    loss = loss_of(batch, model(batch, training=True))
                gradients = tape.gradient(loss, model.trainable_variables)
                optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        models.append(model)
    return models[0], {"summed": [np.abs(w).sum() for w in models[1].get_weights()]}


def tapes_of_compiled_sums(dtype):
    """Losses of `compile` that are sums over rows, by `compute_loss`: a function, and Keras' own."""
    x, y = table(dtype)

    def squares(labels, predicted):
        wanted = tf.one_hot(tf.cast(tf.reshape(labels, [-1]), "int32"), CLASSES, dtype=predicted.dtype)
        return tf.reduce_sum(tf.square(wanted - predicted))

    models = []
    entropy = keras.losses.SparseCategoricalCrossentropy(reduction="sum")
    for loss_of, options in ((squares, {}), (entropy, {"reduction": "sum"})):
        model = network()
        model.compile(keras.optimizers.SGD(0.005), loss_of)
        for rows, labels in distributed(tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH), **options):
            with tf.GradientTape() as tape:
                loss = model.compute_loss(y=labels, y_pred=model(rows, training=True))
            gradients = tape.gradient(loss, model.trainable_variables)
            model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        models.append(model)
    return models[0], {"summed": [np.abs(w).sum() for w in models[1].get_weights()]}


def tapes_of_adversaries(dtype):
    """Two optimizers, two updates for each batch of a structure; batches that a cell picks itself."""
    judge = keras.Sequential([keras.Input((FEATURES,)), layers.Dense(8, activation="tanh"), layers.Dense(1)])
    maker = keras.Sequential([keras.Input((4,)), layers.Dense(FEATURES)])
    of_judge, of_maker = keras.optimizers.SGD(0.1), keras.optimizers.Adam(0.01)
    x, _ = table(dtype)

    @tf.function
    def step(real, noise):
        with tf.GradientTape() as tape:
            judged_real, judged_made = judge(real, training=True), judge(maker(noise), training=True)
            loss = tf.reduce_mean(tf.nn.softplus(judged_made) + tf.nn.softplus(-judged_real))
        weights = judge.trainable_variables
        of_judge.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        with tf.GradientTape() as tape:
            fooled = tf.reduce_mean(tf.nn.softplus(-judge(maker(noise), training=True)))
        weights = maker.trainable_variables
        of_maker.apply_gradients(zip(tape.gradient(fooled, weights), weights, strict=True))

    random = np.random.default_rng(7)
    for _ in range(8):
        picked = x[random.integers(0, ROWS, 37)]
        given = distributed({"real": picked, "noise": random.normal(size=(37, 4)).astype(dtype)})
        step(given["real"], given["noise"])
    return maker, {"judge": [np.abs(w).sum() for w in judge.get_weights()]}


def tape_and_fit(dtype):
    """A loop without `ddl.distribute` between fits: every worker computes all of it."""
    x, y = table(dtype)
    model, optimizer = network(), keras.optimizers.SGD(0.1)
    model.compile("sgd", "sparse_categorical_crossentropy")
    history = {"loss": []}
    for _ in range(2):
        history["loss"] += model.fit(x, y, batch_size=BATCH, verbose=0).history["loss"]
        for at in range(0, 80, 20):
            with tf.GradientTape() as tape:
                entropy = keras.losses.sparse_categorical_crossentropy(y[at : at + 20], model(x[at : at + 20]))
                loss = tf.reduce_mean(entropy)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return model, history
