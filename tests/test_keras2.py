"""Keras 2 of TensorFlow 2.13 on the executors: the same cells, with the results of one process of it."""

import json
import subprocess
from pathlib import Path

import comparison
import launch
import numpy as np
import pytest
import test_equality
import test_training

from ddl_magics.saved_model import load_model

PYTHON = Path(__file__).parent.parent / ".venv-keras2" / "bin" / "python"

#: Of the cases that Keras 3 has, what takes another way through Keras 2; the rest runs with `make test-slow`.
ALWAYS = (
    "sgd_momentum",
    "adamw_clipnorm",
    "callbacks",
    "weighted",
    "two_by_two",
    "embedding",
    "own_step",
    "pipeline",
    "two_fits",
    "summed_loss",
    "adversaries",
    "regularised",
    "multi_step_execution",
    "compiled",
    "four_steps_and_a_remainder",
    "legacy_momentum",
    "legacy_adam_clipped",
    "compiled_step",
    "summed_outputs",
    "first_batch_smaller_than_the_workers",
)
#: The optimizers of Keras 2 do not accumulate gradients, and its ModelCheckpoint writes no `.keras` file.
NOT_IN_KERAS2 = {"accumulation", "callbacks_of_all_kinds"}
ALL = tuple(dict.fromkeys(ALWAYS + test_equality.ALWAYS + test_equality.MORE))
ALL = tuple(name for name in ALL if name not in NOT_IN_KERAS2)


@pytest.fixture
def keras2(spark_cluster):
    """`keras2(n)`: a Spark whose executors have TensorFlow 2.13."""
    assert PYTHON.exists(), "make keras2-env builds what this test needs"
    return lambda workers: spark_cluster(workers, PYTHON)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return comparison.Reference(tmp_path_factory.mktemp("reference"), python=PYTHON)


@pytest.mark.timeout(600)
def test_float64(keras2, reference):
    comparison.check(keras2(2), reference, ALWAYS, "float64", 2)


@pytest.mark.timeout(300)
def test_the_comparison_can_fail(keras2, reference):
    """Negative control: the same test with the sum over ranks left out."""
    names = ("sgd_momentum", "legacy_momentum")
    ended = comparison.distributed(keras2(2), names, "float64", 2, prologue=comparison.SILENCE)
    found = comparison.differences(ended.result, reference(names, "float64"), names, "float64")
    assert {name for name in names for difference in found if name in difference} == set(names)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_full_matrix(keras2, reference, workers, dtype):
    comparison.check(keras2(workers), reference, ALL, dtype, workers)


def test_evaluation_callbacks_files_and_collectives(keras2, tmp_path):
    """The cell of Keras 3's test; and what it has fitted comes back as a file that Keras 2 loads."""
    cell = test_training.EVALUATION.replace("best.keras", "best.h5")  # see NOT_IN_KERAS2
    ended = test_training.finished(keras2(2), cell, {"SHARED": str(tmp_path)})
    said = [{k: v for e in ended.of_kind("values", rank) for k, v in e["metrics"].items()} for rank in range(2)]
    assert said[0] == said[1] and said[0]["total"] == 6.0 and "logs 1 val_accuracy" in said[0]
    assert [e["epoch"] for e in ended.of_kind("epoch")] == [0, 1]
    assert sum(e["rows"] for e in ended.of_kind("steps")) == 2 * 104  # two epochs of the rows not held out
    (tmp_path / "model.keras").write_bytes(launch.fetch(ended.run, "model-0.keras"))
    code = "import keras; print([a.sum().item() for a in keras.models.load_model('model.keras').get_weights()])"
    done = subprocess.run([PYTHON, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True, timeout=100)
    assert json.loads(done.stdout) == [array.sum().item() for array in launch.weights(ended.run)]
    with pytest.raises(ValueError, match=r"Keras 2\.13.* saved the model, and Keras 3.* cannot make it again"):
        load_model(tmp_path / "model.keras")


STOPS_NOISE_AND_SCALES = (
    test_training.STOPPING
    + """
noisy = keras.Sequential([keras.Input((64,)), keras.layers.Dropout(0.5), keras.layers.Dense(1)])
noisy.compile("sgd", "mse")
ones = np.ones((64, 64), "float32")
noisy.fit(ones, ones[:, :1], batch_size=32, verbose=0)
ddl.log(noise=float(np.sum(np.asarray(noisy.layers[0](ones, training=True)) * np.arange(64))))
ddl.log(noisy=float(np.sum(noisy.get_weights()[0])))

keras.mixed_precision.set_global_policy("mixed_float16")
model = build()
sgd = keras.optimizers.SGD(0.1)
model.compile(keras.mixed_precision.LossScaleOptimizer(sgd, initial_scale=1e38), model.loss)  # overflows at first
model.fit(x, y, batch_size=26, epochs=30, verbose=0)
ddl.log(scale=float(model.optimizer.loss_scale), weights=float(np.sum(model.get_weights()[0])))
"""
)


def test_stopping_noise_and_loss_scaling(keras2):
    ended = test_training.finished(keras2(2), STOPS_NOISE_AND_SCALES)
    first, second = ({k: v for e in ended.of_kind("values", rank) for k, v in e["metrics"].items()} for rank in (0, 1))
    assert first.pop("noise") != second.pop("noise")
    assert first == second and first["epochs"] == 1 and first["scale"] < 1e38
    assert np.isfinite(ended.history["loss"][-1])
    steps = [sum(e["count"] for e in ended.of_kind("steps", rank) if e["fit"] == 0) for rank in range(2)]
    assert steps[0] == steps[1] and steps[0] in (3, 4)


FAILURES = {
    "in the graph of rank 1": (
        """
model = build()
model.fit(x, y + 5 * ddl.rank, batch_size=32, verbose=0)""",
        "Received a label value",
    ),
}


@pytest.mark.parametrize("what", FAILURES)
def test_a_failure_is_told_in_a_line(keras2, what):
    code, message = FAILURES[what]
    ended = launch.run_cell(keras2(2), test_training.HEAD + code)
    assert ended.state == "FAILED"
    assert message in ended.failure["message"] and "File" not in ended.failure["message"]
    assert ended.failure["rank"] == 1


def test_a_stop_keeps_model_and_history(keras2):
    running = launch.start(keras2(2), test_training.HEAD + "build().fit(x, y, batch_size=8, epochs=100000, verbose=0)")
    running.until(lambda run: sum(e["kind"] == "epoch" for e in run.events) >= 2)
    running.stop()
    ended = running.wait(60)
    assert ended.state == "STOPPED" and len(ended.history["loss"]) >= 2 and launch.weights(ended.run)


@pytest.mark.parametrize("strategy", ["allreduce", pytest.param("ps", marks=pytest.mark.slow)])
def test_a_data_frame_becomes_the_ranks_datasets(keras2, strategy):
    spark = keras2(2)
    frame = spark.createDataFrame([(float(i), float(i % 3), i % 2) for i in range(101)], ["a", "b", "y"])
    data = {"data": "frame", "features": ["a", "b"], "label": "y", "batch_size": 16, "validation": 0.2}
    cell = test_training.DATA.replace("Input((3,))", "Input((2,))").replace(".map(scale)", "")
    ended = test_training.finished(spark, "import keras\n" + cell, {"frame": frame}, strategy=strategy, **data)
    rows = [e["metrics"]["row"] for e in ended.of_kind("values") if "row" in e["metrics"]]
    assert len(rows) == len(set(rows)) == 81 and len(ended.history["val_loss"]) == 2


@pytest.mark.timeout(300)
def test_a_parameter_server_is_as_accurate_as_one_process(keras2, tmp_path):
    one_process = comparison.Reference(tmp_path, comparison.DIGITS, PYTHON)(["1"], "float32")
    ended = launch.run_cell(keras2(2), f"{comparison.DIGITS}\nrun_cases(['1'], 'float32')", strategy="ps")
    assert ended.state == "FINISHED", ended.failure
    assert ended.result["1"] >= one_process["1"] - 0.04
    assert all(sum(e["commits"] for e in ended.of_kind("commits", rank)) > 50 for rank in range(2))


@pytest.mark.parametrize(("version", "wanted"), [("2.12.0", "2.13"), ("3.6.0", "3.7"), ("1.0", "2.13")])
def test_an_older_keras_is_refused_in_a_line_that_names_the_oldest(version, wanted):
    from ddl_magics.runtime.keras_fit import OLDEST, check_version

    with pytest.raises(
        ImportError, match=rf"has Keras {version} .*; {wanted} or newer, of TensorFlow 2\.1\d, is needed"
    ):
        check_version(version)
    for oldest, _ in OLDEST.values():
        check_version(oldest + ".0")
