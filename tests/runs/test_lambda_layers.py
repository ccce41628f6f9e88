"""The code of Lambda layers is loaded from the very bytes that a run of this user has trained, and from no others."""

import hashlib
import json
import os
import platform
import shutil
import sys
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf
from support.fake_cluster import FakeCluster, training

from ddl_magics import store
from ddl_magics.clusters.scoring import DESCRIPTION
from ddl_magics.errors import CannotExport, UnsafeKey
from ddl_magics.options.parsing import parse
from ddl_magics.runs import attaching
from ddl_magics.runs.run_queue import RunQueue
from ddl_magics.runs.saved_model import load_model
from ddl_magics.runtime import events as ev
from ddl_magics.runtime import lambda_layers
from ddl_magics.runtime.driver import prediction
from ddl_magics.serving import servable
from ddl_magics.serving.process.loading import Model
from ddl_magics.session.session import Session
from ddl_magics.store import trained_models

ROWS = np.random.default_rng(1).normal(size=(5, 3)).astype("float32")
PYTHON = platform.python_version()
REFUSED = "the code of the model's Lambda layers is not loaded, as no run of yours has trained this file: .*safe_mode"


def halved(values):
    return values / 2


halved.__module__ = "__main__"  # a cell's: it is pickled by value, for executors that have none of the tests' modules


def saved(folder, seed=1):
    """(a model whose Lambda layers use names and a function of the notebook, its file)."""
    keras.utils.set_random_seed(seed)
    layers = [keras.layers.Lambda(lambda x, power=2.0: tf.abs(x) ** power * scale), keras.layers.Lambda(halved)]
    model = keras.Sequential([keras.Input((3,)), *layers, keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"])
    file = folder / f"{seed}.keras"
    model.save(file)
    return model, file


scale = 3.0


@pytest.fixture(autouse=True)
def notebook(data_dir, monkeypatch):
    """The notebook's variables."""
    for name, value in {"tf": tf, "scale": scale, "halved": halved}.items():
        monkeypatch.setattr(sys.modules["__main__"], name, value, raising=False)


def script(file, python=PYTHON):
    """What the driver of a run says that has trained this file."""
    facts = {"host": "h", "pid": 1, "device": "CPU", "state": "running", "versions": {"python": python}}
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    artifact = ev.make("artifact", 0, name="model-0.keras", size=file.stat().st_size, sha256=digest)
    *events, end = training()
    return [*events, ev.make("worker", 0, **facts), artifact, end]


def trained(file, **versions):
    """The run that has trained it."""
    cluster = FakeCluster(script(file, **versions), artifacts={"model-0.keras": file.read_bytes()})
    run = Session(cluster).submit(parse("--name digits"), {}).wait(10)
    assert run.settled(10)
    return run


def flipped(file):
    """A copy with another byte in the weights."""
    content = bytearray(file.read_bytes())
    content[content.index(b"\x89HDF") + 600] ^= 1
    return content


def test_a_run_s_own_model_is_loaded_and_no_other(tmp_path):
    (model, file), (_, other) = saved(tmp_path), saved(tmp_path, 2)
    run = trained(file)
    theirs = model.predict(ROWS, verbose=0)
    for loaded in (run.model(), load_model(run.save_model(tmp_path / "copy.keras"))):
        np.testing.assert_array_equal(loaded.predict(ROWS, verbose=0), theirs)
    (tmp_path / "flipped.keras").write_bytes(flipped(file))
    request = {"trust": trained_models.trust(file)}  # of %ddl predict
    assert prediction._lambda_layers(request, file.read_bytes(), {"tf": tf})["custom_objects"] == {"tf": tf}
    for untrained in (other, tmp_path / "flipped.keras"):
        with pytest.raises(ValueError, match=REFUSED) as refused:
            load_model(untrained)
        assert "\n" not in str(refused.value)
        assert prediction._lambda_layers(request, untrained.read_bytes(), {"tf": tf}) == {}


def test_a_look_at_a_model_that_no_run_has_trained_leaves_nothing(tmp_path, data_dir):
    assert trained_models.trust(saved(tmp_path)[1]) is None
    assert not (data_dir / "ddl_magics").exists()


def test_layers_with_code_alone_are_trusted_too(tmp_path):
    file = tmp_path / "m.keras"
    keras.Sequential([keras.Input((3,)), keras.layers.Lambda(lambda x: tf.abs(x))]).save(file)
    trained(file)
    assert trained_models.trust(file)["python"] == lambda_layers.this_python()


def test_what_the_code_names_is_the_notebook_s(tmp_path, monkeypatch):
    run = trained(saved(tmp_path)[1])
    expected = run.model().predict(ROWS, verbose=0)
    assert np.isfinite(run.model({"scale": 0.0}).predict(ROWS, verbose=0)).all()
    monkeypatch.delattr(sys.modules["__main__"], "scale")
    with pytest.raises(ValueError, match=r"layers of the model use scale, .*: pass custom_objects=\{'scale': scale\}"):
        run.model()
    np.testing.assert_array_equal(run.model({"scale": scale}).predict(ROWS, verbose=0), expected)


def test_bytecode_of_a_loss_that_is_not_loaded_needs_no_trust(tmp_path):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", lambda labels, outputs: tf.square(labels - outputs))
    model.save(tmp_path / "m.keras")
    assert lambda_layers.load(str(tmp_path / "m.keras"), {}, None, compile=False).predict(ROWS, verbose=0).shape == (
        5,
        1,
    )
    with pytest.raises(ValueError, match=REFUSED):
        lambda_layers.load(str(tmp_path / "m.keras"), {}, None)


def test_bytecode_of_another_python_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"bytecode of Python 3\.7, which Python 3\.\d+ does not read"):
        trained(saved(tmp_path)[1], python="3.7.9").model()


def test_lines_that_no_run_has_written_vouch_for_nothing(tmp_path, data_dir, monkeypatch):
    """Copied for another file, made with another key, from another user's folder; a key that others may read."""
    (_, file), (_, other) = saved(tmp_path), saved(tmp_path, 2)
    trained(file)
    lines = data_dir / "ddl_magics" / "trained-models"
    mine = lines.read_text()
    assert (lines.stat().st_mode | lines.with_suffix(".key").stat().st_mode) & 0o077 == 0
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (file, other)]
    lines.write_text(mine + mine.replace(*digests))
    load_model(file)
    with pytest.raises(ValueError, match=REFUSED):
        load_model(other)

    with monkeypatch.context() as patch:
        patch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "elsewhere"))
        trained(other)
        load_model(other)
    lines.write_text(mine + (tmp_path / "elsewhere" / "ddl_magics" / "trained-models").read_text())
    with pytest.raises(ValueError, match=REFUSED):
        load_model(other)

    key = lines.with_suffix(".key")
    key.chmod(0o640)
    with pytest.raises(UnsafeKey, match="is not this user's alone: remove it, and train again"):
        load_model(file)
    key.chmod(0o600)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(UnsafeKey, match="is not this user's alone"):
        load_model(file)


def test_only_runs_that_this_user_has_launched_are_trusted(tmp_path, data_dir):
    """A run that is attached again after its kernel has died is; one of another notebook, attached, is not."""
    _, file = saved(tmp_path)

    def attached(spec):
        cluster = FakeCluster(script(file), artifacts={"model-0.keras": file.read_bytes()})
        folder = store.create_run(spec, "fake", {"livy": "x"})
        return attaching.attach(attaching.AttachTarget(spec, folder, cluster), RunQueue()).wait(10)

    run = trained(file)
    lines = data_dir / "ddl_magics" / "trained-models"
    launched = [line for line in lines.read_text().splitlines() if line.startswith("run ")]
    shutil.rmtree(run.artifacts.parent)
    lines.write_text("")
    with pytest.raises(ValueError, match=REFUSED):
        attached(run.spec).model()
    store.RunFolder(run.artifacts.parent).remove()
    lines.write_text(f"{launched[0]}\n")
    assert attached(run.spec).model() is not None


def test_a_served_model_is_a_graph_without_code(tmp_path):
    model, file = saved(tmp_path)
    run = trained(file)
    export = tmp_path / "export"
    export.mkdir()
    served = servable.of_trained("digits", run.id, run.trained())
    served.write("", export)
    (scores,) = Model.load(export).call({"input": ROWS}).values()
    np.testing.assert_allclose(scores, model.predict(ROWS, verbose=0), rtol=1e-5)
    with pytest.raises(CannotExport, match="MLflow does not load Lambda layers elsewhere"):
        served.write("mlflow", tmp_path)
    folder = run.export(tmp_path / "keras", "keras")
    description = json.loads((folder / DESCRIPTION).read_text())
    (folder / DESCRIPTION).write_text(json.dumps({**description, "example": ROWS.tolist()}))
    with pytest.raises(
        ValueError, match=r"Lambda.*: if it has a class or Lambda layer of the notebook's, serve run\.exp"
    ):
        Model.load(folder)
    lines = trained_models._folder() / "trained-models"
    lines.write_text("")
    with pytest.raises(ValueError, match=REFUSED):
        servable.of_trained("digits", run.id, run.trained()).write("", tmp_path / "none")


@pytest.mark.timeout(300)
def test_spark_scores_and_evaluates_with_it(spark_cluster, tmp_path):
    from ddl_magics import CannotScore, evaluate, predict

    (model, file), (_, other) = saved(tmp_path), saved(tmp_path, 2)
    run = trained(file)
    frame = spark_cluster(2).createDataFrame([(*map(float, row), 1.0) for row in ROWS], ["a", "b", "c", "y"])
    features = ["a", "b", "c"]
    theirs = model.predict(ROWS, verbose=0)[:, 0]

    def close(scored):
        np.testing.assert_allclose([row["prediction"] for row in scored.collect()], theirs, rtol=1e-5)

    close(run.predict(frame, features))
    close(predict(frame, model, features=features))  # a model of this process
    expected = model.evaluate(ROWS, np.ones(5), verbose=0, return_dict=True)
    assert dict(run.evaluate(frame, "y", features=features)) == pytest.approx(expected, rel=1e-5)
    with pytest.raises(CannotScore, match=REFUSED):
        predict(frame, other, features=features)
    with pytest.raises(CannotScore, match=REFUSED):
        evaluate(frame, other, features=features, label="y")

    # %ddl predict and evaluate: the notebook names the bytes that it trusts.
    names = {"df": frame, **vars(sys.modules["__main__"])}
    request = {
        "file": str(file),
        "trust": trained_models.trust(file),
        "data": "df",
        "transform": None,
        "features": features,
        "batch_rows": 5,
        "name": "scored",
        "output": "prediction",
        "on_error": "fail",
        "label": "y",
        "weight": None,
    }
    assert request["trust"]["python"] == lambda_layers.this_python() and trained_models.trust(other) is None
    prediction.predict(request, names, None)
    close(names["scored"])
    assert prediction.evaluate(request, names, None)["evaluated"]["metrics"] == pytest.approx(expected, rel=1e-5)
    for untrusted in ({"file": str(other)}, {"trust": None}):
        for score in (prediction.predict, prediction.evaluate):
            with pytest.raises(Exception, match=REFUSED):
                score({**request, **untrusted}, names, None)


@pytest.mark.parametrize(
    ("saved_by", "says"), [("2.13.1", "^Keras 2.13.1 saved the model, and Keras 3"), (keras.__version__, "Gone")]
)
def test_a_model_that_another_generation_of_keras_saved_and_this_one_cannot_read(tmp_path, saved_by, says):
    layer = {"module": "keras.layers", "class_name": "Gone", "config": {}, "registered_name": None}
    config = {"module": "keras", "class_name": "Sequential", "config": {"name": "s", "layers": [layer]}}
    with zipfile.ZipFile(tmp_path / "model.keras", "w") as archive:
        archive.writestr("config.json", json.dumps(config))
        archive.writestr("metadata.json", json.dumps({"keras_version": saved_by}))
        archive.writestr("model.weights.h5", b"")
    with pytest.raises((TypeError, ValueError), match=says):
        lambda_layers.load(str(tmp_path / "model.keras"), {}, None)
