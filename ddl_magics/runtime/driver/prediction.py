"""`%ddl predict` and `%ddl evaluate`: a run's model on a DataFrame of the session."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Callable, Mapping, MutableMapping

from ..data.columns import DataError, frame_named, is_spark
from ..data.transform import read as read_transform
from ..scoring import evaluation
from ..scoring.predictor import Predictor, prepared
from . import uploads

if TYPE_CHECKING:
    from ..data.transform import Transform
    from .job import Job
    from .monitor_job import MonitorJob


class _Unknown(Exception):
    """The model must be sent first."""


def predict(request: str, namespace: MutableMapping[str, Any], find: Callable[[str], Job | MonitorJob | None]) -> str:
    """As `api.predict` says. find: returns the run with an id, or None."""
    return _answer(lambda: _predict(json.loads(request), namespace, find))


def evaluate(request: str, namespace: Mapping[str, Any], find: Callable[[str], Job | MonitorJob | None]) -> str:
    """As `api.evaluate` says. find: returns the run with an id, or None."""
    return _answer(lambda: _evaluate(json.loads(request), namespace, find))


def _answer(score: Callable[[], dict[str, Any]]) -> str:
    try:
        return json.dumps({"ok": True, **score()}, default=_plain)
    except _Unknown:
        return json.dumps({"ok": False, "unknown": True})
    except (DataError, uploads.UploadProblem) as error:
        return json.dumps({"ok": False, "error": {"kind": "usage", "message": str(error)}})


def _predict(
    asked: Any, namespace: MutableMapping[str, Any], find: Callable[[str], Job | MonitorJob | None]
) -> dict[str, Any]:
    model = _model(asked, find)
    frame, name = frame_named("--data", asked["data"], namespace), asked["name"]
    if not is_spark(namespace.get(name, frame)):
        raise DataError("--name %s: the session has another variable of that name; choose another" % name)
    predictor = Predictor(
        model,
        asked["features"],
        output=asked["output"],
        batch_rows=asked["batch_rows"],
        on_error=asked["on_error"],
        transform=_transform(asked, namespace),
    )
    scored = predictor.predict(frame)
    namespace[name] = scored
    return {"columns": [[f.name, f.dataType.simpleString()] for f in scored.schema.fields[len(frame.columns) :]]}


def _evaluate(
    asked: Any, namespace: Mapping[str, Any], find: Callable[[str], Job | MonitorJob | None]
) -> dict[str, Any]:
    model, frame = _model(asked, find), frame_named("--data", asked["data"], namespace)
    found = evaluation.evaluate(
        frame,
        model,
        asked["features"],
        label=asked["label"],
        weight=asked["weight"],
        batch_rows=asked["batch_rows"],
        transform=_transform(asked, namespace),
    )
    return {"found": found}


def _transform(asked: Any, namespace: Mapping[str, Any]) -> Transform | None:
    """The function of the run's --transform, which the session must have."""
    option = asked.get("transform")
    if option is None:
        return None
    name, by_batch = read_transform(option)
    if not callable(namespace.get(name)):
        raise DataError(
            "the model was trained with --transform %s, and the session has no such function: run the cell that "
            "defines it" % name
        )
    return prepared(namespace[name], by_batch)


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays as JSON has them."""
    return value.tolist()


def _model(asked: Any, find: Callable[[str], Job | MonitorJob | None]) -> bytes:
    """The model's file: of the run if this process still has it, else as it was sent."""
    job = find(asked["run"])
    artifact = None if job is None else job.files.artifacts.get(asked["artifact"])
    if artifact is not None:
        with open(artifact.path, "rb") as file:
            return file.read()
    if not asked["sent"]:
        raise _Unknown
    return uploads.take(asked["run"])
