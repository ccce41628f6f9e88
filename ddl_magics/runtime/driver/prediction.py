"""`%ddl predict`: a DataFrame of the session with a model's predictions, under a name of the session."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Callable, MutableMapping

from ..data.columns import DataError, frame_named, is_spark
from ..scoring.predictor import Predictor
from . import uploads

if TYPE_CHECKING:
    from .job import Job


def predict(request: str, namespace: MutableMapping[str, Any], find: Callable[[str], Job | None]) -> str:
    """As `api.predict` says. find: returns the run with an id, or None."""
    asked = json.loads(request)
    try:
        model = _model(asked, find)
        if model is None:
            return json.dumps({"ok": False, "unknown": True})
        frame, name = frame_named("--data", asked["data"], namespace), asked["name"]
        if not is_spark(namespace.get(name, frame)):
            raise DataError("--name %s: the session has another variable of that name; choose another" % name)
        scored = Predictor(
            model, asked["features"], asked["output"], asked["batch_rows"], asked["on_error"], None
        ).predict(frame)
    except (DataError, uploads.UploadProblem) as error:
        return json.dumps({"ok": False, "error": {"kind": "usage", "message": str(error)}})
    namespace[name] = scored
    new = [[field.name, field.dataType.simpleString()] for field in scored.schema.fields[len(frame.columns) :]]
    return json.dumps({"ok": True, "columns": new})


def _model(asked: Any, find: Callable[[str], Job | None]) -> bytes | None:
    """The model's file: of the run if this process still has it, else as it was sent; None where it must be sent."""
    job = find(asked["run"])
    artifact = None if job is None else job.files.artifacts.get(asked["artifact"])
    if artifact is not None:
        with open(artifact.path, "rb") as file:
            return file.read()
    return uploads.take(asked["run"]) if asked["sent"] else None
