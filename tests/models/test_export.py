"""Exports, each read back by its own runtime and equal to Keras; what is inside, and what goes wrong."""

import json
import os

import keras
import numpy as np
import pytest
import tensorflow as tf
from support.stored import with_model

from ddl_magics import CannotExport
from ddl_magics.clusters.scoring import description_of
from ddl_magics.models.export import DESCRIPTION, FORMATS
from ddl_magics.runtime import events as ev

ROWS = np.random.default_rng(1).normal(size=(5, 3)).astype("float32")
IMAGES = np.random.default_rng(2).uniform(size=(5, 6, 6, 1)).astype("float32")


def run_of(model, inputs=None):
    """A run that has ended with this model."""
    data = [ev.make("data", ev.JOB, name="df", rows=5, validation_rows=0, inputs=inputs)] if inputs else []
    return with_model(model, events=data)


@pytest.fixture(scope="module")
def pictures(jupyter_data_dir):
    """A run whose model has two inputs, two outputs, a convolution and a normalization."""
    keras.utils.set_random_seed(3)
    image, meta = keras.Input((6, 6, 1), name="image"), keras.Input((3,), name="meta")
    inner = keras.layers.Flatten()(keras.layers.BatchNormalization()(keras.layers.Conv2D(4, 3)(image)))
    merged = keras.layers.Concatenate()([inner, meta])
    outputs = {"kind": keras.layers.Dense(4, "softmax")(merged), "size": keras.layers.Dense(1)(merged)}
    return run_of(keras.Model({"image": image, "meta": meta}, outputs))


GIVEN = {"image": IMAGES, "meta": ROWS}


def predicted(run, given):
    return {name: np.asarray(value) for name, value in run.model().predict(given, verbose=0).items()}


def by_mlflow(folder):
    import mlflow.pyfunc

    loaded = mlflow.pyfunc.load_model(str(folder))
    assert {one.name: tuple(one.shape) for one in loaded.metadata.signature.inputs} == {
        "image": (-1, 6, 6, 1),
        "meta": (-1, 3),
    }
    assert loaded.metadata.metadata["run"] == description_of(folder)["run"]
    return loaded.predict(GIVEN)


def by_tensorflow(folder):
    loaded = tf.saved_model.load(folder)
    return loaded.serve(GIVEN)


def by_onnxruntime(folder):
    import onnxruntime

    session = onnxruntime.InferenceSession(folder / "model.onnx")
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, GIVEN), strict=True))


def by_keras(folder):
    return keras.models.load_model(folder / "model.keras").predict(GIVEN, verbose=0)


def by_litert(folder):
    interpreter = tf.lite.Interpreter(str(folder / "model.tflite"))
    serve = interpreter.get_signature_runner()
    return serve(**GIVEN)


READERS = {
    "mlflow": by_mlflow,
    "saved_model": by_tensorflow,
    "onnx": by_onnxruntime,
    "keras": by_keras,
    "litert": by_litert,
}


@pytest.mark.parametrize("format", READERS)
def test_an_export_read_by_its_own_runtime_predicts_as_keras_does(pictures, tmp_path, format):
    folder = pictures.export(tmp_path / "deep" / "pictures", format)
    assert os.listdir(folder.parent) == ["pictures"], "nothing half written is left"
    found, theirs = READERS[format](folder), predicted(pictures, GIVEN)
    assert set(found) == set(theirs)
    for name, values in theirs.items():
        np.testing.assert_allclose(np.asarray(found[name]), values, rtol=1e-5, atol=1e-6)
    about = description_of(folder)
    assert (about["run"], about["name"], about["format"]) == (pictures.id, "digits", format)
    assert (folder / about["model"]).exists() and about["versions"]["keras"] == keras.__version__
    if format != "keras":
        assert {one["name"]: one["shape"] for one in about["signature"]["inputs"]} == {
            "image": [6, 6, 1],
            "meta": [3],
        }
        assert np.shape(about["example"]["image"]) == (1, 6, 6, 1)


def test_a_model_of_one_tensor_and_an_example_of_the_users(tmp_path, capfd):
    """Built in `fit`, with an example; and a subclass, whose inputs are known from the run's data alone."""
    model = keras.Sequential([keras.layers.Dense(2)])
    model(ROWS)
    folder = run_of(model).export(tmp_path / "plain", "saved_model", example=ROWS[:2])
    assert "Assets" not in "".join(capfd.readouterr()), "it names a folder that is renamed"
    loaded = tf.saved_model.load(folder)
    np.testing.assert_allclose(loaded.serve(ROWS), model(ROWS), rtol=1e-5)
    about = description_of(folder)
    assert about["signature"]["inputs"] == [{"name": "", "dtype": "float32", "shape": [3]}]
    np.testing.assert_allclose(about["example"], ROWS[:2])

    @keras.saving.register_keras_serializable("tests")
    class Line(keras.Model):
        def __init__(self, **options):
            super().__init__(**options)
            self.dense = keras.layers.Dense(1)

        def call(self, values):
            return self.dense(values)

    line = Line()
    line(ROWS)
    columns = [{"name": name, "dtype": "f4", "depth": 0, "vector": False} for name in "abc"]
    inputs = {"columns": columns, "tensors": [[0, 1, 2]], "uses": ["floatx"], "shapes": [[3]], "features": 0}
    folder = run_of(line, inputs).export(tmp_path / "line", "saved_model")
    loaded = tf.saved_model.load(folder)
    np.testing.assert_allclose(loaded.serve(ROWS), line(ROWS), rtol=1e-5)
    assert description_of(folder)["inputs"] == inputs
    with pytest.raises(CannotExport, match="it is not known what the model takes: give example= with a row"):
        run_of(line).export(tmp_path / "unknown", "saved_model")


def test_layers_that_converters_do_not_know_by_themselves(tmp_path):
    """Tensors that are no weights, for ONNX; a recurrent layer, for LiteRT; and what they cannot have, in one line."""
    series = np.random.default_rng(3).normal(size=(5, 8, 2)).astype("float32")
    scaled = keras.layers.Normalization(mean=[1.0, 2.0], variance=[3.0, 4.0])
    recurrent = keras.Sequential([keras.Input((8, 2)), scaled, keras.layers.Bidirectional(keras.layers.LSTM(3))])
    run, theirs = run_of(recurrent), recurrent.predict(series, verbose=0)
    import onnxruntime

    session = onnxruntime.InferenceSession(run.export(tmp_path / "onnx", "onnx") / "model.onnx")
    (name,) = (one.name for one in session.get_inputs())
    np.testing.assert_allclose(session.run(None, {name: series})[0], theirs, rtol=1e-4, atol=1e-5)
    interpreter = tf.lite.Interpreter(str(run.export(tmp_path / "litert", "litert") / "model.tflite"))
    (found,) = interpreter.get_signature_runner()(**{name: series}).values()
    np.testing.assert_allclose(found, theirs, rtol=1e-4, atol=1e-5)

    doubles = keras.Sequential([keras.Input((3,), dtype="float64"), keras.layers.Dense(1, dtype="float64")])
    with pytest.raises(CannotExport, match=r"LiteRT does not have .* \(MatMul of TensorFlow\): choose onnx"):
        run_of(doubles).export(tmp_path / "doubles", "litert")
    words = keras.layers.StringLookup(vocabulary=["a"])
    texts = keras.Sequential([keras.Input((1,), dtype="string"), words])
    with pytest.raises(CannotExport, match=r"ONNX does .* \(LookupTableFindV2 of TensorFlow\): choose saved_model"):
        run_of(texts).export(tmp_path / "texts", "onnx")
    assert sorted(os.listdir(tmp_path)) == ["litert", "onnx"]


def test_what_the_model_takes_stays_as_it_is(tmp_path):
    """Ids that are no float32 and text, of a subclass; a length that is open; a metric that is no number."""

    @keras.saving.register_keras_serializable("tests")
    class Last(keras.Model):
        def call(self, values):
            same = keras.ops.cast(tf.strings.length(values["word"]), "int64")
            return keras.ops.cast((values["id"] + same) % 10, "float32")

    given = {"id": np.array([[2**24 + 1], [7]]), "word": np.array([[b"a"], [b"bcd"]], object)}
    last = Last()
    last({"id": tf.constant(given["id"]), "word": tf.constant(given["word"])})
    folder = run_of(last).export(tmp_path / "last", "saved_model", example=given)
    served = tf.saved_model.load(folder).serve({name: tf.constant(part) for name, part in given.items()})
    assert served.numpy().tolist() == [[(2**24 + 2) % 10], [0]]
    assert description_of(folder)["example"]["word"] == [["a"], ["bcd"]]

    series = keras.Input((None, 2), name="series")
    sums = keras.Model(series, keras.layers.Dense(3)(series))
    folder = run_of(sums).export(tmp_path / "series", "mlflow")
    about = json.loads((folder / DESCRIPTION).read_text(), parse_constant=pytest.fail)
    assert about["metrics"] == {"loss": None}
    assert about["signature"] == {
        "inputs": [{"name": "", "dtype": "float32", "shape": [None, 2]}],
        "outputs": [{"name": "", "dtype": "float32", "shape": [None, 3]}],
    }
    import mlflow.pyfunc

    longer = np.zeros((4, 9, 2), "float32")
    assert mlflow.pyfunc.load_model(str(tmp_path / "series")).predict(longer).shape == (4, 9, 3)


def test_what_cannot_be_exported_is_one_line(pictures, tmp_path, monkeypatch):
    with pytest.raises(CannotExport, match=f"there is no format onxx; write {', '.join(FORMATS)}. Did you mean onnx?"):
        pictures.export(tmp_path / "a", "onxx")
    pictures.export(tmp_path / "a")  # as keras, which needs nothing
    with pytest.raises(CannotExport, match="a is there already: name another folder, or remove it"):
        pictures.export(tmp_path / "a", "keras")
    with pytest.raises(CannotExport, match="is not on this machine: export to a folder here"):
        pictures.export("hdfs:///models/a", "keras")
    with pytest.raises(CannotExport, match=r"the model cannot be called with its example: .*; give example="):
        pictures.export(tmp_path / "b", "saved_model", example=ROWS)
    monkeypatch.setitem(__import__("sys").modules, "mlflow", None)
    with pytest.raises(CannotExport, match=r"the format mlflow needs mlflow.*: pip install mlflow-skinny"):
        pictures.export(tmp_path / "b", "mlflow")
    assert os.listdir(tmp_path) == ["a"], "nothing half written is left"
    (tmp_path / "a" / DESCRIPTION).write_text(json.dumps({})[:1])
    with pytest.raises(CannotExport, match=r"ddl_magics\.json is damaged: export the model again"):
        description_of(tmp_path / "a")
    with pytest.raises(CannotExport, match=r"b is no exported model: it has no ddl_magics\.json"):
        description_of(tmp_path / "b")
