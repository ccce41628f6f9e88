"""Runs as MLflow keeps them: parameters, metrics with their steps and times, tags under MLflow's names, artifacts.

`mlflow-skinny` suffices for a server; a database on this machine needs SQLAlchemy and Alembic, too.
"""

from __future__ import annotations

import getpass
import os
import re
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any

from ddl_magics.errors import NotInstalled
from ddl_magics.history.scalars import Scalar
from ddl_magics.history.tracking_data import TrackingData
from ddl_magics.options.redaction import has_password
from ddl_magics.runtime import events as ev
from ddl_magics.store import RunRecord, SearchRecord

#: Name of the experiment, where MLflow's own variable does not say another.
EXPERIMENT = "ddl_magics"
INSTALL = "pip install mlflow-skinny sqlalchemy alembic"
#: MLflow takes so many metrics in one request.
BATCH = 1000
#: MLflow's own bounds.
MOST_PARAMETER_CHARACTERS = 6000
MOST_DIGEST_CHARACTERS = 36
#: What MLflow refuses in the name of a metric: Keras has "recall@5", for example.
_NOT_IN_NAMES = re.compile(r"[^\w./: -]")

#: Our state -> MLflow's status.
_STATUS = {ev.FINISHED: "FINISHED", ev.STOPPED: "FINISHED", ev.FAILED: "FAILED", ev.LOST: "KILLED"}

#: The tag that finds a run or a search again.
ID = "ddl_magics.id"

#: Held while a search is looked for or made: its trials begin at the same time. By server, as one that is away must not
#: hold up what is written to another.
_finding: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


def default_experiment() -> str:
    """The experiment of MLflow's own variable `MLFLOW_EXPERIMENT_NAME`, or `EXPERIMENT`."""
    return os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT


class TrackedRun:
    """A run of MLflow, which grows as values are added."""

    def __init__(self, client: Any, number: str, latest: Mapping[str, int]) -> None:
        """latest: name of a metric -> time in milliseconds of its newest value there."""
        self._client, self.number = client, number
        self._latest = dict(latest)

    def add(self, scalars: Iterable[Scalar]) -> None:
        """Add values; those that the run has are left out."""
        metrics = (metric for metric in map(_metric, scalars) if metric is not None and self._is_new(metric))
        while batch := list(islice(metrics, BATCH)):
            self._client.log_batch(self.number, metrics=batch)

    def _is_new(self, metric: Any) -> bool:
        return bool(metric.timestamp > self._latest.get(metric.key, -1))

    def end(self, run: TrackingData) -> None:
        """Write what is known at the run's end, and its files."""
        from mlflow.entities import RunTag

        tags = [RunTag(name, value) for name, value in _tags(run).items() if value]
        self._client.log_batch(self.number, tags=tags)
        data = _dataset(run)
        if data is not None:
            self._client.log_inputs(self.number, datasets=[data])
        for file in run.files:
            self._client.log_artifact(self.number, str(file))
        for name, text in _texts(run).items():
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, name)
                path.write_text(text, encoding="utf-8")
                self._client.log_artifact(self.number, str(path))
        record = run.record
        ended = _milliseconds(record.ended or record.created)
        self._client.set_terminated(self.number, _STATUS.get(record.state, "RUNNING"), ended)


def begin(
    uri: str, experiment: str, record: RunRecord, parameters: Mapping[str, Any], parent: SearchRecord | None = None
) -> TrackedRun:
    """Begin a run on a tracking server or a database, or continue one that has begun there and not ended.

    Args:
        uri: of the server ("http://host:5000") or the database ("sqlite:///mlflow.db").
        experiment: made if it is not there.
        record: the run.
        parameters: its hyperparameters.
        parent: the search that it is a trial of.

    Raises:
        NotInstalled: MLflow is missing.
        ValueError: the URI has a password, which MLflow takes from MLFLOW_TRACKING_PASSWORD.
    """
    client = _client(uri)
    where = _experiment(client, experiment)
    known = _known(client, where, record.id)
    if known is not None and client.get_run(known).info.status == "RUNNING":
        return TrackedRun(client, known, _latest(client, known))
    return _begin(client, where, record, parameters, _parent(client, where, record, parent))


def write(uri: str, experiment: str, run: TrackingData, parent: SearchRecord | None = None) -> str:
    """Write a run as a whole; returns MLflow's id of it. One that was written before is replaced.

    Args and raises: as `begin`.
    """
    client = _client(uri)
    where = _experiment(client, experiment)
    return _write(client, where, run, _parent(client, where, run.record, parent))


def write_search(uri: str, experiment: str, search: SearchRecord, trials: Iterable[TrackingData]) -> str:
    """Write a search as a run with its trials as children; returns MLflow's id of it. Raises as `begin` does."""
    client = _client(uri)
    where = _experiment(client, experiment)
    parent = _search(client, where, search)
    for trial in trials:
        _write(client, where, trial, parent)
    _end_search(client, parent, search)
    return parent


def end_search(uri: str, experiment: str, search: SearchRecord) -> None:
    """Say that a search has ended. Raises as `begin` does."""
    client = _client(uri)
    where = _experiment(client, experiment)
    _end_search(client, _search(client, where, search), search)


def require(uri: str) -> None:
    """Check that MLflow is installed, and that the URI has no password. Raises as `begin` does."""
    if has_password(uri):
        raise ValueError("the URI holds a password: set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD instead.")
    if find_spec("mlflow") is None:
        raise NotInstalled(f"MLflow is missing here: {INSTALL}")


def _client(uri: str) -> Any:
    require(uri)
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri)


def _experiment(client: Any, name: str) -> str:
    with _finding[client.tracking_uri]:
        found = client.get_experiment_by_name(name)
        return str(client.create_experiment(name) if found is None else found.experiment_id)


def _known(client: Any, experiment: str, run: str) -> str | None:
    """MLflow's id of a run that was written before."""
    found = client.search_runs([experiment], f"tags.`{ID}` = '{run}'", max_results=1)
    return str(found[0].info.run_id) if found else None


def _latest(client: Any, number: str) -> dict[str, int]:
    names = client.get_run(number).data.metrics
    return {name: max(metric.timestamp for metric in client.get_metric_history(number, name)) for name in names}


def _parent(client: Any, experiment: str, record: RunRecord, search: SearchRecord | None) -> str | None:
    """MLflow's id of the search of a trial, or of the run that a scaling report measures, if that was written."""
    if search is not None:
        return _search(client, experiment, search)
    parent = record.spec.get("parent")
    return _known(client, experiment, str(parent)) if parent else None


def _search(client: Any, experiment: str, search: SearchRecord) -> str:
    """MLflow's run of a search, made if it is not there."""
    with _finding[client.tracking_uri]:
        known = _known(client, experiment, search.id)
        if known is not None:
            return known
        tags = {
            ID: search.id,
            "ddl_magics.cluster": search.cluster,
            "ddl_magics.objective": str(search.spec.get("objective") or ""),
            **_source(search.notebook),
        }
        given = {name: value for name, value in tags.items() if value}
        made = client.create_run(experiment, start_time=_milliseconds(search.created), tags=given, run_name=search.name)
        number = str(made.info.run_id)
        options = {name: search.spec.get(name) for name in ("trials", "search", "prune", "objective", "seed")}
        _log_parameters(client, number, options)
        return number


def _end_search(client: Any, number: str, search: SearchRecord) -> None:
    best, metric = search.progress.get("best"), search.metric
    if best is not None:
        client.log_metric(number, _NOT_IN_NAMES.sub("_", f"best/{metric}"), best)
    ended = None if search.ended is None else _milliseconds(search.ended)
    client.set_terminated(number, _STATUS.get(search.state, "RUNNING"), ended)


def _begin(
    client: Any, experiment: str, record: RunRecord, parameters: Mapping[str, Any], parent: str | None
) -> TrackedRun:
    tags = {ID: record.id, "mlflow.parentRunId": parent or "", **_source(record.notebook)}
    made = client.create_run(
        experiment,
        start_time=_milliseconds(record.created),
        tags={name: value for name, value in tags.items() if value},
        run_name=record.title or record.name,
    )
    number = str(made.info.run_id)
    _log_parameters(client, number, parameters)
    return TrackedRun(client, number, {})


def _write(client: Any, experiment: str, run: TrackingData, parent: str | None) -> str:
    known = _known(client, experiment, run.record.id)
    written = _begin(client, experiment, run.record, run.parameters, parent)
    try:
        written.add(run.scalars)
        written.end(run)
    except BaseException:
        client.delete_run(written.number)
        raise
    if known is not None:
        client.delete_run(known)  # written anew: MLflow's metrics cannot be replaced
    return written.number


def _log_parameters(client: Any, number: str, parameters: Mapping[str, Any]) -> None:
    from mlflow.entities import Param

    given = {name: value for name, value in parameters.items() if value is not None}
    params = [Param(name, str(value)[:MOST_PARAMETER_CHARACTERS]) for name, value in given.items()]
    client.log_batch(number, params=params)


def _metric(scalar: Scalar) -> Any:
    """None for a value that is no number: databases refuse it."""
    from mlflow.entities import Metric

    if not isfinite(scalar.value):
        return None
    return Metric(_NOT_IN_NAMES.sub("_", scalar.name), scalar.value, _milliseconds(scalar.time), scalar.step)


def _texts(run: TrackingData) -> dict[str, str]:
    texts = {name: text for name, text in run.texts.items() if text}
    if run.provenance.packages:
        lines = [f"{name}=={version}\n" for name, version in sorted(run.provenance.packages.items())]
        texts["requirements.txt"] = "".join(lines)
    if run.provenance.git.get("diff"):
        texts["diff.patch"] = run.provenance.git["diff"]
    return texts


def _tags(run: TrackingData) -> dict[str, str]:
    record, git = run.record, run.provenance.git
    return {
        "ddl_magics.cluster": record.cluster,
        "ddl_magics.state": record.state,
        "ddl_magics.tags": ", ".join(record.labels),
        "ddl_magics.files": "\n".join(run.locations),
        "mlflow.note.content": record.note,
        "mlflow.source.git.commit": str(git.get("commit", "")),
        "mlflow.source.git.branch": str(git.get("branch", "")),
        "mlflow.source.git.repoURL": str(git.get("remote", "")),
    }


def _source(notebook: str) -> dict[str, str]:
    return {"mlflow.source.name": notebook, "mlflow.source.type": "NOTEBOOK", "mlflow.user": _user()}


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        return ""


def _dataset(run: TrackingData) -> Any:
    """What --data named, as MLflow's dataset with its digest; None without it."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    fingerprint, name = run.provenance.data, run.record.spec.get("data")
    digest = next((fingerprint[key] for key in ("content", "sha256", "plan") if fingerprint.get(key)), "")
    if not name or not digest:
        return None
    sources = fingerprint.get("sources") or [{"path": str(name)}]
    found = Dataset(str(name), str(digest)[:MOST_DIGEST_CHARACTERS], "local", str(sources[0]["path"]))
    return DatasetInput(found, [InputTag("mlflow.data.context", "training")])


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)
