"""Training code whose optimizers have states of all kinds; follows the text of cases.py in the same cell."""

import keras
import numpy as np
from cases import FEATURES, fit_classifier, fit_network, layers, network

OPTIMIZERS = {
    "SGD": {"learning_rate": 0.1, "momentum": 0.9, "nesterov": True, "clipvalue": 0.05},
    "RMSprop": {"learning_rate": 0.01, "momentum": 0.5, "centered": True},
    "Adam": {"learning_rate": 0.01, "amsgrad": True},
    "AdamW": {"learning_rate": 0.01, "weight_decay": 0.1},
    "Adadelta": {"learning_rate": 0.5},
    "Adagrad": {"learning_rate": 0.1},
    "Adamax": {"learning_rate": 0.01},
    "Nadam": {"learning_rate": 0.01},
    "Ftrl": {"learning_rate": 0.1, "l1_regularization_strength": 0.001},
    "Lion": {"learning_rate": 0.001},
    "Lamb": {"learning_rate": 0.01},
    "Muon": {"learning_rate": 0.01},
    "Adafactor": {"learning_rate": 0.01},
}


class Together:
    """Models in place of one, whose weights are compared."""

    def __init__(self, models):
        self._models = models

    def get_weights(self):
        return [array for model in self._models for array in model.get_weights()]


def every_optimizer(dtype):
    models, histories = [], {}
    for name, settings in OPTIMIZERS.items():
        # Keras 2's Nadam counts the updates of variables in Python, when a step is traced.
        if hasattr(keras.optimizers, name) and (name != "Nadam" or keras.__version__ >= "3"):
            optimizer = getattr(keras.optimizers, name)(**settings)
            model, history = fit_network(dtype, optimizer)
            models.append(model)
            histories[name] = history["loss"]
    return Together(models), histories


def numbers(optimizer):
    """Of each variable, whose order and shape count, too."""
    variables = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
    arrays = [np.asarray(variable.numpy(), "float64").ravel() for variable in variables]
    return [float(array @ np.linspace(1, 2, array.size)) for array in arrays]


def states_saved(dtype):
    """By a callback in the fit, by the cell after it, and asked for."""
    keep = keras.callbacks.ModelCheckpoint("kept-{epoch}.keras")
    model, history = fit_classifier(keras.optimizers.Adam(0.01), dtype, callbacks=[keep])
    model.save("saved.keras")
    history["asked for"] = numbers(model.optimizer)
    for name in ("kept-2", "saved"):
        history[name] = numbers(keras.models.load_model(name + ".keras").optimizer)
    again = model.fit(np.ones((30, FEATURES), dtype), np.zeros(30, int), verbose=0)
    history["again"] = again.history["loss"]
    model.train_on_batch(np.ones((30, FEATURES), dtype), np.ones(30, int))
    model.save("later.keras")
    history["later"] = numbers(keras.models.load_model("later.keras").optimizer)
    return model, history


def constrained(dtype):
    model = keras.Sequential(
        [
            keras.Input((FEATURES,)),
            layers.Dense(16, "tanh", kernel_constraint=keras.constraints.MaxNorm(0.5)),
            layers.Dense(4, "softmax", bias_constraint=keras.constraints.NonNeg()),
        ]
    )
    return fit_classifier(keras.optimizers.Adam(0.05), dtype, model=model)


def biases_without_decay(dtype):
    optimizer = keras.optimizers.AdamW(0.01, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    return fit_network(dtype, optimizer)


def averages_at_the_end(dtype):
    return fit_classifier(keras.optimizers.Adam(0.01, use_ema=True, ema_momentum=0.9), dtype)


def without_an_input(dtype):
    model = keras.Sequential([layers.Dense(16, "tanh"), layers.Dense(4, "softmax")])
    return fit_classifier(keras.optimizers.Adam(0.01, global_clipnorm=0.05), dtype, model=model)


def frozen_and_unused(dtype):
    """A layer that is not trained, and a weight that has no gradient."""
    inputs = keras.Input((FEATURES,))
    hidden = layers.Dense(16, "tanh", trainable=False)(inputs)
    model = keras.Model(inputs, layers.Dense(4, "softmax")(layers.Dense(8, "tanh")(hidden)))
    unused = layers.Dense(3)
    unused.build((None, 5))
    model.unused = unused
    return fit_classifier(keras.optimizers.RMSprop(0.01, momentum=0.9), dtype, model=model)


def best_restored(dtype):
    of_cell = [
        keras.callbacks.EarlyStopping("val_loss", patience=1, restore_best_weights=True, start_from_epoch=1),
        keras.callbacks.ReduceLROnPlateau("loss", patience=1),
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9),
    ]
    return fit_classifier(keras.optimizers.Adam(0.3), dtype, epochs=8, model=network(), callbacks=of_cell)
