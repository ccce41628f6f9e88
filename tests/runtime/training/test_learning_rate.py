"""A factor on the learning rate: in force in the steps of both generations of Keras, and seen by nobody else."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.paths import KERAS2_PYTHON, ROOT

PYTHONS = {"3": Path(sys.executable), "2": KERAS2_PYTHON}

STEPS = """
import keras, numpy as np
from runtime.training import learning_rate, optimizers

KERAS2 = keras.__version__.startswith("2.")

def moved(make, factor, compiled):
    optimizer = make()
    model = keras.Sequential([keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
    model.compile(optimizer, "mse", run_eagerly=not compiled, jit_compile=False)
    model.build((None, 2))
    optimizer = model.optimizer
    learning_rate.scale(optimizer, factor)
    seen = optimizers.learning_rate(optimizer)
    model.fit(np.ones((4, 2)), np.zeros((4, 1)), batch_size=2, epochs=1, shuffle=False, verbose=0)
    assert factor == 1 or optimizers.learning_rate(optimizer) == seen
    return model.get_weights()[0]

def check(make, twice):
    for compiled in (True, False):
        np.testing.assert_allclose(moved(make, 2.0, compiled), moved(twice, 1.0, compiled), rtol=1e-5)

given = keras.optimizers
makers = [
    lambda rate: given.SGD(rate, momentum=0.9, nesterov=True),
    lambda rate: given.AdamW(rate, weight_decay=0.1),
    lambda rate: given.RMSprop(given.schedules.PolynomialDecay(rate, 4, rate)),
]
if KERAS2:
    makers += [lambda rate: given.legacy.SGD(rate, momentum=0.9), lambda rate: given.legacy.Adam(rate)]
    makers += [lambda rate: keras.mixed_precision.LossScaleOptimizer(given.SGD(rate))]
else:
    makers += [lambda rate: given.LossScaleOptimizer(given.SGD(rate)), lambda rate: given.Nadam(rate, clipnorm=1.0)]
for make in makers:
    check(lambda: make(0.05), lambda: make(0.1))

# A step of one worker is one of all: of two, of one that is left, of three.
kinds = [given.SGD, given.legacy.SGD] if KERAS2 else [given.SGD]
for kind in kinds:
    for compiled in (True, False):
        schedule = given.schedules.PolynomialDecay(0.1, 4, 0.0)
        model = keras.Sequential([keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
        model.compile(kind(schedule), "mse", run_eagerly=not compiled, jit_compile=False)
        model.build((None, 1))
        weight = 0.0
        for workers, rate in ((2, 0.1), (1, 0.05), (3, 0.025)):  # at 0, 2 and 3 steps of all
            learning_rate.count_steps_of_all(model, workers)
            weight -= rate * (2 * weight - 2)  # the gradient of (w - 1)^2
            model.fit(np.ones((2, 1)), np.ones((2, 1)), batch_size=2, epochs=1, verbose=0)
            np.testing.assert_allclose(model.get_weights()[0][0, 0], weight, rtol=1e-5)
        assert learning_rate.steps_of_all(model.optimizer) == 6
        config = model.optimizer.get_config()["learning_rate"]
        assert config["class_name"] == "PolynomialDecay", config

optimizer = given.SGD(0.5)
learning_rate.scale(optimizer, 2.0)
optimizer.learning_rate = 0.25
assert float(optimizer.learning_rate) == 0.25 and optimizer.get_config()["learning_rate"] == 0.25

# A rule whose factor another rate has changed: the step of the second fit is no longer that of the first.
class Rank:
    class peers:
        is_chief = False

class Rule:
    def __init__(self, rate):
        self.rate = rate

class Follow(keras.callbacks.Callback):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def on_train_begin(self, logs=None):
        learning_rate.follow(Rank, Rule(self.factor), self.model)

def moves(factors):
    model = keras.Sequential([keras.layers.Dense(1, use_bias=False)])
    model.compile(given.SGD(0.05), "mse")
    model.build((None, 2))
    for factor in factors:
        model.set_weights([np.ones((2, 1))])
        model.fit(np.ones((4, 2)), np.zeros((4, 1)), batch_size=2, shuffle=False, verbose=0, callbacks=[Follow(factor)])
    return model.get_weights()[0]

np.testing.assert_allclose(moves([2.0, 1.0]), moves([1.0]), rtol=1e-6)
np.testing.assert_allclose(moves([1.0, 1.0, 2.0]), moves([2.0]), rtol=1e-6)
"""


@pytest.mark.timeout(400)
@pytest.mark.parametrize("keras", ["3", pytest.param("2", marks=[pytest.mark.keras2, pytest.mark.slow])])
def test_steps_are_longer_and_the_rate_reads_as_before(keras, tmp_path):
    (tmp_path / "runtime").symlink_to(ROOT / "ddl_magics" / "runtime")  # Keras 2's Python has nothing of Jupyter
    assert PYTHONS[keras].exists(), "make install keras2-env builds what this test needs"
    subprocess.run([PYTHONS[keras], "-c", STEPS], cwd=tmp_path, check=True)
