"""The files of a deployment: what KServe and Azure ML are told, beside an MLflow folder that predicts as Keras does."""

import json
import os
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import yaml
from IPython.core.error import UsageError
from support.stored import with_model

from ddl_magics.clusters.scoring import description_of
from ddl_magics.commands.kernel import Kernel
from ddl_magics.commands.table import BY_VERB
from ddl_magics.serving import deployment

ROWS = np.random.default_rng(1).normal(size=(5, 3)).astype("float32")


@pytest.fixture(scope="module")
def run(jupyter_data_dir):
    return with_model(keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)]), "My_Digits")


def command(line, run=None):
    return str(BY_VERB["serve"].execute(Kernel(SimpleNamespace(find=lambda word: run)), line.split()))


def predicts_as(folder, run):
    import mlflow.pyfunc

    found = mlflow.pyfunc.load_model(str(folder)).predict(ROWS)
    return np.allclose(found, run.model().predict(ROWS, verbose=0), atol=1e-6)


def test_kserve(run, tmp_path):
    text = command(f"digits --to kserve {tmp_path}/kserve", run)
    assert text.startswith(f"{tmp_path}/kserve has the model and inferenceservice.yaml; ")
    content = (tmp_path / "kserve" / "inferenceservice.yaml").read_text()
    service = yaml.safe_load(content)
    assert (service["apiVersion"], service["kind"]) == ("serving.kserve.io/v1beta1", "InferenceService")
    model = service["spec"]["predictor"]["model"]
    assert model["modelFormat"] == {"name": "mlflow"} and model["protocolVersion"] == "v2"
    assert service["metadata"] == {"name": "my-digits", "annotations": {"ddl-magics/run": run.id}}
    assert "# Checked: " in content and "# Not checked: a cluster" in content
    assert predicts_as(tmp_path / "kserve" / "model", run)
    versions = description_of(tmp_path / "kserve" / "model")["versions"]
    assert f"keras=={versions['keras']}" in (tmp_path / "kserve" / "model" / "requirements.txt").read_text()
    assert f"Keras {versions['keras']}" in content


def test_azureml(run, tmp_path):
    text = command(f"digits --to azureml {tmp_path}/azure --name other", run)
    assert "has the model and endpoint.yaml, deployment.yaml" in text
    endpoint, deployment = (
        yaml.safe_load((tmp_path / "azure" / name).read_text()) for name in ("endpoint.yaml", "deployment.yaml")
    )
    assert endpoint["name"] == deployment["endpoint_name"] == "other" and endpoint["auth_mode"] == "key"
    assert deployment["model"] == {"path": "model", "type": "mlflow_model"} and deployment["tags"] == {"run": run.id}
    assert predicts_as(tmp_path / "azure" / deployment["model"]["path"], run)


def test_what_cannot_be_deployed_leaves_nothing(run, tmp_path):
    (tmp_path / "there").mkdir()
    with pytest.raises(UsageError, match="is there already"):
        command(f"digits --to kserve {tmp_path}/there", run)
    exported = run.export(tmp_path / "export", "keras")
    with pytest.raises(UsageError, match="has the format keras: a deployment needs one in the format mlflow"):
        command(f"{exported} --to kserve {tmp_path}/new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["export", "there"]


@pytest.mark.parametrize(
    ("name", "service"),
    [("My_Digits", "my-digits"), ("a" * 31 + "_b", "a" * 31), ("2nd", "model-2nd"), ("___", "model")],
)
def test_a_name_is_one_that_kubernetes_takes(name, service):
    assert deployment._service(name) == service


def test_code_in_the_model_of_a_stranger_is_not_executed_by_the_server(tmp_path):
    """The server loads a `.keras` file in Keras' safe mode; this is the code that it executes."""
    from ddl_magics.serving.process.loading import Model

    canary = str(tmp_path / "canary")
    layer = keras.layers.Lambda(eval(f"lambda x: (open({canary!r}, 'w').close(), x)[1]"), output_shape=(3,))
    model = keras.Sequential([keras.Input((3,)), layer, keras.layers.Dense(2)])
    (folder := tmp_path / "export").mkdir()
    assert not os.path.exists(canary), "Keras has not called the layer yet"
    model.save(folder / "model.keras")
    description = {"format": "keras", "model": "model.keras", "inputs": None, "versions": {}}
    (folder / "ddl_magics.json").write_text(json.dumps(description))
    with pytest.raises(ValueError, match=r"cannot load the model \(.*\): if it has a class or Lambda layer"):
        Model.load(folder)
    assert not os.path.exists(canary)
