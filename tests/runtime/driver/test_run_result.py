"""Why a run ended, judged by value: causes before consequences."""

import dataclasses

import pytest

from ddl_magics.runtime.driver.run_result import (
    PEER_GRACE_SECONDS,
    SPARK_GRACE_SECONDS,
    AttemptRecord,
    TimedEnd,
    judge,
    why_stopped,
)
from ddl_magics.runtime.rank_end import Failure, RankEnd


def end(outcome="finished", kind=None, rank=0, message="m"):
    return RankEnd(outcome, Failure(rank, "h", kind, message) if kind else None)


def received(workers=2, **ends):
    record = AttemptRecord(workers)
    for rank, (how, at) in ends.items():
        record.ends[int(rank[1:])] = TimedEnd(how, at)
    return record


def test_runs_until_all_have_ended():
    assert judge(received(r0=(end(), 0)), 1) is None
    assert judge(received(r0=(end(), 0), r1=(end(), 1)), 1).state == "FINISHED"


def test_the_cause_is_preferred_to_its_consequences_and_waited_for():
    record = received(r0=(end("failed", "peer", 0), 0))
    assert judge(record, PEER_GRACE_SECONDS / 2) is None
    record.ends[1] = TimedEnd(end("failed", "error", 1, "ZeroDivisionError: x"), 1)
    result = judge(record, 1)
    assert (result.state, result.failure.rank, result.must_cancel) == ("FAILED", 1, True)
    assert result.message == "rank 1 on h: ZeroDivisionError: x"


def test_a_lost_peer_is_the_cause_when_nobody_knows_better():
    assert judge(received(r0=(end("failed", "peer", 0), 0)), PEER_GRACE_SECONDS + 1).failure.kind == "peer"


def test_the_first_of_two_causes_is_told():
    record = received(3, r0=(end("failed", "error", 0), 2), r1=(end("failed", "signal", 1), 1))
    assert judge(record, 3).failure.rank == 1


def test_an_error_comes_before_the_divergence_it_led_to():
    record = received(3, r0=(end("failed", "diverged", 0), 0), r1=(end("failed", "error", 1), 1))
    assert judge(record, 1).failure.kind == "error"


def test_a_lost_supervisor_fails_the_run():
    record = received()
    record.lost[1] = "h1"
    failure = judge(record, 5).failure
    assert (failure.rank, failure.host, failure.kind) == (1, "h1", "lost")


@pytest.mark.parametrize("asked", [True, False])
def test_after_a_stop_lost_peers_are_no_failure(asked):
    record = received(r0=(end("stopped"), 1), r1=(end("failed", "peer", 1), 1))
    if asked:
        record.stop_asked_at, record.stop_deadline = 0, 20
    assert judge(record, 2).state == ("STOPPED" if asked else "FAILED")


def test_a_stop_ends_by_force():
    record = received()
    record.stop_asked_at, record.stop_deadline = 0, 20
    assert judge(record, 19) is None
    assert (judge(record, 21).state, judge(record, 21).must_cancel) == ("STOPPED", True)


@pytest.mark.parametrize("reason", ["", "pruned after epoch 1: score 0.1 was not among the best third of the trials"])
def test_why_a_run_was_stopped_is_in_its_message(reason):
    record = received(2, r0=(end("stopped"), 1), r1=(end("stopped"), 1))
    record.stop_asked_at, record.stop_deadline, record.stop_reason = 0, 20, f": {reason}" if reason else ""
    assert why_stopped(judge(record, 2).message) == reason
    record.ends.clear()
    assert why_stopped(judge(record, 21).message).startswith(f"{reason}, by force" if reason else "by force")
    record.stop_deadline = 0
    assert why_stopped(judge(record, 21).message) == "before the workers started"
    assert why_stopped("all workers finished") == ""


def test_spark_has_the_word_when_no_rank_has():
    record = received()
    record.spark_ended_at, record.spark_error = 0, "Job aborted"
    assert judge(record, SPARK_GRACE_SECONDS / 2) is None
    assert judge(record, SPARK_GRACE_SECONDS + 1).message == "Job aborted"


def test_ranks_must_come_in_time():
    record = received()
    record.start_deadline, record.start_message = 10, "nobody came"
    assert judge(record, 9) is None and judge(record, 11).message == "nobody came"


def test_only_the_death_of_a_rank_lets_the_run_be_tried_again():
    death = judge(received(r0=(end("failed", "signal", 0, "killed by SIGKILL; more memory"), 0)), 1)
    assert death.death == "rank 0 on h died (killed by SIGKILL)"
    assert judge(received(r0=(end("failed", "error"), 0)), 1).death is None
    record = received()
    record.server_death = "the parameter server ended"
    assert judge(record, 1).failure.kind == "lost" and judge(record, 1).death is None


def test_a_result_does_not_change():
    result = judge(received(r0=(end("failed", "error"), 0)), 1)
    longer = result.with_suffix("; more")
    assert (longer.message, longer.failure.message, result.failure.message) == ("rank 0 on h: m; more", "m; more", "m")
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.state = "FINISHED"


@pytest.mark.parametrize(
    "value",
    [
        {"outcome": "finished"},
        {"outcome": "vanished", "failure": None},
        {"outcome": "failed", "failure": None},
        {"outcome": "stopped", "failure": end("failed", "error").failure.to_json()},
        {"outcome": "failed", "failure": {"message": "m"}},
    ],
)
def test_what_is_no_end_of_a_rank_is_refused(value):
    with pytest.raises((KeyError, ValueError, TypeError)):
        RankEnd.from_json(value)
    assert RankEnd.from_json(end("failed", "error").to_json()) == end("failed", "error")


@pytest.mark.parametrize("stopped", [False, True])
def test_a_model_that_is_not_on_the_drivers_disk_is_no_success(stopped):
    record = received(r0=(end(), 0), r1=(end(), 1))
    record.file_lost, record.stop_asked_at = "No space left on device", 0.5 if stopped else None
    result = judge(record, 2)
    assert (result.state, result.message, result.death) == ("FAILED", "No space left on device", None)


def test_a_stop_does_not_promise_a_model_that_is_lost():
    record = received(r1=(end("stopped", rank=1), 1))
    record.stop_asked_at, record.stop_deadline, record.spark_ended_at = 0, 20, 2
    record.lost[0] = "h0"
    assert judge(record, 3).message == "stopped; what worker 0 had is lost"
