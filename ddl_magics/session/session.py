"""The state of this extension in a kernel: the cluster in use, a queue for each cluster, and the runs."""

from __future__ import annotations

import builtins
import dataclasses
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

from IPython.core.error import UsageError

from ddl_magics import store
from ddl_magics.clusters import preflight
from ddl_magics.clusters.base import Unreachable
from ddl_magics.clusters.cluster import Cluster
from ddl_magics.clusters.livy_session import NoSession, SessionGone
from ddl_magics.options.redaction import as_word
from ddl_magics.options.values import SEED_LIMIT
from ddl_magics.runs import Run, RunQueue, attaching, live_tracking
from ddl_magics.runs.follower import Follower
from ddl_magics.runtime import events as ev
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.runtime.strategies import ENSEMBLE
from ddl_magics.search import Search, space
from ddl_magics.search.launcher import Launcher
from ddl_magics.search.plan import make_plan
from ddl_magics.search.warm_start import with_earlier_trials
from ddl_magics.session import origin
from ddl_magics.session.variables import NotebookVariables
from ddl_magics.wording import nearest

#: How long an exiting kernel waits for its runs. Jupyter kills a kernel that takes longer than 2.5 s.
EXIT_SECONDS = 1.0
#: How long it then waits for live trackers such as MLflow.
EXPORT_SECONDS = 0.5


class Session:
    """Submits runs to a cluster, and keeps the runs of this kernel.

    Args:
        cluster: where runs are executed; None to call `choose` for each run.
        choose: returns the cluster of the next run; called with True, it starts what the run needs.
    """

    def __init__(self, cluster: Cluster | None, choose: Callable[[bool], Cluster] | None = None) -> None:
        self._cluster = cluster
        self._choose = choose
        self.runs: dict[str, Run] = {}
        self.searches: dict[str, Search] = {}
        self._queues: dict[Cluster, RunQueue] = {}
        self.variables = NotebookVariables()

    @property
    def cluster(self) -> Cluster:
        """The cluster of the next run; nothing is started.

        Raises:
            UsageError: no cluster can be used.
        """
        return self._current(start=False)

    @cluster.setter
    def cluster(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def _current(self, start: bool) -> Cluster:
        if self._cluster is not None:
            return self._cluster
        assert self._choose is not None
        try:
            return self._choose(start)
        except NoSession as error:
            raise UsageError(str(error)) from None

    def submit(self, spec: RunSpec, namespace: Mapping[str, Any]) -> Run:
        """Start a run, or queue it; returns at once.

        Args:
            spec: with the cell's source; id, and name and seed if they are empty, are set here.
            namespace: the notebook's variables.

        Raises:
            UsageError: the name is that of another variable, or the cluster refuses the run.
        """
        space.check_values(spec.cell, spec.set or {})
        live_tracking.require(spec)
        spec = self._identified(spec, namespace, "run")
        if spec.resume is not None:
            resumed = self._resumable(spec.resume)
            spec = dataclasses.replace(
                spec,
                resume=resumed.id,
                checkpoints=str(resumed.folder / "files"),
                resume_uri=resumed.spec.get("checkpoint"),
            )
        return self._start(spec, self._current(start=True), namespace)

    def monitor(self, spec: RunSpec, namespace: Mapping[str, Any]) -> Run:
        """Start a monitor; returns at once.

        Args:
            spec: with `monitor`; id and name are set here if they are empty.
            namespace: the notebook's variables.

        Raises:
            UsageError: as `submit`.
        """
        return self._start(self._identified(spec, namespace, "monitor"), self._current(start=True), namespace)

    def _identified(self, spec: RunSpec, namespace: Mapping[str, Any], kind: str) -> RunSpec:
        """The spec with its id, and with name and seed if they are empty. UsageError as `submit` raises it."""
        in_kernel = self._cluster is not None and self._cluster.in_kernel
        session_seed = preflight.session_seed(SEED_LIMIT) if in_kernel else None
        own_seed = secrets.randbelow(SEED_LIMIT) if session_seed is None else session_seed
        return dataclasses.replace(
            spec,
            run=store.new_run_id(),
            name=self._name(spec.name, namespace, kind),
            seed=own_seed if spec.seed is None else spec.seed,
            continues_streams=spec.seed is None and spec.strategy != ENSEMBLE and kind == "run",
            folder=origin.folder(),
        )

    def _start(self, spec: RunSpec, cluster: Cluster, namespace: Mapping[str, Any]) -> Run:
        """Start or queue a run that has its id, name and seed. Raises UsageError where the cluster refuses it."""
        refused = cluster.check(spec, namespace)
        if refused is not None:
            raise UsageError(refused.message)
        folder = self._folder(spec, cluster)
        follower = Follower(spec, cluster, self._queues.setdefault(cluster, RunQueue()), folder, namespace)
        try:
            refused = follower.start()
        except BaseException:  # an interrupt: no variable would refer to the run
            follower.request_stop()
            raise
        if refused is not None:
            folder.remove()
            raise UsageError(refused.message)
        attachable = bool(cluster.driver_address)
        run = Run(spec, folder, follower.timeline, cluster.name, follower, attachable)
        self.runs[spec.run] = run
        if cluster.in_kernel and spec.returns_variables and isinstance(namespace, MutableMapping):
            self.variables.wait_for(run, cluster, namespace)
        return run

    def search(self, spec: RunSpec, namespace: Mapping[str, Any]) -> Search:
        """Start a search; returns when its first trial has been started or queued.

        Args:
            spec: as for `submit`, with `trials`.
            namespace: the notebook's variables. Later trials see them as they are now.

        Raises:
            UsageError: as `submit`; or Optuna is missing, or the cell's parameters cannot be read.
        """
        plan = with_earlier_trials(make_plan(spec))
        live_tracking.require(spec)
        spec = self._identified(plan.spec, namespace, "search")
        cluster = self._current(start=True)
        folder = self._search_folder(spec, cluster)
        try:
            launcher = self._launcher(spec, cluster, namespace)
            search = Search.start(dataclasses.replace(plan, spec=spec), folder, launcher)
        except BaseException:
            shutil.rmtree(folder.path, ignore_errors=True)
            raise
        self.searches[spec.run] = search
        return search

    def _launcher(
        self,
        spec: RunSpec,
        cluster: Cluster,
        namespace: Mapping[str, Any],
        clusters: Callable[[Mapping[str, Any]], Cluster] | None = None,
    ) -> Launcher:
        # A copy: later trials must not see what later cells assign.
        copied = dict(namespace)

        def start(spec: RunSpec) -> Run:
            return self._start(dataclasses.replace(spec, run=store.new_run_id()), cluster, copied)

        def attach(record: store.RunRecord) -> Run:
            if record.over and record.state != ev.LOST:
                return Run.stored(record)
            assert clusters is not None, "a new search has no earlier runs"
            return self._attach(record.id, clusters)

        counted_memory = cluster.in_kernel and spec.parallel is None
        max_runs = preflight.max_concurrent_runs(spec, copied) if counted_memory else None

        def release() -> None:
            copied.clear()  # the search has ended, and must not keep the notebook's arrays
            queue = self._queues.get(cluster)
            if spec.release not in (None, "no") and (queue is None or queue.idle):
                cluster.give_back(spec.release)

        return Launcher(cluster, start, attach, max_runs, release)

    def attach_search(
        self, record: store.SearchRecord, namespace: Mapping[str, Any], clusters: Callable[[Mapping[str, Any]], Cluster]
    ) -> Search:
        """Continue a search that failed or whose kernel is gone, on its cluster if that still lives.

        Args:
            record: the search.
            namespace: the notebook's variables: trials that start now see these.
            clusters: the cluster at a driver's address.

        Raises:
            UsageError: it cannot be continued.
        """
        live = self.searches.get(record.id)
        if live is not None and live.state not in ev.TERMINAL:
            return live
        if record.state not in ev.TERMINAL:
            path = f" ({record.notebook})" if record.notebook else ""
            raise UsageError(f"{record.name} is followed by another kernel{path}: %ddl show {record.name} shows it.")
        if record.imported:
            raise UsageError(
                f"{record.name} was imported and cannot be attached, as its cell may be a stranger's: read it with "
                f"%ddl show {record.name}, and run it as a cell of your own."
            )
        if record.state not in (ev.LOST, ev.FAILED):
            raise UsageError(f"{record.name} has ended: {record.state}. %ddl show {record.name} shows it.")
        spec = RunSpec.from_record(record.spec)
        make_plan(spec)  # refuses before anything starts
        try:
            cluster = clusters(record.driver_address) if record.driver_address else self._current(start=True)
        except SessionGone:
            cluster = self._current(start=True)  # its trials continue in the current session
        except NoSession as error:
            raise UsageError(f"{record.name} cannot be attached: {error}") from None
        status = cluster.status()
        if isinstance(status, Unreachable) and status.session_ended:
            cluster = self._current(start=True)
        elif isinstance(status, Unreachable):  # its trials may still train there
            raise UsageError(f"{record.name} cannot be attached: {status.message}")
        search = Search.resume(record, self._launcher(spec, cluster, namespace, clusters))
        self.searches[record.id] = search
        return search

    def find_search(self, name_or_id: str) -> Search | None:
        """The search with this name or id, as `store.find_search` finds it."""
        record = store.find_search(name_or_id)
        return None if record is None else self.searches.get(record.id) or Search.stored(record)

    def _resumable(self, name: str) -> store.RunRecord:
        """The ended run that --resume names."""
        record = store.find_run(self.find(name).id)
        if record is None or not record.over:
            raise UsageError(f"--resume {name}: this run has not ended; stop it first with %ddl stop {name}.")
        return record

    def attach(self, name_or_id: str, clusters: Callable[[Mapping[str, Any]], Cluster]) -> Run:
        """Follow again a run that was lost or whose kernel is gone, if its driver still has it.

        Args:
            name_or_id: name or id of a stored run, or of a run on the cluster in use that is not stored here.
            clusters: the cluster at a driver's address.

        Raises:
            UsageError: the run cannot be attached; it stays as it is.
        """
        try:
            return self._attach(name_or_id, clusters)
        except attaching.RunGone as error:
            raise UsageError(str(error)) from None  # IPython shows a subclass with its traceback

    def _attach(self, name_or_id: str, clusters: Callable[[Mapping[str, Any]], Cluster]) -> Run:
        """As `attach`; raises `attaching.RunGone` if the run ended with its driver."""
        live = next((run for run in self.live() if name_or_id in (run.name, run.id)), None)
        if live is not None:
            return live
        record = store.find_run(name_or_id)
        driver_run = (
            attaching.find_stored(record, clusters) if record else attaching.find_on_cluster(name_or_id, self.cluster)
        )
        if driver_run is None:
            raise self._no_run(name_or_id)
        run = attaching.attach(driver_run, self._queues.setdefault(driver_run.cluster, RunQueue()))
        self.runs[run.id] = run
        return run

    def find(self, name_or_id: str) -> Run:
        """The run with this name or id: the newest of this kernel, else the newest in the store.

        Raises:
            UsageError: there is none.
        """
        for run in reversed(list(self.runs.values())):  # a copy: a search may add a run meanwhile
            if name_or_id in (run.name, run.id):
                return run
        record = store.find_run(name_or_id)
        if record is None:
            raise self._no_run(name_or_id)
        return self.runs.get(record.id) or Run.stored(record)

    def _no_run(self, name: str) -> UsageError:
        stored = [run.name for run in store.list_runs()] + [search.name for search in store.list_searches()]
        names = [*self.names(), *stored]
        return UsageError(f"there is no run {as_word(name)}.{nearest(name, names) or ' %ddl runs lists them.'}")

    @property
    def newest(self) -> Run | None:
        """The run of this kernel that was submitted last."""
        return next(reversed(list(self.runs.values())), None)

    def names(self) -> list[str]:
        """The names of the searches and the runs of this kernel."""
        return [search.name for search in self.searches.values()] + [run.name for run in list(self.runs.values())]

    def live(self) -> Iterator[Run]:
        """The runs of this kernel that have not ended."""
        return (run for run in list(self.runs.values()) if run.state not in ev.TERMINAL)

    def close(self) -> None:
        """Stop the runs as the kernel exits; those that outlive it continue.

        Runs that do not end within `EXIT_SECONDS` are marked as lost.
        """
        for search in self.searches.values():
            search.abandon()
        ending = [run for run in self.live() if not run.outlives_kernel]
        for run in ending:
            run.request_stop()
        deadline = time.monotonic() + EXIT_SECONDS
        for run in ending:
            run.give_up(deadline - time.monotonic())
        deadline = time.monotonic() + EXPORT_SECONDS
        for run in ending:
            run.wait_for_trackers(max(deadline - time.monotonic(), 0.0))
        clusters = dict.fromkeys(self._queues)
        if self._cluster is not None:
            clusters[self._cluster] = None
        for cluster in clusters:
            cluster.shutdown()

    def _folder(self, spec: RunSpec, cluster: Cluster) -> store.RunFolder:
        try:
            return store.create_run(spec, cluster.name, cluster.driver_address, origin.notebook(), origin.cell())
        except OSError as error:
            raise _cannot_store(error) from None

    def _search_folder(self, spec: RunSpec, cluster: Cluster) -> store.SearchFolder:
        record = {
            "created": time.time(),
            "spec": spec.to_record(),
            "cluster": cluster.name,
            "driver_address": dict(cluster.driver_address),
            "notebook": origin.notebook(),
            "state": ev.RUNNING,
        }
        try:
            return store.SearchFolder.create(record)
        except OSError as error:
            raise _cannot_store(error) from None

    def _name(self, name: str, namespace: Mapping[str, Any], kind: str = "run") -> str:
        if not name:
            number = 1 + sum(1 for name in self.names() if re.fullmatch(rf"{kind}_[0-9]+", name))
            while f"{kind}_{number}" in namespace:
                number += 1
            return f"{kind}_{number}"
        if hasattr(builtins, name):
            raise UsageError(f"--name {name} would hide Python's own {name}: choose another name, such as {name}_run.")
        variable = namespace.get(name)
        if variable is not None and not isinstance(variable, (Run, Search)):
            kind = type(variable).__name__
            raise UsageError(f"--name {name} would replace your variable {name} ({kind}): choose another name.")
        return name


def _cannot_store(error: OSError) -> UsageError:
    return UsageError(f"runs cannot be stored ({error}): set JUPYTER_DATA_DIR to a folder that you can write to.")
