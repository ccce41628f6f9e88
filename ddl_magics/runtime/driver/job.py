"""One run on the driver, from the wait for its slots to its end: attempt after attempt, while workers die.

The run has a thread of its own. attempt.py has what an attempt is, run_files.py the files that a run leaves.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import threading
import time
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
from ..spark import slots, spark_error
from ..spark.settings import conf_of
from ..strategies import ENSEMBLE, RESTARTED_ALONE
from ..transport import wire
from ..wording import counted
from . import data_progress, encryption, executors, run_result
from .attempt import Attempt
from .event_log import EventLog, state_event
from .rank_jobs import best_effort
from .run_files import RunFiles
from .run_result import RunResult
from .server_process import ParameterServers

if TYPE_CHECKING:
    from pyspark import RDD, Broadcast, SparkContext

    from ..data.feed import Feed


class Job:
    """The driver's API calls `start`, `stop` and `forget`, and reads `state`, `spec`, `workers`, `log`, `files` and
    `checkpoints`. The other public names are for the run's attempts.
    """

    def __init__(
        self,
        sc: SparkContext,
        spec: RunSpec,
        packed: bytes,
        prepare: Callable[[SparkContext, str], Feed] | None,
        resumed: Iterable[checkpoint_files.Source] = (),
        sent: bytes = b"",
        environment: Mapping[str, Any] | None = None,
    ) -> None:
        """packed: `names.pack`'s bytes. sent: a zip of the files of --files, or nothing. prepare(sc, job group): makes
        the data of --data; None without it. environment: the fields of the job's event of that kind, or None.

        resumed: the checkpoints of another run from which this one continues. NoCheckpoint, which is a ValueError,
        where one cannot be read.
        """
        self.workers = spec.ranks
        self.state = events.PREFLIGHT
        self.log = EventLog(spec.run)
        self.files = RunFiles(spec, self._report)
        self.sc, self.spec = sc, spec
        self.sketches = Sketches()
        self.packages = Distinct(environment["packages"] if environment else {})
        self._environment = environment
        self.attempts = spec.attempts or run_result.ATTEMPTS
        self.group = "ddl_magics " + spec.run
        self.servers: ParameterServers | None = None
        self._packed, self._prepare, self._sent = packed, prepare, sent
        self._data: Feed | None = None  # of --data
        self._feeds: list[Feed] = []  # all that were made of it
        self._dealing = threading.Lock()
        self._secret = secrets.token_bytes(32)
        self._changed = threading.Condition()
        self._entering = threading.RLock()
        self._attempt: Attempt | None = None  # the one in progress
        self._number = 1  # of the attempt in progress, or of the next
        self._stop_reason: str | None = None  # words that follow "stopped", once a stop was asked for
        self._deadline: float | None = None  # of --timeout
        wanted = spec.target
        self._target = target.read(wanted) if wanted else None
        self._encrypted = self._hosts_noted = False
        self._copies = self._checkpoint_copies()
        self.checkpoints = checkpoint_files.CheckpointFiles(lambda text: self._notice("warning", text), self._copies)
        try:
            for source in resumed:
                self.checkpoints.adopt(source, self.files.new_path())
        except ValueError:
            self.forget()
            raise

    def _checkpoint_copies(self) -> checkpoint_storage.CheckpointUploader | None:
        root, run = self.spec.checkpoint, self.spec.run
        if not root:
            return None
        uri = checkpoint_storage.folder_of(root, run)
        return checkpoint_storage.CheckpointUploader(self.sc, uri, run, self.files.new_path, self._notice)

    def start(self) -> None:
        if self._environment:
            self._report(events.make("environment", events.JOB, **self._environment))
        threading.Thread(target=self._run_to_end, name=self.group, daemon=True).start()

    def stop(self, reason: str = "") -> None:
        """Ask the ranks to end after their step. `reason`: words that follow "stopped"."""
        with self._changed:
            if self._stop_reason is not None or self.state in events.TERMINAL:
                return
            self._stop_reason, attempt = reason, self._attempt
            if attempt is None:
                self.enter(events.STOPPING, "stopping before the workers started")
            self._changed.notify_all()
        if attempt is not None:  # without the lock: a rank's event holds that of the attempt, and may stop the job
            attempt.stop(reason)

    def forget(self) -> None:
        """Delete the run's files."""
        self.files.remove()

    # -- the run's thread

    def _run_to_end(self) -> None:
        self.enter(events.PREFLIGHT, "looking for %s" % counted(self.workers, "slot"))
        try:
            with contextlib.ExitStack() as cleanup:
                result = self._train(cleanup)
        except Exception as error:  # Spark refused; what it raises is of many kinds
            result = run_result.failed_job("spark", spark_error.cause(error))
        try:
            stored = self._copies is not None and self._copies.close()
            self._keep_reference()
            if self._target is not None and result.failure is None:
                result = result.with_suffix("; " + target.verdict(self._target, self.log.all_events()))
            if result.state != events.FINISHED:
                result = self._offer_checkpoints(result, stored)
            if self.spec.out:
                self.files.write_out(self.sc, self.log.all_events())
        finally:
            fields = {} if result.failure is None else {"failure": result.failure.to_json()}
            self.enter(result.state, result.message, **fields)

    def _keep_reference(self) -> None:
        """Make an artifact of how the rows of --data were distributed."""
        inputs = None if self._data is None else self._data.inputs
        reference = None if inputs is None else self.sketches.reference(self.spec.run, inputs)
        if reference is not None:
            self.files.keep_text(REFERENCE_FILE, json.dumps(reference))

    def _train(self, cleanup: contextlib.ExitStack) -> RunResult:
        """Attempt after attempt, until one has the run's result. cleanup: is closed by the caller."""
        result = self._wait_for_executors()
        if result is not None:
            return result
        try:
            credentials = self._new_credentials()
        except ValueError as error:
            return run_result.failed_job("error", str(error))
        self._prepare_data(cleanup)
        host, bind_host = self._host(), self._bind_host()
        if self.spec.strategy == "ps":
            rule, servers = self.spec.rule, self.spec.ps or 1
            self.servers = ParameterServers(
                credentials,
                self.workers,
                rule,
                servers,
                bind_host,
                host,
                self._on_server_output,
                lambda message: self._notice("warning", message),  # the run's end follows, once the workers have ended
            )
            cleanup.callback(self.servers.close)
        identity = wire.Identity("driver", -1, 0)
        listener = wire.Listener(bind_host, credentials, identity, self._admit, self._accept)
        cleanup.callback(listener.close)
        broadcast_payload = self.sc.broadcast(self._broadcast_payload())
        cleanup.callback(best_effort, broadcast_payload.destroy)
        config = self._config(credentials, listener)
        message = "Spark is starting %s" % counted(self.workers, "task")
        while True:
            result = self._try(message, self._partitions(), broadcast_payload, self._with_data(config))
            if result.failure is not None and result.failure.kind == UNCACHED:
                if self._stop_reason is not None:
                    return self._stopped_early()
                # Entries were removed since the driver looked, or Spark has placed a rank on another host.
                message = "dealing the rows of %s: a worker's host does not have its share" % self.spec.data
                self.enter(events.WAITING, message)
                with self._dealing:
                    self._deal_whole()
                self._number, self.attempts = self._number + 1, self.attempts + 1
                continue
            if result.death is None or self._stop_reason is not None:
                return result
            if self._number >= self.attempts or self.spec.strategy in RESTARTED_ALONE:
                last = "; it was attempt %d of %d" % (self.attempts, self.attempts)
                return result.with_suffix(last) if self.attempts > 1 else result
            self._number += 1
            position = checkpoint_files.resume_point(self.checkpoints.files())
            message = "attempt %d of %d: %s; continues %s" % (self._number, self.attempts, result.death, position)
            waited = self._wait_for_executors(message)
            if waited is not None:
                return waited if waited.state == events.STOPPED else result.with_suffix("; then " + waited.message)

    def _try(
        self, message: str, rdd: RDD[Any], broadcast_payload: Broadcast[dict[str, bytes]], config: JobConfig
    ) -> RunResult:
        """Make an attempt. message: of the state that it begins with."""
        with self._changed:
            if self._stop_reason is not None:
                return self._stopped_early()
            attempt = self._attempt = Attempt(self, self._number, message, rdd, broadcast_payload, config)
        result = None
        try:
            attempt.start()
            with contextlib.ExitStack() as watching:
                if self._data is not None and (self._data.cache is None or self._data.cache["dealt"]):
                    watching.enter_context(self._watched(events.SUBMITTED, attempt.group, "dealing"))
                result = attempt.wait()
            return result
        finally:
            with self._changed:
                self._attempt = None
            attempt.clear(cancel=result is None or result.must_cancel)

    def _wait_for_executors(self, reason: str = "") -> RunResult | None:
        """Wait for the slots. None when they are there, else the run's result. reason: why they are needed again."""

        def report(ready: int) -> None:
            message = "%d of %s" % (ready, counted(self.workers, "slot"))
            message = "%s; %s" % (reason, message) if reason else message
            self.enter(events.WAITING, message, ready=ready, needed=self.workers)

        problem = executors.wait_for_slots(self.sc, self.workers, self.spec.gpus, report, self._wait_for_stop)
        if self._stop_reason is not None:
            return self._stopped_early()
        return None if problem is None else run_result.failed_job("spark", problem)

    def _wait_for_stop(self, seconds: float) -> bool:
        """Wait at most so long. Whether a stop was asked for, also by --timeout."""
        self.check_time()
        with self._changed:
            if self._stop_reason is None:
                self._changed.wait(seconds)
            return self._stop_reason is not None

    def _stopped_early(self) -> RunResult:
        if self._number == 1:
            return RunResult(events.STOPPED, "stopped before the workers started")
        return RunResult(events.STOPPED, "stopped%s, before attempt %d" % (self._stop_reason, self._number))

    def check_time(self) -> None:
        """Ask for a stop when --timeout is over."""
        timeout = self.spec.timeout
        if timeout and self._deadline is not None and time.monotonic() > self._deadline:
            self.stop(" by --timeout after %g s" % timeout)

    def check_target(self, event: events.Event) -> None:
        """Stop the run where a loop of the cell's own logs, on rank 0, that --target is reached; fits end themselves.

        The members of an ensemble end one by one, each with its own fit.
        """
        if self._target is None or event["kind"] != "values" or event["rank"] != 0:
            return
        if self.spec.strategy != ENSEMBLE and self._target.is_reached(event["metrics"].get(self._target.metric)):
            self.stop(" at --target")

    def note_hosts(self, hosts: Iterable[str]) -> None:
        """The workers are on these hosts: say, once, if what crosses the network is not encrypted as Spark's is."""
        if not self._encrypted and not self._hosts_noted:
            self._hosts_noted = True
            warning = encryption.clear_text_warning(self.sc, {*hosts, self._host()})
            if warning is not None:
                self._notice("warning", warning)

    def note_reading(self, event: events.Event) -> None:
        """Rank 0 has read so many of its rows of files. The others read as many, at the same time."""
        with self._entering:
            if self._stop_reason is not None or self.state not in (events.RUNNING, events.WAITING):
                return
            if event["rows"] >= event["of"]:
                self.enter(events.RUNNING, "training on %s" % counted(self.workers, "worker"))
                return
            message = data_progress.of_reading("reading %s" % self.spec.data, event, self.workers)
            self.enter(events.WAITING, message, ready=event["rows"], needed=event["of"])

    def note_start(self) -> None:
        """Training begins. The time of --timeout runs from the first call on."""
        timeout = self.spec.timeout
        if timeout and self._deadline is None:
            self._deadline = time.monotonic() + timeout

    def _prepare_data(self, cleanup: contextlib.ExitStack) -> None:
        """Make the feed of --data."""
        if self._prepare is None:
            return
        workers = counted(self.workers, "worker")
        self.enter(events.PREFLIGHT, "distributing the rows of %s to %s" % (self.spec.data, workers))
        with self._watched(events.PREFLIGHT, self.group, "preparing"):
            data = self._data = self._prepare(self.sc, self.group)
        cleanup.callback(self._close_feeds)
        self._feeds.append(data)
        for notice in data.notices:
            self._notice("info", notice)
        rows = {name: data.manifest[name] for name in ("rows", "validation_rows")}
        self._report(events.make("data", events.JOB, name=self.spec.data, inputs=data.inputs, **rows))

    def _watched(self, state: str, group: str, what: str) -> contextlib.AbstractContextManager[None]:
        """While it lasts, and the run is in `state`, that says how far the rows of --data are."""

        def report(message: str, done: int, tasks: int) -> None:
            with self._entering:
                if self.state == state:
                    self.enter(state, message, ready=done, needed=tasks)

        what = "%s %s" % (what, self.spec.data)
        going = lambda: self.state == state  # noqa: E731
        return data_progress.watch(self.sc, group, what, report, going, last_stage=state == events.PREFLIGHT)

    def _partitions(self) -> RDD[Any]:
        """An RDD with a partition for each rank, with its rows of --data."""
        if self._data is None:
            return self.sc.parallelize(range(self.workers), self.workers)
        rdd: RDD[Any] = self._data.rdd
        return rdd

    def _close_feeds(self) -> None:
        for feed in self._feeds:
            best_effort(feed.close)

    def _with_data(self, config: JobConfig) -> JobConfig:
        if self._data is None:
            return config
        return replace(config, manifest=self._data.manifest, cache=self._data.cache)

    def _deal_whole(self) -> None:
        """Deal the rows of all ranks, if the cache was to have some. The lock `_dealing` is held."""
        assert self._data is not None
        self._data = self._data.whole()
        self._feeds.append(self._data)

    def dealt_again(self, config: JobConfig) -> tuple[RDD[Any], JobConfig]:
        """The partitions, and the configuration, for a rank that is started again alone: it may be on another host."""
        if self._data is None:
            return self._partitions(), config
        with self._dealing:
            self._deal_whole()
            used, found = config.cache, self._data.cache
            if used is not None and (found is None or used["digest"] != found["digest"]):
                raise RuntimeError(
                    "the rows of --data have changed since they came into the cache: start the run again"
                )
            return self._data.rdd, replace(config, cache=found)

    def _host(self) -> str:
        """Where executors reach the driver."""
        return socket.gethostbyname(conf_of(self.sc).get("spark.driver.host") or "127.0.0.1")

    def _bind_host(self) -> str:
        address = conf_of(self.sc).get("spark.driver.bindAddress")
        return socket.gethostbyname(address) if address else self._host()

    def _broadcast_payload(self) -> dict[str, bytes]:
        zipped = package.zipped(os.path.basename(package.FOLDER), package.sources(package.FOLDER))
        return {"runtime": zipped, "names": self._packed, "files": self._sent}

    def _new_credentials(self) -> wire.Credentials:
        certificate = encryption.certificate(self.sc, self.spec)
        self._encrypted = certificate is not None
        if certificate is not None and encryption.keys_are_exposed(self.sc):
            self._notice("warning", encryption.KEYS_IN_THE_CLEAR)
        return wire.Credentials(self.spec.run, self._secret, certificate)

    def _config(self, credentials: wire.Credentials, listener: wire.Listener) -> JobConfig:
        """What the ranks of all attempts have in common."""
        return JobConfig(
            spec=replace(self.spec, conf={}, mlflow=None),  # which may have secrets, and no rank reads them
            credentials=credentials,
            driver=(self._host(), listener.address[1]),
            spark=self.sc.version,
            executor_cores=slots.executor_cores(self.sc),
        )

    # -- calls from the threads of connections, servers and attempts

    def _admit(self, identity: wire.Identity) -> str | None:
        attempt = self._attempt
        return "no attempt is in progress" if attempt is None else attempt.admit(identity)

    def _accept(self, channel: wire.Channel) -> None:
        attempt = self._attempt
        if attempt is None:  # it has ended since the supervisor was admitted
            channel.close(0)
        else:
            attempt.accept(channel)

    def _on_server_output(self, text: str) -> None:
        self._report(events.make("log", events.JOB, stream="stderr", text=text))

    # -- events of the job itself

    def enter(self, state: str, message: str, **fields: Any) -> None:
        """The run enters a state."""
        with self._entering:
            self._report(state_event(state, message, **fields))
            self.state = state

    def _notice(self, level: str, message: str) -> None:
        self._report(events.make("notice", events.JOB, level=level, message=message))

    def _report(self, event: events.Event) -> None:
        self.log.append(event, self._number)

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
