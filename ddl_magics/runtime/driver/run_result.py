"""Whether a run is over, and why: a pure function of what the driver has received from its ranks and from Spark.

When a rank fails, its peers lose their connections and fail, too. `judge` therefore prefers causes to consequences. If
it has seen only consequences, it waits a moment for the cause.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from ..assert_never import assert_never
from ..events import FAILED, FINISHED, JOB, STOPPED
from ..rank_end import Failure, FailureKind, RankEnd

#: How often a rank is started at most, where the run's spec does not say.
ATTEMPTS = 3
#: How long the driver waits for the cause after the first rank has lost a peer. The peers of a host that is cut off may
#: miss it ten seconds before the driver does, as each connection counts from its own last answer.
PEER_GRACE_SECONDS = 15.0
#: How long the driver waits for a rank's own explanation after Spark has reported the end of the job.
SPARK_GRACE_SECONDS = 3.0

#: Kinds of failures that are the death of a process: not the cell's fault, so that another attempt may do better.
DEATHS = frozenset(("signal", "lost", "stalled"))


#: States of events.py.
EndState = Literal["FINISHED", "STOPPED", "FAILED"]


@dataclass(frozen=True)
class RunResult:
    """How a run, or an attempt of it, ended.

    message: one line. failure: given if and only if the state is FAILED. must_cancel: tasks may still run.
    """

    state: EndState
    message: str
    failure: Failure | None = None
    must_cancel: bool = False

    @property
    def death(self) -> str | None:
        """The rank that died and the reason, in a few words; None where the run ended in another way."""
        failure = self.failure
        if failure is None or failure.kind not in DEATHS or failure.rank == JOB:
            return None
        return "rank %d on %s died (%s)" % (failure.rank, failure.host, failure.message.partition(";")[0])

    def of_lost_executor(self, reason: str) -> RunResult:
        """The same result of a rank that was lost with its executor, for this reason."""
        assert self.failure is not None
        message = "its executor was lost: %s" % reason
        return _failed(replace(self.failure, message=message), self.must_cancel)

    def with_suffix(self, text: str) -> RunResult:
        """The same result with `text` at the end of its message."""
        failure = self.failure and replace(self.failure, message=self.failure.message + text)
        return replace(self, message=self.message + text, failure=failure)


class TimedEnd(NamedTuple):
    """A rank's end and when the driver received it."""

    end: RankEnd
    at: float


@dataclass
class AttemptRecord:
    """What the driver has received of an attempt so far.

    Times are seconds of the monotonic clock; None means "not yet". ends: by rank. lost: rank -> host, of ranks whose
    connection closed before they reported an end. stop_reason: words that follow "stopped". absent: ranks that were
    being started again when the stop was asked for. file_lost: why an artifact is not on the driver's disk. trained:
    there is something of a training, from this attempt or one before.
    """

    workers: int
    ends: dict[int, TimedEnd] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)
    spark_error: str | None = None
    spark_ended_at: float | None = None
    stop_asked_at: float | None = None
    stop_deadline: float = 0.0
    stop_reason: str = ""
    absent: set[int] = field(default_factory=set)
    departed: set[int] = field(default_factory=set)
    undecided: set[int] = field(default_factory=set)
    start_deadline: float | None = None
    start_message: str = ""
    server_death: str | None = None
    file_lost: str | None = None
    trained: bool = False

    @property
    def all_ended(self) -> bool:
        return len(self.ends.keys() | self.departed) == self.workers

    def forget(self, rank: int) -> None:
        """The rank is started again."""
        self.ends.pop(rank, None)
        self.lost.pop(rank, None)
        self.undecided.discard(rank)

    def deaths(self) -> dict[int, RunResult]:
        """The ranks whose process has died, and the result that each death would be for the run."""
        results = {}
        for rank, (end, _) in self.ends.items():
            if end.failure is not None and end.failure.kind in DEATHS:
                results[rank] = _failed(end.failure)
        for rank, host in self.lost.items():
            results[rank] = _failed(_lost(rank, host))
        return results


def failed_job(kind: FailureKind, message: str, must_cancel: bool = True) -> RunResult:
    """The result of a run that fails without a rank to blame."""
    return _failed(Failure(JOB, "", kind, message), must_cancel)


def judge(record: AttemptRecord, now: float) -> RunResult | None:
    """The result of the attempt; None while it continues."""
    stopped, failures = _sorted_out(record)
    causes = [failure for failure, _ in failures if failure.kind != "peer"]
    if causes:
        return _failed(min(causes, key=lambda failure: failure.kind == "diverged"))
    if record.server_death:
        return failed_job("lost", record.server_death)
    if record.file_lost and record.all_ended:
        return failed_job("error", record.file_lost, must_cancel=False)
    if record.stop_asked_at is not None:
        return _judge_stop(record, record.stop_asked_at, now)
    lost = record.lost.keys() - record.undecided
    if lost:
        rank = min(lost)
        return _failed(_lost(rank, record.lost[rank]))
    if record.all_ended and not record.undecided:
        cancel = bool(record.departed)
        if failures:
            return _failed(failures[0][0], cancel)
        if stopped:
            return RunResult(STOPPED, "stopped by the cell", must_cancel=cancel)
        return RunResult(FINISHED, "all workers finished", must_cancel=cancel)
    if failures and now - failures[0][1] > PEER_GRACE_SECONDS:
        return _failed(failures[0][0])
    if record.spark_ended_at is not None and now - record.spark_ended_at > SPARK_GRACE_SECONDS:
        message = record.spark_error or "the Spark job ended before its workers did: it was probably cancelled"
        return failed_job("spark", message, must_cancel=False)
    if record.start_deadline is not None and now > record.start_deadline:
        return failed_job("spark", record.start_message)
    return None


def _sorted_out(record: AttemptRecord) -> tuple[bool, list[tuple[Failure, float]]]:
    """(whether a rank was stopped, the failures and when each was received, the earliest first)."""
    stopped, failures = False, []
    left_out = record.undecided | record.departed
    for rank, (end, at) in sorted(record.ends.items()):
        if rank in left_out:
            continue
        if end.outcome == "failed":
            assert end.failure is not None
            failures.append((end.failure, at))
        elif end.outcome == "stopped":
            stopped = True
        elif end.outcome != "finished":
            assert_never(end.outcome)
    return stopped, sorted(failures, key=lambda failure: failure[1])


def _judge_stop(record: AttemptRecord, asked_at: float, now: float) -> RunResult | None:
    all_ended = len(record.ends.keys() | record.absent | record.departed) == record.workers
    if all_ended or record.spark_ended_at is not None:
        if 0 in record.lost:
            saved = "what worker 0 had is lost"
        else:
            saved = "the model and its history are kept" if record.trained else "it had trained nothing so far"
        return RunResult(
            STOPPED, "stopped%s; %s" % (record.stop_reason, saved), must_cancel=bool(record.absent | record.departed)
        )
    if now <= record.stop_deadline:
        return None
    grace = record.stop_deadline - asked_at
    if not grace:
        return RunResult(STOPPED, "stopped before the workers started", must_cancel=True)
    message = "stopped%s, by force: no step ended within %g s" % (record.stop_reason, grace)
    return RunResult(STOPPED, message, must_cancel=True)


def why_stopped(message: str) -> str:
    """Why or when a run was stopped, from the message of its end: "pruned after epoch 1: ..."; else ""."""
    text = message.split("; ", 1)[0]
    return text[len("stopped") :].lstrip(":, ") if text.startswith("stopped") else ""


def _failed(failure: Failure, must_cancel: bool = True) -> RunResult:
    source = "" if failure.rank == JOB else "rank %d on %s: " % (failure.rank, failure.host)
    return RunResult(FAILED, source + failure.message, failure, must_cancel)


def _lost(rank: int, host: str) -> Failure:
    message = "its supervisor process on the executor died (killed, lost with its executor, or cut off)"
    return Failure(rank, host, "lost", message)
