"""`run.json`: the record of a run, also read if it is damaged or of another version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ddl_magics.runtime import events as ev
from ddl_magics.runtime.run_spec import RunSpec, under_current_names
from ddl_magics.runtime.schema_check import MAX_COUNT, MAX_INTEGER
from ddl_magics.store.labels import Labels

FORMAT = 1

_FAILURE_TYPES: Mapping[str, type] = {"rank": int, "host": str, "kind": str, "message": str, "traceback": str}


@dataclass(frozen=True)
class RunRecord:
    """`run.json`, read. `state` is LOST where the file has a state that is not terminal and the owner is dead; of a
    batch it is what Livy has said when it was asked last.

    Times are seconds since the epoch.
    """

    id: str
    name: str
    created: float
    spec: Mapping[str, Any]
    cluster: str
    notebook: str
    state: str
    failure: Mapping[str, Any] | None = None
    #: What the state waits for, or why the run has it; may be empty.
    message: str = ""
    ended: float | None = None
    progress: Mapping[str, Any] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    #: The title that a person set in the panel, or empty.
    title: str = ""
    #: The note that a person wrote, or empty.
    note: str = ""
    #: The id of its cell in the notebook; empty if the frontend does not send it.
    cell_id: str = ""
    #: Versions and host on the notebook's side.
    environment: Mapping[str, Any] = field(default_factory=dict)
    #: Versions on the cluster's side, as rank 0 reports them: of Python, TensorFlow, Keras and Spark.
    versions: Mapping[str, Any] = field(default_factory=dict)
    #: Where another kernel reaches the driver (`Cluster.driver_address`); empty if only the run's kernel can.
    driver_address: Mapping[str, Any] = field(default_factory=dict)
    #: Files that the cell has written: name, size in bytes, path on the notebook's machine (None: not fetched).
    cell_files: Sequence[Mapping[str, Any]] = ()
    #: Whether `%ddl import` has brought it: its cell and its model may be a stranger's.
    imported: bool = False
    folder: Path = Path()

    @classmethod
    def read(cls, stored: Mapping[str, Any], stored_labels: Mapping[str, Any], folder: Path) -> RunRecord:
        """The record in a `run.json`, with labels, title and note from a `labels.json`.

        Damaged fields that a view does not need are left out.

        Raises:
            KeyError, TypeError, ValueError: this version cannot read it.
        """
        if stored["format"] != FORMAT or stored["state"] not in ev.STATES:
            raise ValueError("no run of this format")
        created, spec = moment(stored["created"]), under_current_names(_object(stored["spec"]))
        options = RunSpec.from_record(spec)
        least = 1 if options.monitor is None else 0  # a monitor has no workers
        if created is None or not least <= options.workers <= ev.MAX_RANK:
            raise ValueError("no run")
        labels = Labels.read(stored_labels)
        return cls(
            id=_text(stored["id"]),
            name=_text(stored["name"]),
            created=created,
            spec=spec,
            cluster=_text(stored.get("cluster", "")),
            notebook=_text(stored.get("notebook", "")),
            state=stored["state"],
            failure=None if stored.get("failure") is None else _failure(_object(stored["failure"])),
            message=stored["message"] if isinstance(stored.get("message"), str) else "",
            ended=moment(stored.get("ended")),
            progress=_progress(stored.get("progress")),
            labels=labels.tags,
            title=labels.title,
            note=labels.note,
            cell_id=_text(stored.get("cell_id", "")),
            environment=_object(stored.get("environment") or {}),
            versions=_object(stored.get("versions") or {}),
            driver_address=_object(stored.get("place") or {}),
            cell_files=[_object(file) for file in stored.get("cell_files") or ()],
            imported=stored.get("imported") is True,
            folder=folder,
        )

    @property
    def over(self) -> bool:
        return self.state in ev.TERMINAL

    @property
    def is_batch(self) -> bool:
        """Whether it is a batch of Livy, which needs no owner."""
        return "batch" in self.driver_address

    @property
    def attachable(self) -> bool:
        """Whether a notebook can follow it again."""
        return bool(self.driver_address) and not self.is_batch


def moment(value: Any) -> float | None:
    """Seconds since the epoch; None if the value is not a time."""
    return float(value) if _is_amount(value) and value < ev.MAX_TIME else None


def _is_amount(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= MAX_COUNT


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"no text: {value!r:.40}")
    return value


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"no object: {value!r:.40}")
    return value


def _failure(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The failure without fields of another type."""
    return {name: value for name, value in stored.items() if type(value) is _FAILURE_TYPES.get(name, type(value))}


def _progress(stored: Any) -> dict[str, Any]:
    """Epochs, steps and metrics, without values that are not numbers."""
    if not isinstance(stored, dict):
        return {}
    progress = {name: value for name, value in stored.items() if name != "metrics" and _is_amount(value)}
    metrics = stored.get("metrics")
    if isinstance(metrics, dict):
        numbers = {name: value for name, value in metrics.items() if value is None or type(value) in (int, float)}
        progress["metrics"] = {
            name: value for name, value in numbers.items() if type(value) is not int or abs(value) < MAX_INTEGER
        }
    return progress
