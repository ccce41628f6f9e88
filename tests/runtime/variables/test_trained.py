"""A model of the notebook that a run has trained is the same object, as if it had been trained here."""

import pickle
import zipfile

import numpy as np
import pytest

from ddl_magics.runtime.variables import trained

ROWS = np.random.default_rng(0).normal(size=(32, 4))
TARGETS = ROWS.sum(axis=1, keepdims=True)


def my_loss(expected, predicted):
    return (expected - predicted) ** 2


def made(compiled=True, built=True, optimizer="adam", loss="mse"):
    import keras

    layers = [keras.Input((4,))] if built else []
    model = keras.Sequential([*layers, keras.layers.Dense(3, "tanh"), keras.layers.Dense(1)])
    if compiled:
        model.compile(optimizer, loss)
    return model


def fitted(model):
    model.fit(ROWS, TARGETS, epochs=2, verbose=0, shuffle=False)


def files(model, folder):
    weights, saved = folder / "weights-0.npz", folder / "model-0.keras"
    np.savez(weights, *model.get_weights())
    model.save(saved)
    return str(weights), str(saved)


def assert_equal(one, other):
    for a, b in zip(one.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("optimizer", ["adam", "sgd", "loss scale", "schedule"])
def test_it_goes_on_from_the_state_of_its_optimizer(tmp_path, optimizer):
    import keras

    optimizers = {
        "loss scale": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01)),
        "schedule": lambda: keras.optimizers.Adam(keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)),
    }
    keras.utils.set_random_seed(1)
    model = made(optimizer=optimizers.get(optimizer, lambda: optimizer)())
    there, optimizer_here = pickle.loads(pickle.dumps(model)), model.optimizer
    fitted(there)
    if optimizer != "schedule":
        there.optimizer.learning_rate = 0.02
    trained.restore(model, *files(there, tmp_path), {}, optimizer_here)
    assert_equal(model, there)
    fitted(there)
    fitted(model)
    assert_equal(model, there)
    assert model.optimizer is optimizer_here


@pytest.mark.parametrize("compiles", [False, True])
def test_the_optimizer_stays_the_notebooks_whatever_the_cell_sets_in_it(tmp_path, compiles):
    import keras

    model = made(optimizer=keras.optimizers.Adam(0.01))
    there, optimizer = pickle.loads(pickle.dumps(model)), model.optimizer
    there.optimizer.clipnorm, there.optimizer.weight_decay = 0.5, 0.1
    if compiles:
        there.compile(there.optimizer, "mae")
    fitted(there)
    trained.restore(model, *files(there, tmp_path), {}, optimizer)
    assert model.optimizer is optimizer and (optimizer.clipnorm, optimizer.weight_decay) == (0.5, 0.1)
    assert model.loss == there.loss
    fitted(there)
    fitted(model)
    assert_equal(model, there)


def test_a_new_optimizer_of_the_cell_is_not_the_notebooks(tmp_path):
    model = made()
    there, optimizer = pickle.loads(pickle.dumps(model)), model.optimizer
    there.compile("adam", "mse")
    fitted(there)
    trained.restore(model, *files(there, tmp_path), {})
    assert model.optimizer is not optimizer and int(optimizer.iterations) == 0 and int(model.optimizer.iterations) == 2


@pytest.mark.parametrize("built", [True, False], ids=["built", "unbuilt"])
def test_it_is_compiled_as_the_cell_has_compiled_it(tmp_path, built):
    model = made(compiled=False, built=built)
    there = pickle.loads(pickle.dumps(model))
    there.compile("adam", my_loss)
    fitted(there)
    trained.restore(model, *files(there, tmp_path), {"my_loss": my_loss})
    assert model.loss is my_loss
    fitted(there)
    fitted(model)
    assert_equal(model, there)


def test_what_cannot_be_compiled_here_has_its_weights(tmp_path):
    model = made(compiled=False)
    there = pickle.loads(pickle.dumps(model))
    there.compile("adam", my_loss)
    fitted(there)
    with pytest.raises(trained.CannotRestore, match=r"its weights have come, its optimizer has not \(.*my_loss"):
        trained.restore(model, *files(there, tmp_path), {})
    assert_equal(model, there)


def test_a_model_of_other_weights_stays_as_it_is(tmp_path):
    import keras

    model, there = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)]), made()
    before = model.get_weights()
    with pytest.raises(trained.CannotRestore, match="other shapes"):
        trained.restore(model, *files(there, tmp_path), {})
    for a, b in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_file_that_refers_to_another_is_not_read(tmp_path):
    import h5py

    model, there = made(), made()
    fitted(there)
    weights, saved = files(there, tmp_path)
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["0"] = np.int64(3)
    with zipfile.ZipFile(saved) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    (stored := tmp_path / "stored.h5").write_bytes(parts["model.weights.h5"])
    with h5py.File(stored, "r+") as file:
        del file["optimizer/vars/0"]
        file["optimizer/vars/0"] = h5py.ExternalLink(str(tmp_path / "secret.h5"), "0")
    parts["model.weights.h5"] = stored.read_bytes()
    with zipfile.ZipFile(saved, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    with pytest.raises(trained.CannotRestore, match="refers to another"):
        trained.restore(model, weights, saved, {}, model.optimizer)
    assert int(model.optimizer.iterations) == 0
