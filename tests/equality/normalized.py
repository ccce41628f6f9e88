"""Models with BatchNormalization; follows the text of unusual.py in the same cell.

`synchronized_*` say so themselves, `normalized_*` need --sync-batchnorm to learn what one process learns.
"""

import keras
import numpy as np
from cases import BATCH, CLASSES, FEATURES, ROWS, fit_classifier, fit_network, layers  # cell: dropped
from unusual import fit_adversaries  # cell: dropped


def momentum(rate=0.1):
    return keras.optimizers.SGD(rate, momentum=0.9)


def normalized_layers(**normalization):
    return [
        layers.Dense(16),
        layers.BatchNormalization(momentum=0.8, **normalization),
        layers.Activation("tanh"),
        layers.Dense(CLASSES, activation="softmax"),
    ]


def synchronized(dtype):
    model = keras.Sequential([keras.Input((FEATURES,)), *normalized_layers(synchronized=True)])
    return fit_classifier(momentum(), dtype, model=model)


def synchronized_by_its_data(dtype):
    return fit_classifier(momentum(), dtype, model=keras.Sequential(normalized_layers(synchronized=True)))


def synchronized_compiled(dtype):
    model = keras.Sequential([keras.Input((FEATURES,)), *normalized_layers(synchronized=True)])
    fit = {"validation_split": 0.2}
    return fit_network(dtype, momentum(), fit=fit, model=model, metrics=["accuracy"], jit_compile=True)


def normalized(dtype):
    return fit_classifier(momentum(), dtype, model=keras.Sequential(normalized_layers()))


def normalized_images(dtype, **normalization):
    random = np.random.default_rng(8)
    x = (5 + random.normal(size=(90, 8, 8, 2))).astype(dtype)
    y = random.integers(0, CLASSES, 90)
    model = keras.Sequential(
        [
            keras.Input((8, 8, 2)),
            layers.BatchNormalization(**normalization),
            layers.Conv2D(4, 3),
            layers.BatchNormalization(axis=1, **normalization),
            layers.ReLU(),
            layers.Conv2D(6, 3, strides=2),
            layers.BatchNormalization(center=False, scale=False, **normalization),
            layers.GlobalAveragePooling2D(),
            layers.Dense(CLASSES),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(momentum(0.05), loss, metrics=["accuracy"])
    return model, model.fit(x, y, batch_size=BATCH, epochs=2, validation_split=0.1, verbose=0).history


def synchronized_images(dtype):
    return normalized_images(dtype, synchronized=True)


def normalized_branches(dtype):
    """Three branches of one width, whose layers could be taken for each other."""
    inputs = keras.Input((FEATURES,))
    shared = layers.BatchNormalization()
    branches = [
        shared(layers.Dense(6, activation="tanh")(inputs)),
        layers.BatchNormalization()(layers.Dense(6)(inputs)),
        shared(layers.BatchNormalization(scale=False)(layers.Dense(6)(inputs))),
    ]
    outputs = layers.Dense(CLASSES, activation="softmax")(layers.Concatenate()(branches))
    return fit_classifier(momentum(), dtype, model=keras.Model(inputs, outputs), steps_per_epoch=None)


def normalized_masked(dtype):
    random = np.random.default_rng(9)
    words = random.integers(0, 9, (ROWS, 6))
    words[5:80] = 0  # whole slices have nothing but masked values
    model = keras.Sequential(
        [layers.Embedding(9, 4, mask_zero=True), layers.BatchNormalization(), layers.GRU(5), layers.Dense(1)]
    )
    model.compile(momentum(), "mse")
    target = words.sum(1).astype(dtype) / 20
    return model, model.fit(words, target, batch_size=BATCH, epochs=2, shuffle=False, verbose=0).history


def normalized_sum(dtype):
    model = keras.Sequential(normalized_layers())
    loss = keras.losses.SparseCategoricalCrossentropy(reduction="sum")
    return fit_network(dtype, momentum(0.002), loss, model=model, metrics=["accuracy"], steps_per_execution=3)


def normalized_eager(dtype):
    return fit_network(dtype, momentum(), rows=90, model=keras.Sequential(normalized_layers()), run_eagerly=True)


def normalized_adversaries(dtype):
    """Both are called several times in a step, and one's gradients pass through the other's statistics."""
    maker, judge = (
        keras.Sequential([keras.Input((given,)), layers.Dense(6), layers.BatchNormalization(), layers.Dense(made)])
        for given, made in ((4, FEATURES), (FEATURES, 1))
    )
    return fit_adversaries(dtype, maker, judge, keras.optimizers.SGD(0.1))
