"""`Launcher` starts the runs of a search's trials, on the cluster of the search."""

from __future__ import annotations

import time
from collections.abc import Callable

from ddl_magics.clusters.base import NotStarted, Ready, Refused, Unreachable
from ddl_magics.clusters.cluster import Cluster
from ddl_magics.runs import Run
from ddl_magics.runs.attaching import RunGone
from ddl_magics.runtime.assert_never import assert_never
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.store import RunRecord

#: How long a status is reused: on Livy, reading it costs a request.
SLOTS_SECONDS = 5.0


class Launcher:
    """Starts the runs of one search.

    Args:
        cluster: where the trials run.
        start: starts or queues a run; raises UsageError where it is refused.
        attach: returns the run of a record, followed again if it has not ended; raises RunGone if it is lost.
        max_runs: number of runs that fit into this machine's memory; it limits only runs on this machine.
        give_back: called when the search ends: does what --release says, if nothing else runs.
    """

    def __init__(
        self,
        cluster: Cluster,
        start: Callable[[RunSpec], Run],
        attach: Callable[[RunRecord], Run],
        max_runs: int | None = None,
        give_back: Callable[[], None] = lambda: None,
    ) -> None:
        self._cluster, self._attach, self._max_runs = cluster, attach, max_runs
        self.start, self.give_back = start, give_back
        self._room = 0
        self._status_time = -SLOTS_SECONDS

    def room(self, workers: int) -> int:
        """How many runs with this number of workers fit into the cluster; 0 if it does not answer."""
        current_time = time.monotonic()
        if current_time < self._status_time + SLOTS_SECONDS:
            return self._room
        status = self._cluster.status()
        if isinstance(status, Ready):
            self._room, self._status_time = capacity(status, workers, self._max_runs), current_time
            return self._room
        if isinstance(status, NotStarted):
            return 1  # the first trial starts the cluster; then its slots are known
        if isinstance(status, Unreachable):
            return 0
        assert_never(status)

    def replace(self, executor: str) -> str | Refused:
        """Exclude an executor of Spark. Returns one line about it, or why it was refused."""
        return self._cluster.replace_executor(executor)

    def attach(self, record: RunRecord) -> Run | None:
        """The run of an earlier kernel, followed again if it has not ended; None if it is lost.

        Raises:
            UsageError: it may still run, and cannot be followed.
        """
        try:
            return self._attach(record)
        except RunGone:
            return None


def capacity(status: Ready, workers: int, max_runs: int | None) -> int:
    """How many runs with this number of workers fit into the slots; max_runs: as for `Launcher`."""
    room = status.slots // workers
    is_local = str(status.details.get("master", "")).startswith("local")
    return min(room, max_runs) if is_local and max_runs is not None else room
