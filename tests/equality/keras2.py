"""Training code that only Keras 2 has; follows the text of unusual.py in the same cell."""

import keras
import tensorflow as tf
from cases import BATCH, CLASSES, FEATURES, fit_classifier, fit_network, layers, table  # cell: dropped
from lengths import BUCKETS, fit_words, numbers_of_words, texts  # cell: dropped


def legacy_momentum(dtype):
    return fit_classifier(keras.optimizers.legacy.SGD(0.1, momentum=0.9, nesterov=True), dtype)


def legacy_adam_clipped(dtype):
    return fit_classifier(keras.optimizers.legacy.Adam(0.01, clipnorm=0.1), dtype)


def compiled_step(dtype):
    class Compiled(keras.Model):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                predicted = self(x, training=True)
                loss = self.compiled_loss(y, predicted, regularization_losses=self.losses)
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            self.compiled_metrics.update_state(y, predicted)
            return {metric.name: metric.result() for metric in self.metrics}

    inputs = keras.Input((FEATURES,))
    hidden = layers.Dense(10, activation="tanh", kernel_regularizer="l2")(inputs)
    return fit_classifier("sgd", dtype, model=Compiled(inputs, layers.Dense(CLASSES, activation="softmax")(hidden)))


def summed_outputs(dtype):
    x, y = table(dtype)
    inputs = keras.Input((FEATURES,))
    hidden = layers.Dense(10, activation="tanh")(inputs)
    kind, value = (
        layers.Dense(CLASSES, activation="softmax", name="kind")(hidden),
        layers.Dense(1, name="value")(hidden),
    )
    model = keras.Model(inputs, [kind, value])
    losses = [keras.losses.SparseCategoricalCrossentropy(reduction="sum"), keras.losses.MeanSquaredError("sum")]
    model.compile(keras.optimizers.SGD(0.003), losses, metrics=[["accuracy"], ["mae"]])
    history = model.fit(x, [y, x[:, 0]], batch_size=BATCH, epochs=3, validation_split=0.2, verbose=0)
    return model, history.history


def ragged_inputs(dtype):
    """Ragged tensors of Keras become dense, and so do those of a layer of Keras."""
    of_words, labels = texts()
    inputs = keras.Input((None,), dtype="int64", ragged=True)
    embedded = layers.Embedding(BUCKETS, 4)(inputs.to_tensor())
    outputs = layers.Dense(1, activation="sigmoid")(layers.GlobalAveragePooling1D()(embedded))
    return fit_words(keras.Model(inputs, outputs), numbers_of_words(of_words), labels)


def first_batch_smaller_than_the_workers(dtype):
    fit = {"batch_size": 1, "validation_data": table(dtype, 3)}
    return fit_network(dtype, rows=3, fit=fit, metrics=["accuracy"])
