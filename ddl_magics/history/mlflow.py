"""Runs in MLflow: parameters, metrics with their steps and times, tags under MLflow's names, artifacts.

`mlflow-skinny` suffices for a server; a database on this machine needs SQLAlchemy and Alembic, too.
"""

from __future__ import annotations

import getpass
import os
import re
import shlex
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


class Experiment:
    """An experiment on a tracking server or in a database, which is created if it is missing.

    Args:
        uri: of the server ("http://host:5000") or the database ("sqlite:///mlflow.db").
        name: by default that of MLflow's own variable `MLFLOW_EXPERIMENT_NAME`, or `EXPERIMENT`.

    Raises:
        NotInstalled: MLflow is missing.
        ValueError: the URI has a password, which MLflow takes from MLFLOW_TRACKING_PASSWORD.
    """

    def __init__(self, uri: str, name: str | None = None) -> None:
        require(uri)
        from mlflow import MlflowClient

        self._client, self._creating = MlflowClient(tracking_uri=uri), _creation_locks[uri]
        name = name or os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
        with self._creating:
            existing = self._client.get_experiment_by_name(name)
            self._id = str(self._client.create_experiment(name) if existing is None else existing.experiment_id)

    def begin(self, record: RunRecord, parameters: Mapping[str, Any], search: SearchRecord | None = None) -> TrackedRun:
        """Begin a run, or continue one that has begun here and not ended.

        Args:
            record: the run.
            parameters: its hyperparameters.
            search: the search that it is a trial of.
        """
        number = self._run_id(record.id)
        if number is not None and self._client.get_run(number).info.status == "RUNNING":
            return TrackedRun(self._client, number, self._newest_times(number))
        return self._begin(record, parameters, self._parent(record) if search is None else self._search(search))

    def write(self, run: TrackingData, search: str | None = None) -> str:
        """Write a complete run; returns its id in MLflow. It replaces an earlier copy of the run.

        search: MLflow's id of the search that it is a trial of.
        """
        replaced_id = self._run_id(run.record.id)
        written = self._begin(run.record, run.parameters, search or self._parent(run.record))
        try:
            written.add(run.scalars)
            written.finish(run)
        except BaseException:
            self._client.delete_run(written.number)
            raise
        if replaced_id is not None:
            self._client.delete_run(replaced_id)  # written anew: MLflow's metrics cannot be replaced
        return written.number

    def write_search(self, search: SearchRecord, trials: Iterable[TrackingData]) -> str:
        """Write a search as a run with its trials as children; returns MLflow's id of it."""
        number = self._search(search)
        for trial in trials:
            self.write(trial, number)
        self.end_search(search)
        return number

    def end_search(self, search: SearchRecord) -> None:
        """Mark a search as ended."""
        number, best, metric = self._search(search), search.progress.get("best"), search.metric
        if best is not None:
            self._client.log_metric(number, _NOT_IN_NAMES.sub("_", f"best/{metric}"), best)
        end_time = None if search.ended is None else _milliseconds(search.ended)
        self._client.set_terminated(number, _STATUS.get(search.state, "RUNNING"), end_time)

    def _run_id(self, run: str) -> str | None:
        """MLflow's id of a run that was written before."""
        matches = self._client.search_runs([self._id], f"tags.`{ID}` = '{run}'", max_results=1)
        return str(matches[0].info.run_id) if matches else None

    def _newest_times(self, number: str) -> dict[str, int]:
        names, history = self._client.get_run(number).data.metrics, self._client.get_metric_history
        return {name: max(metric.timestamp for metric in history(number, name)) for name in names}

    def _parent(self, record: RunRecord) -> str | None:
        """MLflow's id of the run that a scaling report measures, or of a trial's search, if that was written."""
        parent = record.spec.get("parent")
        return self._run_id(str(parent)) if parent else None

    def _search(self, search: SearchRecord) -> str:
        """MLflow's id of a search, which is created if it is missing."""
        with self._creating:
            run_id = self._run_id(search.id)
            if run_id is not None:
                return run_id
            tags = {
                ID: search.id,
                "ddl_magics.cluster": search.cluster,
                "ddl_magics.objective": str(search.spec.get("objective") or ""),
                **_source(search.notebook),
            }
            options = {name: search.spec.get(name) for name in ("trials", "search", "prune", "objective", "seed")}
            return self._create(search.created, tags, search.name, options)

    def _begin(self, record: RunRecord, parameters: Mapping[str, Any], parent: str | None) -> TrackedRun:
        tags = {ID: record.id, "mlflow.parentRunId": parent or "", **_source(record.notebook)}
        number = self._create(record.created, tags, record.title or record.name, parameters)
        return TrackedRun(self._client, number, {})

    def _create(self, created: float, tags: Mapping[str, str], name: str, parameters: Mapping[str, Any]) -> str:
        """Create a run of MLflow without empty tags and parameters; returns its id."""
        from mlflow.entities import Param

        tags = {tag: value for tag, value in tags.items() if value}
        run = self._client.create_run(self._id, start_time=_milliseconds(created), tags=tags, run_name=name)
        texts = {key: str(value)[:MAX_PARAMETER_CHARACTERS] for key, value in parameters.items() if value is not None}
        self._client.log_batch(run.info.run_id, params=[Param(key, text) for key, text in texts.items()])
        return str(run.info.run_id)


def how_to_look(uri: str) -> str:
    """Where MLflow's server is, or the command that starts one for a database or a folder."""
    if uri.startswith(("http://", "https://")):
        return f"To see it: {uri}"
    return f"To see it: mlflow ui --backend-store-uri {shlex.quote(uri)} (pip install mlflow)"


def require(uri: str) -> None:
    """Check that MLflow is installed, and that the URI has no password. Raises as `Experiment` does."""
    if has_password(uri):
        raise ValueError("the URI holds a password: set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD instead.")
    if find_spec("mlflow") is None:
        raise NotInstalled(f"MLflow is missing here: {INSTALL}")


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
