"""What a kernel has of ours: the cluster in use, whose turn it is there, and the runs."""

from __future__ import annotations

import dataclasses
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from IPython.core.error import UsageError

from ddl_magics import attaching, origin, store
from ddl_magics.clusters.base import Cluster
from ddl_magics.clusters.livy_session import NoSession
from ddl_magics.follower import Follower
from ddl_magics.option_values import SEED_LIMIT
from ddl_magics.run import Run
from ddl_magics.runtime import events as ev
from ddl_magics.spec import RunSpec
from ddl_magics.turns import Turns
from ddl_magics.wording import nearest

#: How long the end of a kernel may be held up by its runs. Jupyter kills a kernel that takes longer than 2.5 s.
EXIT_SECONDS = 1.0


class Session:
    """Submits runs to a cluster and knows those of this kernel.

    Args:
        cluster: where runs are executed.
        choose: says it anew for each run, where `cluster` is None: with True, what must be started for a run is
            started.
    """

    def __init__(self, cluster: Cluster | None, choose: Callable[[bool], Cluster] | None = None) -> None:
        self._cluster = cluster
        self._choose = choose
        self.runs: dict[str, Run] = {}
        # Each cluster has its own slots to share out.
        self._turns: dict[Cluster, Turns] = {}

    @property
    def cluster(self) -> Cluster:
        """The cluster that the next run is executed on, as things are.

        Raises:
            UsageError: there is none that can be used.
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
            spec: with its cell; id, name and seed are filled in where they are empty.
            namespace: the notebook's variables.

        Raises:
            UsageError: the name is taken by something else, or the cluster refuses what the cell asks for.
        """
        spec = dataclasses.replace(
            spec,
            run=store.new_run_id(),
            name=self._name(spec.name, namespace),
            seed=secrets.randbelow(SEED_LIMIT) if spec.seed is None else spec.seed,
        )
        if spec.resume is not None:
            resumed = self._ended(spec.resume)
            spec = dataclasses.replace(
                spec,
                resume=resumed.id,
                checkpoints=str(resumed.folder / "files"),
                resume_uri=resumed.spec.get("checkpoint"),
            )
        cluster = self._current(start=True)
        refused = cluster.check(spec, namespace)
        if refused is not None:
            raise UsageError(refused.message)
        folder = self._folder(spec, cluster)
        follower = Follower(spec, cluster, self._turns.setdefault(cluster, Turns()), folder, namespace)
        try:
            refused = follower.start()
        except BaseException:  # an interrupt: nobody would hold the run
            follower.request_stop()
            raise
        if refused is not None:
            folder.remove()
            raise UsageError(refused.message)
        run = Run(spec, folder, follower.timeline, cluster.name, follower)
        self.runs[spec.run] = run
        return run

    def _ended(self, word: str) -> store.RunRecord:
        """The run that another one goes on from."""
        record = store.find_run(self.find(word).id)
        if record is None or not record.over:
            raise UsageError(f"--resume {word}: this run has not ended; stop it first.")
        return record

    def attach(self, word: str, clusters: Callable[[Mapping[str, Any]], Cluster]) -> Run:
        """Go on with a run whose kernel is gone, or that was lost, and whose driver still has it.

        Args:
            word: name or id of a stored run; or of one that the cluster in use holds and no store here knows.
            clusters: the cluster at a `place`.

        Raises:
            UsageError: it cannot be; the run stays as it is.
        """
        held = next((run for run in self.live() if word in (run.name, run.id)), None)
        if held is not None:
            return held
        record = store.find_run(word)
        found = attaching.stored(record, clusters) if record else attaching.foreign(word, self.cluster)
        if found is None:
            # Says what is near.
            self.find(word)
            raise UsageError(f"there is no run {word}.")
        turns = self._turns.setdefault(found.cluster, Turns())
        run = attaching.attach(found, turns)
        self.runs[run.id] = run
        return run

    def find(self, word: str) -> Run:
        """The run with this name or id: this kernel's newest, else the store's.

        Raises:
            UsageError: there is none.
        """
        for run in reversed(self.runs.values()):
            if word in (run.name, run.id):
                return run
        record = store.find_run(word)
        if record is None:
            names = [run.name for run in self.runs.values()] + [record.name for record in store.list_runs()]
            raise UsageError(f"there is no run {word}.{nearest(word, names) or ' %ddl runs lists them.'}")
        return self.runs.get(record.id) or Run.stored(record)

    def live(self) -> Iterator[Run]:
        """The runs of this kernel that have not ended."""
        return (run for run in list(self.runs.values()) if run.state not in ev.TERMINAL)

    def close(self) -> None:
        """The kernel exits: stop its runs, and say of those that do not end in time that they are lost.

        Runs that outlive the kernel are left to themselves.
        """
        ending = [run for run in self.live() if not run.outlives_kernel]
        for run in ending:
            run.request_stop()
        deadline = time.monotonic() + EXIT_SECONDS
        for run in ending:
            run.give_up(deadline - time.monotonic())
        used = dict.fromkeys(self._turns)
        if self._cluster is not None:
            used[self._cluster] = None
        for cluster in used:
            cluster.shutdown()

    def _folder(self, spec: RunSpec, cluster: Cluster) -> store.RunFolder:
        try:
            return store.create_run(spec, cluster.name, cluster.place, origin.notebook(), origin.cell())
        except OSError as error:
            raise UsageError(f"runs cannot be stored ({error}): set JUPYTER_DATA_DIR to a folder of yours.") from None

    def _name(self, name: str, namespace: Mapping[str, Any]) -> str:
        if not name:
            number = 1 + sum(1 for run in self.runs.values() if run.name.startswith("run_"))
            while f"run_{number}" in namespace:
                number += 1
            return f"run_{number}"
        there = namespace.get(name)
        if there is not None and not isinstance(there, Run):
            kind = type(there).__name__
            raise UsageError(f"--name {name} would replace your variable {name} ({kind}): choose another name.")
        return name
