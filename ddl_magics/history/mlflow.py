"""Runs in MLflow: parameters, metrics with their steps and times, tags under MLflow's names, artifacts.

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

#: Name of the experiment, unless `MLFLOW_EXPERIMENT_NAME` is set.
EXPERIMENT = "ddl_magics"
INSTALL = "pip install mlflow-skinny sqlalchemy alembic"
#: The most metrics of one request.
BATCH = 1000
#: Bounds of MLflow.
MAX_PARAMETER_CHARACTERS = 6000
MAX_DIGEST_CHARACTERS = 36
#: Characters that MLflow refuses in the name of a metric, such as Keras's "recall@5".
_NOT_IN_NAMES = re.compile(r"[^\w./: -]")

#: Our state -> MLflow's status.
_STATUS = {ev.FINISHED: "FINISHED", ev.STOPPED: "FINISHED", ev.FAILED: "FAILED", ev.LOST: "KILLED"}

#: The tag that finds a run or a search again.
ID = "ddl_magics.id"

#: Held while a search is looked up or created, as its trials begin at the same time. One per server, so that a server
#: that does not answer blocks no other.
_creation_locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


def default_experiment() -> str:
    """The experiment of MLflow's own variable `MLFLOW_EXPERIMENT_NAME`, or `EXPERIMENT`."""
    return os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT


class TrackedRun:
    """A run of MLflow, which grows as values are added."""

    def __init__(self, client: Any, number: str, newest_times: Mapping[str, int]) -> None:
        """newest_times: name of a metric -> time in milliseconds of its newest value in MLflow."""
        self._client, self.number = client, number
        self._newest_times = dict(newest_times)

    def add(self, scalars: Iterable[Scalar]) -> None:
        """Add the values that the run does not have yet."""
        metrics = (metric for metric in map(_metric, scalars) if metric is not None and self._is_new(metric))
        while batch := list(islice(metrics, BATCH)):
            self._client.log_batch(self.number, metrics=batch)

    def _is_new(self, metric: Any) -> bool:
        return bool(metric.timestamp > self._newest_times.get(metric.key, -1))

    def finish(self, run: TrackingData) -> None:
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
        end_time = _milliseconds(record.ended or record.created)
        self._client.set_terminated(self.number, _STATUS.get(record.state, "RUNNING"), end_time)


def begin(
    uri: str, experiment: str, record: RunRecord, parameters: Mapping[str, Any], parent: SearchRecord | None = None
) -> TrackedRun:
    """Begin a run on a tracking server or a database, or continue one that has begun there and not ended.

    Args:
        uri: of the server ("http://host:5000") or the database ("sqlite:///mlflow.db").
        experiment: its name; it is created if it is missing.
        record: the run.
        parameters: its hyperparameters.
        parent: the search that it is a trial of.

    Raises:
        NotInstalled: MLflow is missing.
        ValueError: the URI has a password, which MLflow takes from MLFLOW_TRACKING_PASSWORD.
    """
    client = _client(uri)
    experiment_id = _experiment(client, experiment)
    run_id = _run_id(client, experiment_id, record.id)
    if run_id is not None and client.get_run(run_id).info.status == "RUNNING":
        return TrackedRun(client, run_id, _newest_times(client, run_id))
    return _begin(client, experiment_id, record, parameters, _parent(client, experiment_id, record, parent))


def write(uri: str, experiment: str, run: TrackingData, parent: SearchRecord | None = None) -> str:
    """Write a complete run; returns its id in MLflow. It replaces an earlier copy of the run.

    Args and raises: as `begin`.
    """
    client = _client(uri)
    experiment_id = _experiment(client, experiment)
    return _write(client, experiment_id, run, _parent(client, experiment_id, run.record, parent))


def write_search(uri: str, experiment: str, search: SearchRecord, trials: Iterable[TrackingData]) -> str:
    """Write a search as a run with its trials as children; returns MLflow's id of it. Raises as `begin` does."""
    client = _client(uri)
    experiment_id = _experiment(client, experiment)
    parent = _search(client, experiment_id, search)
    for trial in trials:
        _write(client, experiment_id, trial, parent)
    _end_search(client, parent, search)
    return parent


def end_search(uri: str, experiment: str, search: SearchRecord) -> None:
    """Mark a search as ended. Raises as `begin` does."""
    client = _client(uri)
    experiment_id = _experiment(client, experiment)
    _end_search(client, _search(client, experiment_id, search), search)


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
    with _creation_locks[client.tracking_uri]:
        existing = client.get_experiment_by_name(name)
        return str(client.create_experiment(name) if existing is None else existing.experiment_id)


def _run_id(client: Any, experiment: str, run: str) -> str | None:
    """MLflow's id of a run that was written before."""
    matches = client.search_runs([experiment], f"tags.`{ID}` = '{run}'", max_results=1)
    return str(matches[0].info.run_id) if matches else None


def _newest_times(client: Any, number: str) -> dict[str, int]:
    names = client.get_run(number).data.metrics
    return {name: max(metric.timestamp for metric in client.get_metric_history(number, name)) for name in names}


def _parent(client: Any, experiment: str, record: RunRecord, search: SearchRecord | None) -> str | None:
    """MLflow's id of the search of a trial, or of the run that a scaling report measures, if that was written."""
    if search is not None:
        return _search(client, experiment, search)
    parent = record.spec.get("parent")
    return _run_id(client, experiment, str(parent)) if parent else None


def _search(client: Any, experiment: str, search: SearchRecord) -> str:
    """MLflow's id of a search, which is created if it is missing."""
    with _creation_locks[client.tracking_uri]:
        run_id = _run_id(client, experiment, search.id)
        if run_id is not None:
            return run_id
        tags = {
            ID: search.id,
            "ddl_magics.cluster": search.cluster,
            "ddl_magics.objective": str(search.spec.get("objective") or ""),
            **_source(search.notebook),
        }
        number = _create(client, experiment, search.created, tags, search.name)
        options = {name: search.spec.get(name) for name in ("trials", "search", "prune", "objective", "seed")}
        _log_parameters(client, number, options)
        return number


def _create(client: Any, experiment: str, created: float, tags: Mapping[str, str], name: str) -> str:
    """Create a run of MLflow without empty tags; returns its id."""
    tags = {tag: value for tag, value in tags.items() if value}
    run = client.create_run(experiment, start_time=_milliseconds(created), tags=tags, run_name=name)
    return str(run.info.run_id)


def _end_search(client: Any, number: str, search: SearchRecord) -> None:
    best, metric = search.progress.get("best"), search.metric
    if best is not None:
        client.log_metric(number, _NOT_IN_NAMES.sub("_", f"best/{metric}"), best)
    end_time = None if search.ended is None else _milliseconds(search.ended)
    client.set_terminated(number, _STATUS.get(search.state, "RUNNING"), end_time)


def _begin(
    client: Any, experiment: str, record: RunRecord, parameters: Mapping[str, Any], parent: str | None
) -> TrackedRun:
    tags = {ID: record.id, "mlflow.parentRunId": parent or "", **_source(record.notebook)}
    number = _create(client, experiment, record.created, tags, record.title or record.name)
    _log_parameters(client, number, parameters)
    return TrackedRun(client, number, {})


def _write(client: Any, experiment: str, run: TrackingData, parent: str | None) -> str:
    replaced_id = _run_id(client, experiment, run.record.id)
    written = _begin(client, experiment, run.record, run.parameters, parent)
    try:
        written.add(run.scalars)
        written.finish(run)
    except BaseException:
        client.delete_run(written.number)
        raise
    if replaced_id is not None:
        client.delete_run(replaced_id)  # written anew: MLflow's metrics cannot be replaced
    return written.number


def _log_parameters(client: Any, number: str, parameters: Mapping[str, Any]) -> None:
    from mlflow.entities import Param

    texts = {name: str(value)[:MAX_PARAMETER_CHARACTERS] for name, value in parameters.items() if value is not None}
    client.log_batch(number, params=[Param(name, text) for name, text in texts.items()])


def _metric(scalar: Scalar) -> Any:
    """None for a value that is not finite: databases refuse it."""
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
    dataset = Dataset(str(name), str(digest)[:MAX_DIGEST_CHARACTERS], "local", str(sources[0]["path"]))
    return DatasetInput(dataset, [InputTag("mlflow.data.context", "training")])


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)
