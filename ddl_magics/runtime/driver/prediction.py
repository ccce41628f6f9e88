"""`%ddl predict` and `%ddl evaluate`: a run's model on a DataFrame of the session."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Callable, Mapping, MutableMapping

from .. import lambda_layers
from ..data.columns import DataError, frame_named, is_pandas, is_spark
from ..data.transform import read as read_transform
from ..scoring import evaluation
from ..scoring.predictor import Predictor, prepared
from . import uploads

if TYPE_CHECKING:
    from ..data.transform import Transform
    from .job import Job
    from .monitor_job import MonitorJob

    #: Returns the run with an id, or None.
    FindJob = Callable[[str], Job | MonitorJob | None]


class _ModelMissing(Exception):
    """The model must be sent first."""


def reply(score: Callable[[], dict[str, Any]]) -> str:
    """What the API replies with what `score`, one of the two functions below, returns or raises."""
    try:
        return json.dumps({"ok": True, **score()}, default=lambda value: value.tolist())  # of NumPy
    except _ModelMissing:
        return json.dumps({"ok": False, "unknown": True})
    except (DataError, uploads.UploadProblem) as error:
        return json.dumps({"ok": False, "error": {"kind": "usage", "message": str(error)}})


def predict(request: Any, namespace: MutableMapping[str, Any], find_job: FindJob) -> dict[str, Any]:
    """As `api.predict` says. request: parsed."""
    model = _model(request, find_job)
    frame, name = frame_named("--data", request["data"], namespace), request["name"]
    replaced = namespace.get(name, frame)
    if not is_spark(replaced) and not is_pandas(replaced):
        raise DataError("--name %s: there is another variable of that name; choose another" % name)
    options = {name: request[name] for name in ("features", "output", "batch_rows", "on_error")}
    options.update(_lambda_layers(request, model, namespace))
    scored = Predictor(model, transform=_transform(request, namespace), **options).predict(frame)
    namespace[name] = scored
    return {"columns": [[f.name, f.dataType.simpleString()] for f in scored.schema.fields[len(frame.columns) :]]}


def evaluate(request: Any, namespace: Mapping[str, Any], find_job: FindJob) -> dict[str, Any]:
    """As `api.evaluate` says. request: parsed."""
    model, frame = _model(request, find_job), frame_named("--data", request["data"], namespace)
    options = {name: request[name] for name in ("features", "label", "weight", "batch_rows")}
    options.update(_lambda_layers(request, model, namespace))
    evaluated = evaluation.evaluate(frame, model, transform=_transform(request, namespace), **options)
    return {"evaluated": evaluated}


def _transform(request: Any, namespace: Mapping[str, Any]) -> Transform | None:
    """The function of the run's --transform, which the session must have."""
    option = request["transform"]
    if option is None:
        return None
    name, by_batch = read_transform(option)
    if not callable(namespace.get(name)):
        raise DataError(
            "the model was trained with --transform %s, and the session has no such function: run the cell that "
            "defines it" % name
        )
    return prepared(namespace[name], by_batch)


def _lambda_layers(request: Any, model: bytes, namespace: Mapping[str, Any]) -> dict[str, Any]:
    """The options for the model's Lambda layers. The notebook trusts these very bytes, or others, or none."""
    trust = request["trust"]
    if trust is None or trust["sha256"] != hashlib.sha256(model).hexdigest():
        return {}
    python = trust["python"]
    return {"code_python": python, "custom_objects": lambda_layers.objects(model, python, namespace)}


def _model(request: Any, find_job: FindJob) -> bytes:
    """The model's file: on this machine, of the run if this process still has it, or as it was sent."""
    if request["file"] is not None:
        with open(request["file"], "rb") as file:
            return file.read()
    job = find_job(request["run"])
    artifact = None if job is None else job.files.artifacts.get(request["artifact"])
    if artifact is not None:
        with open(artifact.path, "rb") as file:
            return file.read()
    if not request["sent"]:
        raise _ModelMissing
    return uploads.take(request["run"])
