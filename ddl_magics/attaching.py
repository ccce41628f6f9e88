"""Going on with a run whose kernel is gone: its driver lives in a session of its own and still has the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from IPython.core.error import UsageError

from ddl_magics import store
from ddl_magics.clusters.base import Cluster, Polled, Unreachable
from ddl_magics.clusters.livy import LivyCluster
from ddl_magics.clusters.livy_session import NoSession
from ddl_magics.follower import Follower, own_events
from ddl_magics.run import Run
from ddl_magics.runtime import events as ev
from ddl_magics.spec import RunSpec
from ddl_magics.store import RunFolder, RunRecord
from ddl_magics.turns import Turns


@dataclass(frozen=True)
class Found:
    """A run that a driver holds: its folder here, and how the driver is reached."""

    spec: RunSpec
    folder: RunFolder
    cluster: Cluster


def stored(record: RunRecord, cluster_at: Callable[[Mapping[str, Any]], Cluster]) -> Found:
    """A run of the store.

    Raises:
        UsageError: it cannot be attached, or need not be.
    """
    name, folder = record.name, RunFolder(record.folder)
    if not record.place:
        raise UsageError(f"{name} was on {record.cluster}, which ended with its kernel. %ddl show {name} has the rest.")
    if record.state not in ev.TERMINAL:
        raise UsageError(f"{name} is followed by another kernel ({record.notebook or 'elsewhere'}): %ddl show {name}.")
    artifacts = [event["name"] for event in folder.events() if event["kind"] == "artifact" and "uri" not in event]
    if record.state != ev.LOST and all(folder.file(artifact).exists() for artifact in artifacts):
        raise UsageError(f"{name} has ended: {record.state}. %ddl show {name} shows it.")
    try:
        return Found(RunSpec.from_record(record.spec), folder, cluster_at(record.place))
    except NoSession as error:
        raise UsageError(f"{name} cannot be attached: {error}") from None


def foreign(word: str, cluster: Cluster) -> Found | None:
    """A run that the cluster holds and that another machine's notebook has begun; None where it has none of that name.

    Raises:
        UsageError: the cluster cannot be asked, or the folder cannot be made.
    """
    if not isinstance(cluster, LivyCluster):
        return None
    try:
        runs = cluster.runs()
    except (ConnectionError, TimeoutError, ProcessLookupError) as error:
        raise UsageError(f"{cluster.name} cannot be asked for its runs: {error}") from None
    for held in reversed(runs):
        spec = RunSpec.from_record(held["spec"])
        if word in (spec.run, spec.name):
            try:
                return Found(spec, store.create_run(spec, cluster.name, cluster.place), cluster)
            except (OSError, ValueError) as error:
                raise UsageError(f"{word} cannot be stored here ({error}).") from None
    return None


def attach(found: Found, turns: Turns) -> Run:
    """Follow the run from where its stored events end.

    Raises:
        UsageError: the driver cannot be asked, or does not know the run.
    """
    spec, cluster = found.spec, found.cluster
    events = list(found.folder.events())
    answer = cluster.poll(spec.run, len(events) - own_events(events))
    if isinstance(answer, Unreachable):
        raise UsageError(f"{spec.name} cannot be attached: {answer.message}")
    assert isinstance(answer, Polled)
    if answer.state == ev.LOST:
        raise UsageError(f"{cluster.name} does not know {spec.name} any more. %ddl show {spec.name} has the rest.")
    try:
        events = found.folder.take_over()
    except store.Taken as error:
        raise UsageError(f"{spec.name} cannot be attached: {error}.") from None
    follower = Follower(spec, cluster, turns, found.folder, {}, events)
    follower.attach(answer.state or ev.RUNNING)
    return Run(spec, found.folder, follower.timeline, cluster.name, follower, attachable=True)
