"""The files that deploy the MLflow folder of a served model elsewhere: KServe, and Azure Machine Learning."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from ddl_magics.errors import CannotServe

#: Where the MLflow folder is, in the folder of a deployment.
MODEL = "model"
TARGETS = ("kserve", "azureml")

_KSERVE = """\
# Serves the folder {model}/ with KServe, by the Open Inference Protocol.
#
# Copy {model}/ to a storage that the cluster reads, write its address after storageUri, and apply this file:
#     kubectl apply -f inferenceservice.yaml
#
# Checked: the fields are those of KServe's v1beta1 InferenceService; MLServer serves the same folder on one machine.
# Not checked: a cluster. The cluster needs a serving runtime for the format mlflow, such as kserve-mlserver:
#     kubectl get clusterservingruntimes
# and that runtime's image must have Keras {keras}, as {model}/requirements.txt says.
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata:
  name: {name}
  annotations:
    ddl-magics/run: {run}
spec:
  predictor:
    model:
      modelFormat:
        name: mlflow
      protocolVersion: v2
      storageUri: REPLACE-WITH-THE-ADDRESS-OF-THE-FOLDER
      resources:
        requests:
          cpu: "1"
          memory: 2Gi
        limits:
          memory: 4Gi
"""

_ENDPOINT = """\
# az ml online-endpoint create --file endpoint.yaml
#
# Checked: the fields are those of the schema below. Not checked: a workspace.
$schema: https://azuremlschemas.azureedge.net/latest/managedOnlineEndpoint.schema.json
name: {name}
auth_mode: key
"""

_DEPLOYMENT = """\
# az ml online-deployment create --file deployment.yaml --all-traffic
#
# Azure ML serves an MLflow model without code of yours, by its own scoring server: the requests are MLflow's, as
# {{"input_data": ...}}, and not those of the Open Inference Protocol.
#
# Checked: the fields are those of the schema below, and MLflow reads the folder. Not checked: a workspace, and whether
# its image can install what {model}/conda.yaml asks for.
$schema: https://azuremlschemas.azureedge.net/latest/managedOnlineDeployment.schema.json
name: {deployment}
endpoint_name: {name}
model:
  path: {model}
  type: mlflow_model
tags:
  run: {run}
instance_type: Standard_DS3_v2
instance_count: 1
"""


def write(target: str, folder: Path, name: str, run: str, keras: str, export: Callable[[Path], None]) -> list[Path]:
    """Write a deployment into an empty folder: the MLflow folder `model`, and the target's files, which are returned.

    Args:
        target: one of `TARGETS`.
        folder: an empty folder.
        name: of the model.
        run: the id of the run that trained it.
        keras: the version of Keras that saved it.
        export: writes an MLflow folder into an empty folder.

    Raises:
        CannotServe: there is no such target.
    """
    if target not in TARGETS:
        raise CannotServe(f"there is no deployment to {target}: write --to {' or '.join(TARGETS)}")
    (folder / MODEL).mkdir()
    export(folder / MODEL)
    service = _service(name)
    texts_of_model = {"name": service, "deployment": f"{service[:24]}-1", "run": run}
    # JSON's texts are YAML's, whatever is in them: unquoted, a model of the name "yes" would be a bool.
    words = {"model": MODEL, "keras": keras, **{key: json.dumps(text) for key, text in texts_of_model.items()}}
    texts = (
        {"inferenceservice.yaml": _KSERVE}
        if target == "kserve"
        else {"endpoint.yaml": _ENDPOINT, "deployment.yaml": _DEPLOYMENT}
    )
    written = []
    for file, text in texts.items():
        written.append(folder / file)
        written[-1].write_text(text.format(**words), encoding="utf-8")
    return written


def _service(name: str) -> str:
    """A name as Kubernetes takes it: at most 32 small letters, digits and hyphens, a letter first, no hyphen last."""
    words = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")
    return (words if words[:1].isalpha() else f"model-{words}")[:32].strip("-")
