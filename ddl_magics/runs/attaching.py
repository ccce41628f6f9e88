"""Attaching: follows a run again after its kernel has died, while its driver is alive in a Livy session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from IPython.core.error import UsageError

from ddl_magics import store
from ddl_magics.clusters.base import Polled, Unreachable
from ddl_magics.clusters.cluster import Cluster
from ddl_magics.clusters.livy_session import NoSession, SessionGone
from ddl_magics.dashboard.history import MODEL
from ddl_magics.runs.cell_files import cell_files
from ddl_magics.runs.follower import Follower, own_events
from ddl_magics.runs.run import Run
from ddl_magics.runs.run_queue import RunQueue
from ddl_magics.runtime import events as ev
from ddl_magics.runtime.assert_never import assert_never
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.store import RunFolder, RunRecord


class RunGone(UsageError):
    """The run cannot be attached, and has ended: its driver is gone, or no longer knows the run."""


@dataclass(frozen=True)
class AttachTarget:
    """A run that its driver may still hold: its folder here, and the cluster that reaches the driver.

    Attributes:
        has_new_folder: the folder was created to attach the run, and is empty.
    """

    spec: RunSpec
    folder: RunFolder
    cluster: Cluster
    has_new_folder: bool = False


def find_stored(record: RunRecord, cluster_at: Callable[[Mapping[str, Any]], Cluster]) -> AttachTarget:
    """A run of the store.

    Args:
        record: the run.
        cluster_at: returns the cluster at a driver's address.

    Raises:
        UsageError: the run cannot be attached, or need not be.
    """
    name, folder = record.name, RunFolder(record.folder)
    if record.imported:
        raise RunGone(
            f"{name} was imported and cannot be attached: it has run elsewhere. %ddl show {name} shows what is stored."
        )
    if record.is_batch:
        raise UsageError(
            f"{name} cannot be attached: it is a batch of Livy, which no notebook follows. `ddl-magics runs` says how "
            "it is, and `ddl-magics stop` ends it."
        )
    if record.state not in ev.TERMINAL:
        notebook = f" ({record.notebook})" if record.notebook else ""
        raise UsageError(f"{name} is followed by another kernel{notebook}: %ddl show {name} shows it.")
    if not record.driver_address and record.state != ev.LOST:
        raise RunGone(f"{name} has ended: {record.state}. {_how_to_see(folder, name)}")
    if not record.driver_address:
        raise RunGone(
            f"{name} cannot be attached: it ran on {record.cluster}, which ended with its kernel. "
            f"{_how_to_see(folder, name)}"
        )
    artifacts = [event.name for event in ev.select(ev.Artifact, folder.events()) if event.uri is None]
    has_cell_files = all(file.path is not None for file in cell_files(folder.events()).values())
    if record.state != ev.LOST and all(folder.file(artifact).exists() for artifact in artifacts) and has_cell_files:
        raise UsageError(f"{name} has ended: {record.state}. {_how_to_see(folder, name)}")
    try:
        return AttachTarget(RunSpec.from_record(record.spec), folder, cluster_at(record.driver_address))
    except NoSession as error:
        session_gone = isinstance(error, SessionGone)
        raise (RunGone if session_gone else UsageError)(f"{name} cannot be attached: {error}") from None


def _how_to_see(folder: RunFolder, name: str) -> str:
    """What to do about a run that has ended: %ddl show, and the code that loads its model, if there is one."""
    model = folder.file(MODEL)
    load = f" Its trained model: import keras; model = keras.models.load_model({str(model)!r})"
    return f"%ddl show {name} shows what is stored.{load if model.exists() else ''}"


def find_on_cluster(name_or_id: str, cluster: Cluster) -> AttachTarget | None:
    """A run that a notebook on another machine has started on the cluster; None if it has no such run.

    Raises:
        UsageError: the cluster does not answer, or the run's folder cannot be created.
    """
    try:
        runs = cluster.runs()
    except (ConnectionError, TimeoutError, ProcessLookupError) as error:
        raise UsageError(f"{cluster.name} did not answer which runs it has: {error}") from None
    for driver_run in reversed(runs):
        try:
            spec = RunSpec.from_record(driver_run["spec"])
        except ValueError:  # another version wrote it
            continue
        if name_or_id in (spec.run, spec.name):
            try:
                return AttachTarget(
                    spec, store.create_run(spec, cluster.name, cluster.driver_address), cluster, has_new_folder=True
                )
            except (OSError, ValueError) as error:
                raise UsageError(f"{name_or_id} cannot be stored here ({error}).") from None
    return None


def attach(target: AttachTarget, queue: RunQueue) -> Run:
    """Follow the run again, from the end of its stored events.

    Raises:
        RunGone: the driver does not know the run.
        UsageError: the driver does not answer, or another kernel follows the run.
    """
    spec, cluster = target.spec, target.cluster
    try:
        answer = _poll_driver(target)
        events = target.folder.take_over()
    except store.RunInUse as error:
        raise UsageError(f"{spec.name} cannot be attached: {error}.") from None
    except UsageError:
        if target.has_new_folder:
            target.folder.remove()
        raise
    follower = Follower(spec, cluster, queue, target.folder, {}, events)
    follower.attach(answer.state or ev.RUNNING)
    return Run(spec, target.folder, follower.timeline, cluster.name, follower, attachable=True)


def _poll_driver(target: AttachTarget) -> Polled:
    """The driver's answer about the run. Raises as `attach`."""
    name, answer = target.spec.name, target.cluster.poll(target.spec.run, _of_driver(target.folder))
    if isinstance(answer, Unreachable):
        raise (RunGone if answer.session_ended else UsageError)(f"{name} cannot be attached: {answer.message}")
    if not isinstance(answer, Polled):
        assert_never(answer)
    if answer.state == ev.LOST:
        raise RunGone(
            f"{name} cannot be attached: {target.cluster.name} does not know it any more. %ddl show {name} shows what "
            "is stored."
        )
    return answer


def _of_driver(folder: RunFolder) -> int:
    """The sequence number that the driver gave to the last stored event."""
    events = folder.intact_events()
    return ev.parse(events[-1]).seq - own_events(events) if events else 0
