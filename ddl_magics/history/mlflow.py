"""Runs as MLflow keeps them: parameters, metrics with their steps and times, tags under MLflow's names, artifacts.

`mlflow-skinny` suffices for a server; a database on this machine needs SQLAlchemy and Alembic, too.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any

from ddl_magics.errors import NotInstalled
from ddl_magics.history.provenance import Provenance
from ddl_magics.history.scalars import Scalar
from ddl_magics.options.redaction import has_password
from ddl_magics.runtime import events as ev
from ddl_magics.store import RunRecord

INSTALL = "pip install mlflow-skinny sqlalchemy alembic"
#: MLflow takes so many metrics in one request.
BATCH = 1000
#: MLflow's own bounds.
MOST_PARAMETER_CHARACTERS = 6000
#: What MLflow refuses in the name of a metric: Keras has "recall@5", for example.
_NOT_IN_NAMES = re.compile(r"[^\w./: -]")

#: Our state -> MLflow's status.
_STATUS = {ev.FINISHED: "FINISHED", ev.STOPPED: "FINISHED", ev.FAILED: "FAILED", ev.LOST: "KILLED"}


@dataclass(frozen=True)
class Exported:
    """A run for MLflow. files: what becomes its artifacts. texts: name -> content of further ones."""

    record: RunRecord
    parameters: Mapping[str, Any]
    scalars: Iterable[Scalar]
    kept: Provenance
    files: Sequence[Path] = ()
    texts: Mapping[str, str] = field(default_factory=dict)


def write(uri: str, experiment: str, run: Exported, parent: str | None = None) -> str:
    """Write a run to a tracking server or a database; returns MLflow's id of it. Once written, it is found again.

    Args:
        uri: of the server ("http://host:5000") or the database ("sqlite:///mlflow.db").
        experiment: made if it is not there.
        run: the run.
        parent: MLflow's id of the search that it is a trial of.

    Raises:
        NotInstalled: MLflow is missing.
        ValueError: the URI has a password, which MLflow takes from MLFLOW_TRACKING_PASSWORD.
    """
    client = _client(uri)
    return _write(client, _experiment(client, experiment), run, parent)


def write_search(uri: str, experiment: str, name: str, tags: Mapping[str, str], trials: Iterable[Exported]) -> str:
    """Write a search as a run with its trials as children; returns MLflow's id of it. Raises as `write` does."""
    client = _client(uri)
    number = _experiment(client, experiment)
    found = _known(client, number, tags["ddl_magics.id"])
    parent = found or client.create_run(number, run_name=name, tags=dict(tags)).info.run_id
    for trial in trials:
        _write(client, number, trial, parent)
    client.set_terminated(parent)
    return str(parent)


def _client(uri: str) -> Any:
    if has_password(uri):
        raise ValueError("the URI holds a password: set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD instead.")
    if find_spec("mlflow") is None:
        raise NotInstalled(f"MLflow is missing here: {INSTALL}")
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri)


def _experiment(client: Any, name: str) -> str:
    found = client.get_experiment_by_name(name)
    return str(client.create_experiment(name) if found is None else found.experiment_id)


def _known(client: Any, experiment: str, run: str) -> str | None:
    """MLflow's id of a run that was written before."""
    found = client.search_runs([experiment], f"tags.`ddl_magics.id` = '{run}'", max_results=1)
    return str(found[0].info.run_id) if found else None


def _write(client: Any, experiment: str, run: Exported, parent: str | None) -> str:
    record = run.record
    known = _known(client, experiment, record.id)
    began = _milliseconds(record.created)
    made = client.create_run(experiment, start_time=began, run_name=record.title or record.name)
    number = str(made.info.run_id)
    try:
        _fill(client, number, run, parent)
    except BaseException:
        client.delete_run(number)
        raise
    if known is not None:
        client.delete_run(known)  # written anew: MLflow's metrics cannot be replaced
    return number


def _fill(client: Any, number: str, run: Exported, parent: str | None) -> None:
    from mlflow.entities import Metric, Param, RunTag

    record = run.record
    parameters = [Param(name, str(value)[:MOST_PARAMETER_CHARACTERS]) for name, value in run.parameters.items()]
    tags = [RunTag(name, value) for name, value in _tags(run, parent).items() if value]
    client.log_batch(number, params=parameters, tags=tags)
    metrics = (
        Metric(_NOT_IN_NAMES.sub("_", each.name), each.value, _milliseconds(each.time), each.step)
        for each in run.scalars
        if isfinite(each.value)
    )
    while batch := list(islice(metrics, BATCH)):
        client.log_batch(number, metrics=batch)
    for file in run.files:
        client.log_artifact(number, str(file))
    for name, text in _texts(run).items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, name)
            path.write_text(text, encoding="utf-8")
            client.log_artifact(number, str(path))
    client.set_terminated(number, _STATUS.get(record.state, "RUNNING"), _milliseconds(record.ended or record.created))


def _texts(run: Exported) -> dict[str, str]:
    texts = {name: text for name, text in run.texts.items() if text}
    if run.kept.packages:
        lines = [f"{name}=={version}\n" for name, version in sorted(run.kept.packages.items())]
        texts["requirements.txt"] = "".join(lines)
    if run.kept.git.get("diff"):
        texts["diff.patch"] = run.kept.git["diff"]
    return texts


def _tags(run: Exported, parent: str | None) -> dict[str, str]:
    record, git = run.record, run.kept.git
    return {
        "ddl_magics.id": record.id,
        "ddl_magics.cluster": record.cluster,
        "ddl_magics.tags": ", ".join(record.labels),
        "mlflow.note.content": record.note,
        "mlflow.parentRunId": parent or "",
        "mlflow.source.name": record.notebook,
        "mlflow.source.type": "NOTEBOOK",
        "mlflow.source.git.commit": str(git.get("commit", "")),
        "mlflow.source.git.branch": str(git.get("branch", "")),
        "mlflow.source.git.repoURL": str(git.get("remote", "")),
    }


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)
