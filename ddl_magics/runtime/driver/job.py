"""One run on the driver, from the wait for its slots to its end: attempt after attempt, while workers die.

The run has a thread of its own. attempt.py has what an attempt is, elastic_attempt.py one whose ranks come and go,
run_files.py the files that a run leaves, rank_rows.py the rows of --data, limits.py what stops a run without its user.
"""

from __future__ import annotations

import contextlib
import json
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable, Iterable, Mapping

from .. import events, package, target
from ..checkpoints import checkpoint_files, checkpoint_storage
from ..monitoring.reference import Sketches
from ..monitoring.sources import REFERENCE_FILE
from ..provenance.packages import Distinct
from ..rank.config import JobConfig
from ..rank_end import UNCACHED
from ..run_spec import RunSpec
from ..spark import allocation, slots, spark_error
from ..strategies import RESTARTED_ALONE
from ..transport import wire
from ..wording import counted
from . import bad_executors, elastic_attempt, executors, run_result
from .driver_network import DriverNetwork
from .executor_watch import ExecutorWatch
from .journal import Journal
from .limits import RunLimits
from .rank_jobs import RankJobs
from .rank_rows import RankRows
from .run_context import RunContext
from .run_files import RunFiles
from .run_result import RunResult
from .server_process import ParameterServers

if TYPE_CHECKING:
    from pyspark import Broadcast, SparkContext

    from ..data.feed import Feed
    from .attempt import Attempt


class Job:
    """A run that trains. The driver's API calls `start`, `stop` and `forget`, and reads the other public names."""

    def __init__(
        self,
        sc: SparkContext,
        spec: RunSpec,
        packed: bytes,
        prepare: Callable[[SparkContext, str, int], Feed] | None,
        resumed: Iterable[checkpoint_files.CheckpointSource] = (),
        cell_files: bytes = b"",
        environment: Mapping[str, Any] | None = None,
    ) -> None:
        """packed: `names.pack`'s bytes. cell_files: a zip of the files of --files, or nothing. prepare(sc, job group,
        workers): makes the data of --data; None without it. environment: the fields of the job's event of that kind, or
        None.

        resumed: the checkpoints of another run from which this one continues. NoCheckpoint, which is a ValueError,
        where one cannot be read.
        """
        self.spec, self.workers = spec, spec.ranks  # of the attempt in progress
        self.journal = Journal(spec.run)
        self.files = RunFiles(spec, self.journal)
        self._sc, self._packed, self._cell_files = sc, packed, cell_files
        self._environment = environment
        self._group = "ddl_magics " + spec.run
        self._limits = RunLimits(spec, self.stop)
        self._network = DriverNetwork(sc, spec, self.journal)
        self._rows = RankRows(sc, spec, self._group, prepare, self.journal)
        self._sketches = Sketches()
        self._executors = ExecutorWatch(
            spec,
            bad_executors.of_application(str(sc.applicationId)),
            self.journal,
            lambda ids: allocation.replace_several(sc, ids),
        )
        self._changed = threading.Condition()
        self._attempt: Attempt | None = None  # the one in progress
        self._attempts = spec.attempts or run_result.ATTEMPTS
        self._stop_reason: str | None = None  # words that follow "stopped", once a stop was asked for
        self._uploader = self._checkpoint_uploader()
        warn = lambda text: self.journal.notice("warning", text)  # noqa: E731
        self.checkpoints = checkpoint_files.CheckpointFiles(warn, self._uploader)
        try:
            for source in resumed:
                self.checkpoints.adopt(source, self.files.new_path())
        except ValueError:
            self.forget()
            raise

    def _checkpoint_uploader(self) -> checkpoint_storage.CheckpointUploader | None:
        root, run = self.spec.checkpoint, self.spec.run
        if not root:
            return None
        uri = checkpoint_storage.folder_of(root, run)
        return checkpoint_storage.CheckpointUploader(self._sc, uri, run, self.files.new_path, self.journal.notice)

    def start(self) -> None:
        if self._environment:
            self.journal.report(events.make("environment", events.JOB, **self._environment))
        threading.Thread(target=self._run_to_end, name=self._group, daemon=True).start()

    def stop(self, reason: str = "") -> None:
        """Ask the ranks to end after their step. `reason`: words that follow "stopped"."""
        with self._changed:
            if self._stop_reason is not None or self.journal.state in events.TERMINAL:
                return
            self._stop_reason, attempt = reason, self._attempt
            if attempt is None:
                self.journal.enter(events.STOPPING, "stopping before the workers started")
            self._changed.notify_all()
        if attempt is not None:  # without the lock: a rank's event holds that of the attempt, and may stop the job
            attempt.stop(reason)

    def forget(self) -> None:
        """Delete the run's files."""
        self.files.remove()

    # -- the run's thread

    def _run_to_end(self) -> None:
        self.journal.enter(events.PREFLIGHT, "looking for %s" % _slots(self.spec))
        try:
            with contextlib.ExitStack() as cleanup:
                result = self._train(cleanup)
        except Exception as error:  # Spark refused; what it raises is of many kinds
            result = run_result.failed_job("spark", spark_error.cause(error))
        try:
            stored = self._uploader is not None and self._uploader.close()
            self._keep_reference()
            if self._limits.target is not None and result.failure is None:
                verdict = target.verdict(self._limits.target, self.journal.log.all_events())
                result = result.with_suffix("; " + verdict)
            if result.state != events.FINISHED:
                result = self._offer_checkpoints(result, stored)
            if self.spec.out:
                self.files.write_out(self._sc, self.journal.log.all_events())
        finally:
            fields = {} if result.failure is None else {"failure": result.failure.to_json()}
            self.journal.enter(result.state, result.message, **fields)

    def _keep_reference(self) -> None:
        """Make an artifact of how the rows of --data were distributed."""
        inputs = self._rows.inputs
        reference = None if inputs is None else self._sketches.reference(self.spec.run, inputs)
        if reference is not None:
            self.files.keep_text(REFERENCE_FILE, json.dumps(reference))

    def _train(self, cleanup: contextlib.ExitStack) -> RunResult:
        """Attempt after attempt, until one has the run's result. cleanup: is closed by the caller."""
        result = self._wait_for_executors()
        if result is not None:
            return result
        try:
            credentials = self._network.new_credentials()
        except ValueError as error:
            return run_result.failed_job("error", str(error))
        cleanup.callback(self._rows.close)
        identity = wire.Identity("driver", -1, 0)
        listener = wire.Listener(self._network.bind_host, credentials, identity, self._admit, self._accept)
        cleanup.callback(listener.close)
        broadcast_payload = self._sc.broadcast(self._broadcast_payload())
        cleanup.callback(spark_error.best_effort, broadcast_payload.destroy)
        config = JobConfig(
            spec=replace(self.spec, conf={}, mlflow=None),  # which may have secrets, and no rank reads them
            credentials=credentials,
            driver=(self._network.host, listener.address[1]),
            spark=self._sc.version,
            executor_cores=slots.executor_cores(self._sc),
            max_workers=self.spec.ranks,
        )
        message, resumed_at = "Spark is starting %s" % counted(self.workers, "task"), self._resume_point
        context: RunContext | None = None
        while True:
            self._rows.distribute(self.workers)
            config = replace(config, spec=replace(config.spec, workers=self.workers))
            context = context or self._context(self._rows.described_in(config), cleanup)
            result = self._try(context, message, broadcast_payload, config)
            if result.failure is not None and result.failure.kind == UNCACHED:
                if self._stop_reason is not None:
                    return self._stopped_early()
                # Entries were removed since the driver looked, or Spark has placed a rank on another host.
                message = "dealing the rows of %s: a worker's host does not have its share" % self.spec.data
                self.journal.enter(events.WAITING, message)
                self._rows.deal_all()
                self.journal.attempt, self._attempts = self.journal.attempt + 1, self._attempts + 1
                continue
            if result.death is None or self._stop_reason is not None:
                return result
            position = self._resume_point
            if self.spec.min_workers is not None and position != resumed_at:
                self._attempts += 1  # workers come and go: an attempt that has got further does not count
            resumed_at = position
            if self.journal.attempt >= self._attempts or self.spec.strategy in RESTARTED_ALONE:
                suffix = "; it was attempt %d of %d" % (self._attempts, self._attempts)
                return result.with_suffix(suffix) if self._attempts > 1 else result
            self.journal.attempt += 1
            number = "attempt %d of %d" % (self.journal.attempt, self._attempts)
            message = "%s: %s; continues %s" % (number, result.death, position)
            early = self._wait_for_executors(message)
            if early is not None:
                return early if early.state == events.STOPPED else result.with_suffix("; then " + early.message)
            if self.spec.min_workers is not None:
                message += " with %s" % counted(self.workers, "worker")

    def _context(self, config: JobConfig, cleanup: contextlib.ExitStack) -> RunContext:
        """What the attempts share. cleanup: ends the parameter servers."""
        servers = None
        if self.spec.strategy == "ps":
            servers = ParameterServers(
                config.credentials,
                self.workers,
                self.spec.rule,
                self.spec.ps or 1,
                self._network.bind_host,
                self._network.host,
                lambda text: self.journal.report(events.make("log", events.JOB, stream="stderr", text=text)),
                # The run's end follows, once the workers have ended.
                lambda message: self.journal.notice("warning", message),
                config.max_workers if config.changes else 0,
            )
            cleanup.callback(servers.close)
        packages = Distinct(self._environment["packages"] if self._environment else {})
        stores = (self.files, self.checkpoints, self._sketches, packages)
        return RunContext(self.journal, self._limits, self._network, self._rows, *stores, self._executors, servers)

    def _try(
        self, context: RunContext, message: str, broadcast_payload: Broadcast[dict[str, bytes]], config: JobConfig
    ) -> RunResult:
        """Make an attempt. message: of the state that it begins with."""
        group = "%s attempt %d" % (self._group, self.journal.attempt)
        rows = self._rows
        jobs = RankJobs(self._sc, self._spec_of_attempt, group, rows, broadcast_payload)
        with self._changed:
            if self._stop_reason is not None:
                return self._stopped_early()
            described = rows.described_in(config)
            kind = elastic_attempt.kind_of_attempt(described)
            attempt = kind(context, self.journal.attempt, self._attempts, message, jobs, described)
            self._attempt = attempt
        result = None
        try:
            attempt.start()
            with rows.watched_by(group):
                result = attempt.wait()
        finally:
            with self._changed:
                self._attempt = None
            attempt.clear(cancel=result is None or result.must_cancel)
        return attempt.explain(result)

    def _wait_for_executors(self, reason: str = "") -> RunResult | None:
        """Have bad executors replaced, and wait for the slots. None when they are there, else the run's result.

        reason: why they are needed again.
        With MIN..MAX workers, `workers` is how many the attempt has.
        """
        min_slots, max_slots = self.spec.min_slots, self.spec.ranks
        self._executors.replace_before(self.journal.attempt)

        def report(available: int, why: str | None) -> None:
            count = "%d of %s" % (available, _slots(self.spec))
            message = "; ".join(filter(None, (reason, count, why)))
            self.journal.enter(events.WAITING, message, ready=available, needed=min_slots)

        summons = None if self.spec.min_workers is None else self._group + " executors"
        available = executors.wait_for_slots(
            self._sc, min_slots, max_slots, self.spec.gpus, report, self._wait_for_stop, summons
        )
        if self._stop_reason is not None:
            return self._stopped_early()
        if isinstance(available, str):
            return run_result.failed_job("spark", available)
        self.workers = available
        return None

    @property
    def _resume_point(self) -> str:
        """Where the next attempt continues, for people."""
        return checkpoint_files.resume_point(self.checkpoints.files())

    @property
    def _spec_of_attempt(self) -> RunSpec:
        return replace(self.spec, workers=self.workers)

    def _wait_for_stop(self, seconds: float) -> bool:
        """Wait at most so long. Whether a stop was asked for, also by --timeout."""
        self._limits.check_time()
        with self._changed:
            if self._stop_reason is None:
                self._changed.wait(seconds)
            return self._stop_reason is not None

    def _stopped_early(self) -> RunResult:
        if self.journal.attempt == 1:
            return RunResult(events.STOPPED, "stopped before the workers started")
        return RunResult(events.STOPPED, "stopped%s, before attempt %d" % (self._stop_reason, self.journal.attempt))

    def _broadcast_payload(self) -> dict[str, bytes]:
        return {"runtime": package.own_zip(), "names": self._packed, "files": self._cell_files}

    def _offer_checkpoints(self, result: RunResult, stored: bool) -> RunResult:
        """Make artifacts of the checkpoints from which a later run can continue. Returns the result that says so.

        stored: they are in the cluster's storage, in the folder of --checkpoint.
        """
        files = self.checkpoints.files()
        if not stored:
            for file in files:
                self.files.keep(file)
        if not files:
            return result
        position = checkpoint_files.resume_point(files)
        return result.with_suffix("; --resume %s continues %s, the last checkpoint" % (self.spec.name, position))

    # -- calls from the threads of connections

    def _admit(self, identity: wire.Identity) -> str | None:
        attempt = self._attempt
        return "no attempt is in progress" if attempt is None else attempt.admit(identity)

    def _accept(self, channel: wire.Channel) -> None:
        attempt = self._attempt
        if attempt is None:  # it has ended since the supervisor was admitted
            channel.close(0)
        else:
            attempt.accept(channel)


def _slots(spec: RunSpec) -> str:
    """The slots that a run asks for, for people."""
    if spec.min_workers is None:
        return counted(spec.ranks, "slot")
    return "%d to %s" % (spec.min_slots, counted(spec.workers, "slot"))
