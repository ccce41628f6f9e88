"""One attempt of a run: its Spark jobs, the connections of its ranks, and how it ended.

The jobs and the connections have threads of their own. These only record what the driver has received;
`run_result.judge` decides. The ranks are those that the attempt began with; elastic_attempt.py has others.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Mapping, Sequence

from .. import events
from ..checkpoints import checkpoint_files
from ..data.share_cache import NOT_KEPT
from ..rank_end import Failure, RankEnd
from ..spark import spark_error
from ..strategies import RESTARTED_ALONE
from ..transport import messages, wire
from ..transport.incoming import IncomingFile
from ..transport.sockets import error_text
from ..wording import counted
from . import rank_messages
from .rank_jobs import RankJobs
from .run_context import RunContext
from .run_result import AttemptRecord, RunResult, TimedEnd, failed_job, judge
from .silence import Silence

if TYPE_CHECKING:
    from ..checkpoints.checkpoint import CheckpointFile
    from ..rank.config import JobConfig

#: From the submission until every rank has reported.
RANKS_SECONDS = 120.0
#: The same with --data, whose rows the ranks get first.
RANKS_WITH_DATA_SECONDS = 1800.0
#: How long a rank that was asked to stop may take to finish its step; then the job is cancelled.
STOP_GRACE_SECONDS = 20.0
TICK_SECONDS = 0.5


class Attempt:
    """Attempt `number` (from 1) of a run. `start`, then `wait` for its result; `clear` must follow.

    `stop`, `admit` and `accept` may be called at any time, from any thread.
    """

    def __init__(
        self,
        context: RunContext,
        number: int,
        max_starts: int,
        message: str,
        jobs: RankJobs,
        config: JobConfig,
    ) -> None:
        """max_starts: how often a rank that is restarted alone is started at most. message: of the state that the
        attempt begins with. config: what its ranks have in common.
        """
        self.number = number
        self._context, self._max_starts, self._message, self._config = context, max_starts, message, config
        self._journal, self._workers = context.journal, config.workers
        self._numbers = dict.fromkeys(range(self._workers), number)  # by rank: higher for one that was restarted alone
        self._record = AttemptRecord(self._workers, trained=number > 1)
        self._changed = threading.Condition()
        self._channels: dict[int, wire.Channel] = {}
        self._addresses: dict[int, wire.Address | None] = {}  # rank -> its address
        self._over = False  # it has a result
        self._started: set[int] = set()  # ranks that have been sent their peers, after which they train
        self._reported_once: set[str] = set()  # unsound reports, by kind, and notices about the cache of --data
        self._hosts: dict[int, str] = {}
        self._executors: dict[int, str | None] = {}
        self._cut: set[int] = set()  # ranks whose host did not answer
        self._silence = Silence(TICK_SECONDS, config.spec.stall_notice)
        self._cleared = False
        self._start_seconds = RANKS_SECONDS
        self._checkpoints: list[CheckpointFile] = []  # from which the ranks continue
        self._jobs = jobs
        self._job_errors: list[str | None] = []

    def start(self) -> None:
        """Submit the Spark job of all ranks."""
        with self._changed:
            self._expect(self._workers)
            if self._record.stop_asked_at is None:
                self._journal.enter(events.SUBMITTED, self._message)
        self._submit()

    def _expect(self, workers: int, seconds: float | None = None) -> None:
        """So many workers are being started, within `seconds` or the usual time."""
        if seconds is None:
            seconds = RANKS_WITH_DATA_SECONDS if self._config.manifest else RANKS_SECONDS
        self._start_seconds = seconds
        message = "%s did not report within %g s; see %s"
        self._record.start_message = message % (
            counted(workers, "worker"),
            seconds,
            self._jobs.logs or "the executors' logs",
        )
        self._record.start_deadline = time.monotonic() + seconds

    def _submit(self, rank: int | None = None, in_place_of: int | None = None) -> None:
        """Start a Spark job of all ranks, or of one rank alone. in_place_of: a rank that may have died on a bad
        executor.
        """
        self._checkpoints = self._context.checkpoints.files()
        config = replace(
            self._config,
            attempt=self.number if rank is None else self._numbers[rank],
            resume=tuple(checkpoint_files.positions(self._checkpoints)),
            # The parameter servers have the weights that a rank started again alone continues from.
            reported=self._journal.log.histories() if rank is not None and self._context.servers else None,
        )
        executors = self._context.executors
        replace_bad = None if in_place_of is None else executors.replacement_after(in_place_of)
        self._jobs.submit(config, self._on_job_end, rank, replace_bad)

    def _on_job_end(self, error: str | None) -> None:
        with self._changed:
            self._job_errors.append(error)
            if len(self._job_errors) == self._jobs.submitted:
                self._record.spark_error = next(filter(None, self._job_errors), None)
                self._record.spark_ended_at = time.monotonic()
            self._changed.notify_all()

    def stop(self, reason: str) -> None:
        """Ask the ranks to end after their step. `reason`: words that follow "stopped"."""
        with self._changed:
            if self._over:
                return
            now = time.monotonic()
            self._record.stop_asked_at, self._record.stop_reason = now, reason
            started = bool(self._started)
            if started:
                self._record.absent = self._numbers.keys() - self._started
            self._record.stop_deadline = now + (STOP_GRACE_SECONDS if started else 0.0)
            message = "finishing the step" if started else "stopping before the workers started"
            self._journal.enter(events.STOPPING, message)
            channels = list(self._channels.values())
            self._changed.notify_all()
        for channel in channels:
            send(channel, messages.STOP, {})

    def wait(self) -> RunResult:
        """Return the attempt's result once there is one."""
        while True:
            self._context.limits.check_time()
            with self._changed:
                if self._context.servers is not None:
                    self._record.server_death = self._context.servers.death
                self._note_silent_ranks()
                self._replace_dead_ranks()
                result = judge(self._record, time.monotonic())
                if result is not None:
                    self._over = True
                    if result.death and result.failure is not None:
                        self._note_death(result.failure.rank)
                    return result
                self._changed.wait(TICK_SECONDS)

    def _note_silent_ranks(self) -> None:
        """Report ranks of which nothing comes: their supervisors cannot report a stall, as they are frozen, too."""
        for rank in self._silence.tick(time.monotonic()):
            text = "nothing has come from %s for %.0f s, though its host answers; are Spark's processes there stopped?"
            self._notice(rank, "warning", text % (self._hosts[rank], self._silence.seconds[rank]))
        for rank, seconds in list(self._silence.seconds.items()):
            if self._config.spec.stall is not None and seconds >= self._config.spec.stall:
                message = "nothing has come from its supervisor for %.0f s; --stall ended it" % seconds
                self.on_end(rank, RankEnd("failed", Failure(rank, "", "stalled", message)))

    def _notice(self, rank: int, level: str, message: str) -> None:
        self._journal.log.append(events.make("notice", rank, level=level, message=message), self._numbers[rank])

    def _replace_dead_ranks(self) -> None:
        """Start ranks that died again while the others continue, if the strategy allows that."""
        record = self._record
        if self._config.spec.strategy not in RESTARTED_ALONE or record.stop_asked_at is not None or record.server_death:
            return
        for rank, result in record.deaths().items():
            if self._numbers[rank] >= self._max_starts:
                continue
            self._note_death(rank)
            self._forget(rank)
            self._expect(1, RANKS_WITH_DATA_SECONDS)  # its task may have to wait for a slot while the others train
            message = "%s; it is restarted (attempt %d of %d) while the others continue"
            self._journal.enter(events.RUNNING, message % (result.death, self._numbers[rank], self._max_starts))
            self._submit(rank, in_place_of=rank)

    def _note_death(self, rank: int) -> None:
        """Count it against the rank's executor; not where the end may come of the stop."""
        if self._record.stop_asked_at is None:
            self._context.executors.died(rank)

    def _forget(self, rank: int) -> None:
        """A rank has died; another one is started, in a Spark job of its own."""
        record = self._record
        if rank in record.lost:
            lost = (rank, *self._lost_with(rank))
            threading.Thread(target=self._explain_loss, args=lost, daemon=True).start()
            self._cut.discard(rank)
        self._numbers[rank] += 1
        record.forget(rank)
        record.spark_ended_at = None
        self._context.executors.left(rank)
        self._addresses.pop(rank, None)
        self._started.discard(rank)
        self._silence.forget(rank)
        channel = self._channels.pop(rank, None)
        if channel is not None:
            channel.close(0)

    def explain(self, result: RunResult) -> RunResult:
        """The attempt's result, with what the cluster manager says: of executors that are lost or missing, or of the
        session, if that has ended.
        """
        failure, record = result.failure, self._record
        if failure is None or failure.kind not in ("lost", "spark"):
            return result
        reason = self._loss_of(*self._lost_with(failure.rank)) if failure.kind == "lost" else None
        problem = self._jobs.session_end()
        if problem is None and failure.message == record.start_message:
            problem = self._jobs.shortage(self._start_seconds)
        if problem is not None:
            return failed_job("spark", problem)
        if reason is not None:
            result = result.of_lost_executor(reason)
        return result.with_suffix("; see %s" % self._jobs.logs) if result.death and self._jobs.logs else result

    def _explain_loss(self, rank: int, executor: str | None, cut: bool) -> None:
        """Report why a rank was lost that is restarted alone, once that is known."""
        reason = self._loss_of(executor, cut)
        if reason is not None:
            self._notice(rank, "warning", "its executor was lost: %s" % reason)

    def _lost_with(self, rank: int) -> tuple[str | None, bool]:
        """The executor of a rank that was lost, and whether its host does not answer."""
        return self._executors.get(rank), rank in self._cut

    def _loss_of(self, executor: str | None, cut: bool) -> str | None:
        """Why an executor was lost, if that is known. One whose host does not answer is replaced."""
        if not cut:
            return self._jobs.loss_of(executor)
        self._jobs.replace_on_host_of(executor)
        return "its host does not answer"

    def clear(self, cancel: bool) -> None:
        """Leave nothing of the attempt behind. cancel: tasks may still run."""
        if cancel:
            self._jobs.cancel()
        self._jobs.join()
        with self._changed:
            self._cleared = True
            self._context.executors.all_left()
        for channel in list(self._channels.values()):
            channel.close()

    # -- the connections of the ranks' supervisors

    def admit(self, identity: wire.Identity) -> str | None:
        """Why a supervisor may not connect, or None."""
        with self._changed:
            if identity.role != "supervisor" or identity.rank not in self._numbers:
                return "not a rank of this run"
            if identity.attempt != self._numbers[identity.rank]:
                return "attempt %d is not the current one" % identity.attempt
            if identity.rank in self._channels:
                return "rank %d is connected already" % identity.rank
        return None

    def accept(self, channel: wire.Channel) -> None:
        rank = channel.peer.rank
        with self._changed:
            self._channels[rank] = channel
            self._hosts[rank] = channel.address[0]
            self._hear(rank)
        threading.Thread(target=self._receive, args=(rank, channel), daemon=True).start()

    def _receive(self, rank: int, channel: wire.Channel) -> None:
        def is_current() -> bool:
            return self._channels.get(rank) is channel and not self._cleared

        @contextlib.contextmanager
        def current() -> Iterator[None]:
            """Nothing is recorded of a rank that was cut off or counted as dead, and has a successor by now."""
            with self._changed:
                if not is_current():
                    raise wire.ConnectionLost("the rank has another connection by now, or its attempt is over")
                self._hear(rank)
                yield

        try:
            rank_messages.receive(rank, channel, self, current)
        except Exception as error:  # a thread that ended silently would look like the death of the rank
            cause = spark_error.DRIVER_DIED if spark_error.is_of_dead_jvm(error) else error_text(error)
            message = "the driver failed at a message of the rank: %s" % cause
            failure = Failure(rank, "", "error", message, traceback.format_exc())
            with contextlib.suppress(wire.ConnectionLost), current():
                self.on_end(rank, RankEnd("failed", failure))
        with self._changed:
            if rank not in self._record.ends and is_current():
                self._record.lost[rank] = self._hosts[rank]
                self._context.executors.left(rank)
                if channel.is_cut:
                    self._cut.add(rank)
                self._silence.forget(rank)
            self._changed.notify_all()

    def _hear(self, rank: int) -> None:
        if rank not in self._record.ends:
            seconds = self._silence.hear(rank)
            if seconds is not None:
                self._notice(rank, "info", "%s is heard of again, after %.0f s" % (self._hosts[rank], seconds))

    # -- what the ranks send

    def on_event(self, rank: int, raw: events.RawEvent) -> None:
        raw = dict(raw, rank=rank)
        kind = raw["kind"]
        if kind not in events.SCHEMA:
            return
        if not events.is_sound(raw):
            if self._is_new(kind):
                text = "a report (%s) is left out: it has a value that such a report cannot have"
                self._notice(rank, "warning", text % kind)
            return
        event = events.parse(raw)
        if isinstance(event, events.Notice) and event.message.startswith(NOT_KEPT) and not self._is_new(event.message):
            return
        if isinstance(event, events.Reference):
            return self._context.sketches.add(event)
        if isinstance(event, events.Reading):
            return self._context.rows.note_reading(event)
        if isinstance(event, (events.Steps, events.Epoch, events.FitEnd)):
            self._record.trained = True
        if not self._note_training(event):
            return
        if isinstance(event, events.Worker):
            self._hosts[rank], self._executors[rank] = event.host, event.executor
            self._context.executors.arrived(rank, event.executor, event.host)
        if isinstance(event, events.Environment):
            raw["like"], raw["packages"] = self._context.packages.add(rank, event.packages)
        self._journal.log.append(raw, self._numbers[rank])
        self._context.limits.check_event(event)
        if isinstance(event, events.Steps) and self._context.executors.stepped(event):
            self._on_slow(rank)

    def _note_training(self, event: events.Event) -> bool:
        """Take note of how far the ranks are. Whether the event is to be kept."""
        return True

    def _on_slow(self, rank: int) -> None:
        """A rank's executor is slow, as has been said."""

    def _is_new(self, report: str) -> bool:
        """Whether this is said for the first time."""
        with self._changed:
            is_known = report in self._reported_once
            self._reported_once.add(report)
            return not is_known

    def on_ready(self, rank: int, address: wire.Address | None) -> None:
        with self._changed:
            self._addresses[rank] = address
            restarted = self._numbers[rank] != self.number
            count = len(self._addresses)
            if self._record.stop_asked_at is None and not restarted:
                message = "%d of %s" % (count, counted(self._workers, "worker"))
                self._journal.enter(events.WAITING, message, ready=count, needed=self._workers)
            if count < self._workers:
                return
            self._record.start_deadline = None
            if self._record.stop_asked_at is None:
                self._journal.enter(events.RUNNING, "running on %s" % counted(self._workers, "worker"))
            self._context.limits.start()
            addresses = [self._addresses[r] for r in range(self._workers)]
            channels = dict(self._channels)
            # Several, also after restarts: a rank may die while another one that was restarted is not ready yet.
            waiting = {r: channel for r, channel in channels.items() if r not in self._started}
            self._started.update(waiting)
            self._note_begin(waiting)
            self._silence.forget(rank)  # nothing of it is read while this thread sends checkpoints
        self._introduce(channels, waiting, addresses)
        with self._changed:
            stops = self._record.stop_asked_at is not None
        for channel in waiting.values() if stops else ():  # it was not there when the others were told
            send(channel, messages.STOP, {})
        with self._changed:
            if rank in channels and self._channels.get(rank) is channels[rank]:
                self._hear(rank)

    def _note_begin(self, ranks: Iterable[int]) -> None:
        """All are there, or again; these are introduced to each other."""

    def on_regroup(self, rank: int, joins: int | None, welcomes: int | None) -> None:
        raise wire.ProtocolError("no ranks come and go here")

    def on_group_ready(self, rank: int, group: int, address: wire.Address) -> None:
        raise wire.ProtocolError("no ranks come and go here")

    def _introduce(
        self,
        channels: Mapping[int, wire.Channel],
        waiting: Mapping[int, wire.Channel],
        addresses: Sequence[wire.Address | None],
    ) -> None:
        """Tell the ranks that wait who their peers are; the chief gets checkpoints first, and sends them to the others.

        With a parameter server, which has the weights that are trained and nothing else, each gets them here.
        """
        hosts = {r: channel.address[0] for r, channel in sorted(channels.items())}
        self._context.network.note_hosts(hosts.values())
        for r, channel in waiting.items():
            if r == 0 or self._config.spec.strategy == "ps":
                checkpoint_files.send(channel, self._checkpoints)
        for r, channel in waiting.items():
            peers = {
                "addresses": addresses,
                **place_on_host(r, hosts),
                "servers": self._context.servers.addresses if self._context.servers else None,
            }
            send(channel, messages.PEERS, peers)

    def on_artifact(self, file: IncomingFile) -> None:
        self._record.trained = True
        if file.problem is None:
            return self._context.files.keep(file)
        text = "%s could not be stored on the driver's disk, in %s: %s; make room there"
        self._record.file_lost = text % (file.header["name"], os.path.dirname(file.path), error_text(file.problem))

    def on_checkpoint(self, file: IncomingFile) -> None:
        if file.problem is None:
            return self._context.checkpoints.keep(file)
        text = "a checkpoint could not be stored on the driver's disk, in %s: %s"
        self._context.checkpoints.warn_once(text % (os.path.dirname(file.path), error_text(file.problem)))

    def on_end(self, rank: int, rank_end: RankEnd) -> None:
        if rank_end.failure is not None:
            rank_end = replace(rank_end, failure=replace(rank_end.failure, rank=rank, host=self._hosts[rank]))
        with self._changed:
            self._record.ends[rank] = TimedEnd(rank_end, time.monotonic())
            self._context.executors.left(rank)
            self._silence.forget(rank)
            self._changed.notify_all()

    def new_path(self) -> str:
        return self._context.files.new_path()


def place_on_host(rank: int, hosts: Mapping[int, str]) -> dict[str, int]:
    """What a rank is told of the ranks on its host. hosts: of all, by rank, in order."""
    local = [peer for peer, host in hosts.items() if host == hosts[rank]]
    return {"local_size": len(local), "local_rank": local.index(rank)}


def send(channel: wire.Channel, kind: int, value: Mapping[str, Any]) -> None:
    with contextlib.suppress(wire.ConnectionLost, OSError):  # the thread that reads the connection records the loss
        channel.send_json(kind, value)
