"""The Spark jobs of an attempt: one of all ranks, and one more for each rank that is started again alone.

Where each rank gets all rows of --data, each has a job of its own. Those rows come out of a shuffle, and of a job that
misses a part of it, which a lost executor had, Spark starts all tasks again and ends those that run.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any, Callable

from .. import package
from ..run_spec import RunSpec
from ..spark import allocation, executor_loss, gpus, jvm_gateway, session_end, slots, spark_error, task, yarn
from ..strategies import COLLECTIVE
from ..wording import counted
from . import executors

if TYPE_CHECKING:
    from pyspark import RDD, Broadcast, SparkContext

    from ..rank.config import JobConfig
    from .rank_rows import RankRows

#: How long cancelled jobs may take to end.
CANCEL_SECONDS = 20.0
#: How long the cluster manager may take to take a request for other executors: its master may be on the host, too.
REPLACE_SECONDS = 10.0


class RankJobs:
    """Jobs in the job group `group`, whose partitions are the ranks.

    rows: of --data. broadcast_payload: what `task.make_task` takes.
    """

    def __init__(
        self,
        sc: SparkContext,
        spec: RunSpec,
        group: str,
        rows: RankRows,
        broadcast_payload: Broadcast[dict[str, bytes]],
    ) -> None:
        self._sc, self._spec, self._group = sc, spec, group
        self._rows, self._broadcast_payload = rows, broadcast_payload
        self._threads: list[threading.Thread] = []

    @property
    def submitted(self) -> int:
        """How many jobs there are, ended ones included."""
        return len(self._threads)

    @property
    def logs(self) -> str | None:
        """The command that shows the executors' logs; None where there is none."""
        return yarn.logs(str(self._sc.applicationId)) if self._sc.master == "yarn" else None

    def submit(
        self,
        config: JobConfig,
        on_end: Callable[[str | None], None],
        rank: int | None = None,
        before: Callable[[], None] | None = None,
    ) -> None:
        """Start a job, or several. config: what its ranks are sent. rank: which is to run alone, or None for all.

        before(): called in the job's thread before it starts. on_end(error): called there when it has ended, with
        Spark's error in one line or None.
        """
        ranks = range(config.workers) if rank is None and config.whole_data else [rank]
        threads = [
            threading.Thread(target=self._run, args=(config, on_end, number, before), daemon=True) for number in ranks
        ]
        self._threads += threads
        for thread in threads:
            thread.start()

    def _run(
        self,
        config: JobConfig,
        on_end: Callable[[str | None], None],
        rank: int | None,
        before: Callable[[], None] | None,
    ) -> None:
        error, strategy = None, self._spec.strategy
        try:
            if before is not None:
                before()
            only_rank, number = rank, None
            rdd: RDD[Any]
            if rank is None:
                rdd = self._rows.partitions()
            elif config.changes:  # it may be none of those at the beginning
                rdd, only_rank, number = self._rows.partition_of_one(), None, rank
            else:
                rdd, config = self._rows.dealt_again(config)
            rank_task = task.make_task(self._broadcast_payload, config.to_json(), package.NAME, only_rank, number)
            together = strategy in COLLECTIVE and self._spec.min_workers is None
            stage = rdd.barrier() if together else rdd
            description = "%s: %s on %s" % (self._spec.name, strategy, counted(self._spec.ranks, "worker"))
            if rank is not None:
                description += ", rank %d" % rank if config.changes else ", rank %d again" % rank
            ranks = gpus.request(stage.mapPartitionsWithIndex(rank_task), self._spec.gpus)
            jvm_gateway.collect(ranks, self._group, description)
        except Exception as problem:  # Py4J raises many kinds
            error = spark_error.cause(problem)
        on_end(error)

    def cancel(self) -> None:
        if self._threads:
            spark_error.best_effort(lambda: self._sc.cancelJobGroup(self._group))

    def loss_of(self, executor: str | None) -> str | None:
        """Why this executor was lost, once its cluster manager has told; as `executor_loss.wait_for_reason`."""
        reason = None
        with contextlib.suppress(Exception):  # the session has ended, or this Spark keeps no reasons: Py4J's kinds
            reason = executor_loss.wait_for_reason(self._sc, executor) if executor else None
        return reason

    def replace_on_host_of(self, executor: str | None) -> None:
        """Have the executors on the host of this one replaced, as it does not answer: Spark misses them after minutes.

        Waits for the cluster manager for `REPLACE_SECONDS` at most.
        """
        if executor is None:
            return

        def replace() -> None:
            with contextlib.suppress(Exception):  # allocation.CannotChange, and Py4J's kinds
                allocation.replace_host_of(self._sc, executor)

        thread = threading.Thread(target=replace, daemon=True)
        thread.start()
        thread.join(REPLACE_SECONDS)

    def executors_held(self) -> int | None:
        """How many executors the session has; None where Spark has none of their own, or does not tell."""
        count = None
        with contextlib.suppress(Exception):  # the session has ended: Py4J's kinds
            count = slots.registered(self._sc) if slots.has_executors(self._sc) else None
        return count

    def is_decommissioned(self, executor: str) -> bool:
        """Whether Spark is about to end this executor; False where it does not tell."""
        decommissioned = False
        with contextlib.suppress(Exception):  # the session has ended, or this Spark knows no such thing: Py4J's kinds
            decommissioned = slots.is_decommissioned(self._sc, executor)
        return decommissioned

    def session_end(self) -> str | None:
        """Why Spark's session has ended by itself; as `session_end.why_ended`."""
        return session_end.why_ended(self._sc)

    def shortage(self, seconds: float) -> str | None:
        """In one line that Spark has fewer slots than ranks, after so long; None where it has enough."""
        problem = None
        with contextlib.suppress(Exception):  # the session has ended: Py4J's kinds
            available = slots.registered_slots(self._sc, self._spec.gpus)
            if available < self._spec.ranks:
                problem = executors.too_few(self._sc, available, self._spec.ranks, seconds)
        return problem

    def join(self) -> None:
        """Wait for the jobs' threads, for a bounded time."""
        deadline = time.monotonic() + CANCEL_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
