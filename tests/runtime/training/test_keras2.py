"""Keras 2 of TensorFlow 2.13 on the executors: the same cells, with the results of one process of it."""

import json
import subprocess

import numpy as np
import pytest
from support import comparison, launch
from support.comparison import ALWAYS as KERAS3
from support.comparison import LENGTHS, LOOPS, MORE, MORE_LOOPS
from support.paths import KERAS2_PYTHON as PYTHON

from ddl_magics.runs.saved_model import load_model

from . import test_training

#: Of the cases that Keras 3 has, what takes another way through Keras 2; the rest runs with `make test-slow`.
ALWAYS = ("callbacks", "embedding", "own_step", "legacy_adam_clipped", "single_batches_and_fits")
ALWAYS += ("losses_of_all_kinds", "own_optimizers", "ragged_inputs", "own_loss", "step_that_counts")
#: For --sync-batchnorm. Not normalized_images: docs/allreduce.md says what its moving variance is without; nor
#: normalized_masked, of whose batch of nothing but masked values Keras 2 makes NaN.
NORMALIZED = ("normalized_branches",)
SILENT = ("sgd_momentum", "legacy_momentum")
#: The optimizers of Keras 2 do not accumulate gradients, its ModelCheckpoint writes no `.keras` file, and it lacks a
#: reduction and a loss. Of a batch of nothing but masked values it makes NaN.
NOT_IN_KERAS2 = {"accumulation", "callbacks_of_all_kinds", "weighted_mean_of_weights", "overlap_of_sets"}
NOT_IN_KERAS2 |= {"masked_losses", "masked_sequences_compiled"}
#: What takes another way, too, with `make test-slow`.
MORE_OF_KERAS2 = ("multi_step_execution", "legacy_momentum", "compiled_step", "first_batch_smaller_than_the_workers")
MORE_NORMALIZED = ("synchronized_images", "normalized_sum")
ALL = tuple(dict.fromkeys(ALWAYS + MORE_OF_KERAS2 + KERAS3 + MORE + LOOPS + MORE_LOOPS + LENGTHS))
ALL = tuple(name for name in ALL if name not in NOT_IN_KERAS2)


@pytest.fixture(scope="module")
def keras2(spark_cluster):
    """`keras2(n)`: a Spark whose executors have TensorFlow 2.13."""
    assert PYTHON.exists(), "make keras2-env builds what this test needs"
    return lambda workers: spark_cluster(workers, PYTHON)


@pytest.fixture(scope="module")
def learned(keras2):
    """{part: what two workers have learned}, in one run; `silent` is the negative control."""
    parts = {"float64": (ALWAYS, "float64"), "normalized": (NORMALIZED, "float64")}
    parts["silent"] = (SILENT, "float64", comparison.SILENCE)
    return comparison.learn_parts(keras2(2), parts, 2, seconds=700, sync_batchnorm=True)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", ["float64", "normalized"])
def test_two_workers(learned, keras2_reference, part):
    comparison.check(learned[part], keras2_reference)


@pytest.mark.timeout(900)
def test_the_comparison_can_fail(learned, keras2_reference):
    found = learned["silent"].differences(keras2_reference)
    assert {name for name in SILENT for difference in found if name in difference} == set(SILENT)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_more_of_the_whole_batch(keras2, keras2_reference):
    learned = comparison.learn(keras2(2), MORE_NORMALIZED, "float64", 2, sync_batchnorm=True)
    comparison.check(learned, keras2_reference)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_full_matrix(keras2, keras2_reference, workers, dtype):
    comparison.check(comparison.learn(keras2(workers), ALL, dtype, workers, seconds=1000), keras2_reference)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_updates_that_are_sharded(keras2, keras2_reference):
    names = [name for name in comparison.SHARDED if name != "states_saved"]  # in files that Keras 2 does not read so
    names += ["adamw_clipnorm", "embedding", "schedule", "own_step"]
    learned = comparison.learn(keras2(2), names, "float64", 2, shard_optimizer="yes")
    comparison.check(learned, keras2_reference)


FITS = (
    test_training.EVALUATION.replace("best.keras", "best.h5")  # see NOT_IN_KERAS2
    + test_training.STOPPING
    + test_training.NOISE
    + """
keras.mixed_precision.set_global_policy("mixed_float16")
model = build()
sgd = keras.optimizers.SGD(0.1)
model.compile(keras.mixed_precision.LossScaleOptimizer(sgd, initial_scale=1e38), model.loss)  # overflows at first
model.fit(x, y, batch_size=26, epochs=30, verbose=0)
ddl.log(scale=float(model.optimizer.loss_scale), weights=float(np.sum(model.get_weights()[0])))
keras.mixed_precision.set_global_policy("float32")
"""
    + """
import itertools
numbers = ((np.full((6, 1), number, "float32"), np.zeros((6, 1), "float32")) for number in itertools.count(1))
zeros = itertools.repeat((np.zeros((6, 1), "float32"), np.zeros((6, 1), "float32")))
same = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="ones")])
same.compile("sgd", "mae")
history = same.fit(zeros, steps_per_epoch=2, epochs=4, validation_data=numbers, validation_steps=2, verbose=0).history
ddl.log(validated=tuple(history["val_loss"]) == (1.5, 3.5, 5.5, 7.5))

class Coupled(keras.layers.Layer):
    def call(self, x):
        return x - tf.reduce_mean(x, 0)

class Batches(keras.utils.Sequence):
    def __len__(self):
        return 2
    def __getitem__(self, number):
        return np.ones((8, 7), "float32"), np.ones((8, 4), "float32")

coupled = keras.Sequential([keras.Input((7,)), keras.layers.Dense(4), Coupled()])
coupled.compile("sgd", "mse")
try:
    coupled.fit(Batches(), verbose=0)
except ValueError as error:
    ddl.log(refused="couples the rows" in str(error))

class Clipped(keras.optimizers.SGD):
    def compute_gradients(self, loss, var_list, tape=None):
        pairs = super().compute_gradients(loss, var_list, tape)
        return [(tf.clip_by_norm(gradient, 1e-3), variable) for gradient, variable in pairs]

clipped = keras.Sequential([keras.Input((7,)), keras.layers.Dense(4)])
clipped.compile(Clipped(0.1), "mse")
try:
    clipped.fit(Batches(), verbose=0)
except ValueError as error:
    ddl.log(clipped="change them in apply_gradients" in str(error))
"""
)


@pytest.fixture(scope="module")
def fits(keras2, tmp_path_factory):
    """One run of the fits of Keras 3's tests."""
    return launch.finished(keras2(2), FITS, {"SHARED": str(tmp_path_factory.mktemp("shared"))})


@pytest.mark.slow
def test_evaluation_callbacks_files_and_collectives(fits, tmp_path):
    """And what was fitted comes back as a file that Keras 2 loads."""
    said = test_training.evaluation(fits)
    assert said[0] == said[1] and said[0]["total"] == 6.0 and "logs 1 val_accuracy" in said[0]
    assert [e["epoch"] for e in fits.of_kind("epoch") if e["fit"] == 0] == [0, 1]
    # Two epochs of the rows not held out.
    assert sum(e["rows"] for e in fits.of_kind("steps") if e["fit"] == 0) == 2 * 104
    (tmp_path / "model.keras").write_bytes(launch.fetch(fits.run, "model-0.keras"))
    code = "import keras; print([a.sum().item() for a in keras.models.load_model('model.keras').get_weights()])"
    done = subprocess.run([PYTHON, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True, timeout=100)
    assert json.loads(done.stdout) == [array.sum().item() for array in launch.weights(fits.run)]
    with pytest.raises(ValueError, match=r"Keras 3.* cannot load the model that Keras 2\.13.* saved"):
        load_model(tmp_path / "model.keras")


@pytest.mark.slow
def test_no_batch_of_validation_is_lost_between_evaluations(fits):
    """Of a generator, which all workers read alike."""
    assert fits.logged("validated") == [True, True]
    assert sum("reads validation data from a generator ahead" in e["message"] for e in fits.of_kind("notice")) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["refused", "clipped"])
def test_rows_that_a_model_couples_and_gradients_that_an_optimizer_clips_where_it_makes_them_are_refused(fits, name):
    """Keras 2 does not say how large rows of a sequence are."""
    assert fits.logged(name) == [True, True]


@pytest.mark.slow
def test_stopping_noise_and_loss_scaling(fits):
    values = {name: fits.logged(name) for name in test_training.LOGGED}
    assert len(set(values.pop("noise"))) == 2
    assert all(len(ranks) == 2 and len(set(ranks)) == 1 for ranks in values.values())
    assert values["epochs"] == [1, 1] and values["scale"][0] < 1e38
    assert np.isfinite(fits.history["loss"][-1])
    stopped = [e for e in fits.of_kind("steps") if e["fit"] == test_training.STOPPED]
    steps = [sum(e["count"] for e in stopped if e["rank"] == rank) for rank in range(2)]
    assert steps[0] == steps[1] and steps[0] in (3, 4)


def test_a_failure_in_the_graph_of_a_rank_is_told_in_a_line(keras2):
    cell = test_training.HEAD + "build().fit(x, y + 5 * ddl.rank, batch_size=32, verbose=0)"
    ended = launch.run_cell(keras2(2), cell)
    assert ended.state == "FAILED"
    assert "Received a label value" in ended.failure["message"] and "File" not in ended.failure["message"]
    assert ended.failure["rank"] == 1


def test_a_stop_keeps_model_and_history(keras2):
    running = launch.start(keras2(2), test_training.HEAD + "build().fit(x, y, batch_size=8, epochs=100000, verbose=0)")
    running.until(lambda run: sum(e["kind"] == "epoch" for e in run.events) >= 2)
    ended = running.stopped()
    assert len(ended.history["loss"]) >= 2 and launch.weights(ended.run)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["allreduce", "ps"])
def test_a_data_frame_becomes_the_ranks_datasets(keras2, strategy):
    spark = keras2(2)
    frame = spark.createDataFrame([(float(i), float(i % 3), i % 2) for i in range(101)], ["a", "b", "y"])
    data = {"data": "frame", "features": ["a", "b"], "label": "y", "batch_size": 16, "validation": 0.2}
    cell = test_training.DATA.replace("Input((3,))", "Input((2,))").replace(".map(scale)", "")
    ended = launch.finished(spark, "import keras\n" + cell, {"frame": frame}, strategy=strategy, **data)
    rows = ended.logged("row")
    assert len(rows) == len(set(rows)) == 81 and len(ended.history["val_loss"]) == 2


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_parameter_server_is_as_accurate_as_one_process(keras2, tmp_path):
    one_process = comparison.Reference(tmp_path, comparison.DIGITS, PYTHON)(["1"], "float32")
    ended = launch.finished(keras2(2), f"{comparison.DIGITS}\nrun_cases(['1'], 'float32')", strategy="ps")
    assert ended.result["1"] >= one_process["1"] - 0.04
    assert all(sum(e["commits"] for e in ended.of_kind("commits", rank)) > 50 for rank in range(2))


@pytest.mark.parametrize(("version", "wanted"), [("2.12.0", "2.13"), ("3.6.0", "3.7"), ("1.0", "2.13")])
def test_an_older_keras_is_refused_in_a_line_that_names_the_oldest(version, wanted):
    from ddl_magics.runtime.training.keras_fit import OLDEST, check_version

    with pytest.raises(
        ImportError, match=rf"has Keras {version} .*; {wanted} or newer, of TensorFlow 2\.1\d, is needed"
    ):
        check_version(version)
    for oldest, _ in OLDEST.values():
        check_version(oldest + ".0")
