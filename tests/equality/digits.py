"""A user's cell on scikit-learn's digits, for runs against a parameter server: held-out accuracy, seed by seed."""

import keras
import numpy as np
from keras import layers
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


def digits():
    images, labels = load_digits(return_X_y=True)
    return train_test_split(images.astype("float32") / 16.0, labels, test_size=0.25, random_state=0, stratify=labels)


def accuracy(seed, epochs=25, optimizer=None):
    train, test, train_labels, test_labels = digits()
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [keras.Input((64,)), layers.Dense(64, activation="relu"), layers.BatchNormalization(), layers.Dense(10)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer or keras.optimizers.Adam(0.003), loss, metrics=["accuracy"])
    model.fit(train, train_labels, batch_size=32, epochs=epochs, verbose=0)
    return float((np.argmax(model.predict(test, verbose=0), 1) == test_labels).mean())


def run_cases(seeds, dtype, ddl=None):
    return {seed: accuracy(int(seed)) for seed in seeds}
