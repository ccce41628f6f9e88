"""A fit that goes on from a checkpoint is the fit that was never broken off: same history, same weights, to the bit."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support.paths import environment

from ddl_magics.runtime.data.reader import Epochs
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.runtime.training.training_state import CallbackStates

BEGIN = """
import keras, numpy as np, tensorflow as tf
x = np.random.default_rng(0).normal(size=(96, 8)).astype("float32")
y = np.sin(x[:, :2])
"""
CELLS = {
    # A model without variables before its first batch; state in optimizer, dropout, BatchNorm, callback.
    "two fits": """
model = keras.Sequential([
    keras.layers.Dense(8), keras.layers.BatchNormalization(), keras.layers.Dropout(0.5), keras.layers.Dense(2)])
model.compile("adam", "mse", metrics=["mae"])
first = model.fit(x, y, batch_size=32, epochs=2, verbose=0)
plateau = keras.callbacks.ReduceLROnPlateau(monitor="loss", factor=0.5, patience=0, min_delta=0.2)
fit = model.fit(x, y, batch_size=16, epochs=5, validation_data=(x, y), callbacks=[plateau], verbose=0)
[first.history, fit.history, fit.epoch, float(model.optimizer.learning_rate)]
""",
    # A pipeline that is shuffled anew in each epoch; the best weights of an early end are in a callback.
    "early end": """
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(2)])
model.compile(keras.optimizers.SGD(0.5, momentum=0.9), "mse")
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(50).batch(16)
end = keras.callbacks.EarlyStopping(monitor="loss", patience=3, restore_best_weights=True, min_delta=0.05)
fit = model.fit(data, epochs=20, callbacks=[end], verbose=0)
[fit.history, fit.epoch, end.stopped_epoch, end.best_epoch]
""",
    # The second epoch is the best, and its file is loaded after the fit.
    "best file": """
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(2)])
model.compile(keras.optimizers.SGD(0.1), "mse")
best = keras.callbacks.ModelCheckpoint("kept/{epoch}.keras", monitor="loss", save_best_only=True)
rate = keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 if epoch < 2 else -0.05)
fit = model.fit(x, y, batch_size=16, epochs=6, callbacks=[rate, best], verbose=0)
found = int(np.argmin(fit.history["loss"])) + 1
[fit.history, found, best.best, [w.tolist() for w in keras.models.load_model(f"kept/{found}.keras").get_weights()]]
""",
    # What callbacks do at the begin of an epoch is done once, also where the fit goes on within it.
    "begins": """
class Begins(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.is_odd, self.sums, self.seen = False, np.zeros(2), []
    def on_epoch_begin(self, epoch, logs=None):
        self.is_odd = not self.is_odd
        self.sums += 1
        self.seen.append(epoch)
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(2)])
model.compile(keras.optimizers.SGD(0.1), "mse")
rate, begins = keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.9 * rate), Begins()
fit = model.fit(x, y, batch_size=16, epochs=4, callbacks=[rate, begins], verbose=0)
[fit.history, float(model.optimizer.learning_rate), begins.is_odd, begins.sums.tolist(), begins.seen]
""",
    # Data that goes on from epoch to epoch.
    "steps_per_epoch": """
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(2)])
model.compile("adam", "mse", metrics=["mae"], steps_per_execution=2)
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(96).repeat().batch(10)
fit = model.fit(data, epochs=5, steps_per_epoch=6, verbose=0)
[fit.history, fit.epoch]
""",
}


def run(source, folder, positions=(), every=0):
    for name in ("checkpoints", "taken"):
        (folder / name).mkdir(exist_ok=True, parents=True)
    arguments = BEGIN + source, folder, json.dumps(positions), str(every)
    command = [sys.executable, "-m", "support.checkpoint_process", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment(), cwd=folder)


def value(done):
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()[-1]


def hand_over(whole, rest, positions):
    """Have the process in the folder `rest` find what that in `whole` has taken."""
    (rest / "checkpoints").mkdir(parents=True)
    for position in positions:
        name = "{}-{}-{}-{}.npz".format(*position)
        shutil.copy(whole / "taken" / name, rest / "checkpoints" / f"checkpoint-{position[0]}.npz")


@pytest.mark.parametrize(
    ("cell", "every", "positions"),
    [
        ("two fits", 4, [(0, 2, 0, 1), (1, 3, 4, 0)]),
        ("begins", 4, [(0, 1, 4, 0)]),
        pytest.param("begins", 0, [(0, 2, 0, 0)], marks=pytest.mark.slow),
        ("best file", 0, [(0, 4, 0, 0)]),
        pytest.param("best file", 0, [(0, 6, 0, 1)], marks=pytest.mark.slow),
        pytest.param("early end", 0, [(0, 3, 0, 0)], marks=pytest.mark.slow),
        pytest.param("steps_per_epoch", 4, [(0, 2, 4, 0)], marks=pytest.mark.slow),
    ],
)
def test_it_goes_on_as_if_it_had_not_been_broken_off(tmp_path, cell, every, positions):
    whole, rest = tmp_path / "whole", tmp_path / "rest"
    undisturbed = value(run(CELLS[cell], whole, every=every))
    hand_over(whole, rest, positions)
    assert value(run(CELLS[cell], rest, positions, every)) == undisturbed
    if cell == "early end":
        other = run(CELLS[cell].replace("Dense(8", "Dense(9"), rest, positions)
        message = "has the shape (8, 8), this model's has (8, 9); give the cell that model and optimizer, or leave"
        assert f"CheckpointMismatch: the checkpoint of fit 1 (sequential): number 0 of its weights {message}" in (
            other.stderr
        )
        slower = (
            CELLS[cell].replace("SGD(0.5", "SGD(0.25").replace("[fit.history", "[float(model.optimizer.learning_rate)")
        )
        assert json.loads(value(run(slower, rest, positions)))[0][0] == 0.25, "the cell's, if that is another one"


class Counts:
    """A callback of a cell."""

    def __init__(self):
        self.epochs = 0


def test_a_rank_that_joins_before_the_first_step_has_the_epoch_begun_once():
    from ddl_magics.runtime.training.checkpointing import FitCheckpoints

    config = SimpleNamespace(spec=RunSpec(), reported=None, attempt=1, reduces_gradients=True)
    peers = SimpleNamespace(is_chief=False)
    epochs, progress = Epochs(), SimpleNamespace(fit=0)
    rank = SimpleNamespace(config=config, peers=peers, reporter=None, progress=progress, data_epochs=epochs)
    none = lambda *_: []  # noqa: E731
    access = SimpleNamespace(build_all=none, weights=none, optimizer_variables=none, seeds=none)
    access.fast_forward = lambda *_, over: not over
    of_rank = SimpleNamespace(rank=rank, access=access, metric_sums=None, sender=None)
    counts, model = Counts(), SimpleNamespace(optimizer=SimpleNamespace(learning_rate=0.1))
    model.non_trainable_variables = []
    about = {"class": "Counts", "attributes": {"epochs": 3}}
    position = {"fit": 0, "epoch": 2, "step": 0, "complete": False, "steps": 6, "count": 12}
    metadata = {**position, "callbacks": [about], "model": "m", "rates": [0.1, 0.08], "data_epochs": [4, 7]}
    states = CallbackStates([counts])
    fit = FitCheckpoints(of_rank, states, metadata, {"callbacks/1/x": np.zeros(1)}, 0, {})
    fit.before.set_model(model)
    fit.before.on_train_begin()
    for epoch, expected in ((2, (3, 0.08, 7)), (3, (4, 0.04, 9))):
        counts.epochs += 1  # as in its `on_epoch_begin`
        model.optimizer.learning_rate *= 0.5
        epochs.begin()  # it reads `dataset`, too
        fit.before.on_epoch_begin(epoch)
        assert (counts.epochs, model.optimizer.learning_rate, epochs.next) == expected
        epochs.begin()  # the epoch


class Waits:
    """As EarlyStopping and ReduceLROnPlateau: a fit begins with 0."""

    def __init__(self):
        self.wait = 0


@pytest.mark.parametrize("wait", [0, 1, 2])
def test_what_a_callback_has_at_a_fits_begin_is_known_from_there(wait):
    """Also where it has again what an earlier fit had left."""
    callback, again = Waits(), Waits()
    callback.wait = 1
    states = CallbackStates([callback])
    callback.wait = 0
    states.note_begin()
    callback.wait = wait
    taken = states.take(0)
    again.wait = 0
    CallbackStates([again]).restore(*taken)
    assert again.wait == wait


class Best:
    """A ModelCheckpoint that has saved."""

    save_best_only = True

    def __init__(self, filepath):
        self.filepath, self.best = str(filepath), None


def test_a_best_file_that_a_checkpoint_cannot_have_is_told_and_its_path_is_the_callbacks(tmp_path):
    callback = Best(tmp_path / "at-{epoch}.keras")
    states = CallbackStates([callback])
    callback.best = 0.5
    (tmp_path / "at-3.keras").write_bytes(b"model")
    too_large = states.take(most_bytes=4)
    taken, arrays = states.take(most_bytes=5)
    (tmp_path / "at-3.keras").unlink()
    again = Best(callback.filepath)
    assert CallbackStates([again]).restore(*too_large) == [callback.filepath] and again.best is None
    for path in (tmp_path / "other", tmp_path / "sub" / "at-3.keras", f"{tmp_path}/at-/../../x.keras"):
        assert CallbackStates([again]).restore([{**taken[0], "file": str(path)}], arrays) == [callback.filepath]
        assert not Path(path).exists()
    assert CallbackStates([again]).restore(taken, arrays) == [] and again.best == 0.5
    assert (tmp_path / "at-3.keras").read_bytes() == b"model"


def test_what_is_best_is_remembered_where_its_file_is_on_a_storage():
    callback, again = Best("s3://models/best.keras"), Best("s3://models/best.keras")
    states = CallbackStates([callback])
    callback.best = 0.5
    assert CallbackStates([again]).restore(*states.take(100)) == [] and again.best == 0.5
