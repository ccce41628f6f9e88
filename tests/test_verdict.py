"""Why a run ended, judged by value: causes before consequences."""

import pytest

from ddl_magics.runtime.verdict import PEER_GRACE_SECONDS, SPARK_GRACE_SECONDS, Heard, judge


def end(outcome="finished", kind=None, rank=0, message="m"):
    failure = {"rank": rank, "host": "h", "kind": kind, "message": message, "traceback": ""} if kind else None
    return {"outcome": outcome, "failure": failure}


def heard(workers=2, **ends):
    state = Heard(workers)
    for rank, (record, at) in ends.items():
        state.ends[int(rank[1:])], state.ended_at[int(rank[1:])] = record, at
    return state


def test_runs_until_all_have_ended():
    assert judge(heard(r0=(end(), 0)), 1) is None
    assert judge(heard(r0=(end(), 0), r1=(end(), 1)), 1).state == "FINISHED"


def test_the_cause_is_preferred_to_its_consequences_and_waited_for():
    state = heard(r0=(end("failed", "peer", 0), 0))
    assert judge(state, PEER_GRACE_SECONDS / 2) is None
    state.ends[1], state.ended_at[1] = end("failed", "error", 1, "ZeroDivisionError: x"), 1
    verdict = judge(state, 1)
    assert (verdict.state, verdict.failure["rank"], verdict.kill) == ("FAILED", 1, True)
    assert verdict.message == "rank 1 on h: ZeroDivisionError: x"


def test_a_lost_peer_is_the_cause_when_nobody_knows_better():
    assert judge(heard(r0=(end("failed", "peer", 0), 0)), PEER_GRACE_SECONDS + 1).failure["kind"] == "peer"


def test_an_error_comes_before_the_divergence_it_led_to():
    state = heard(3, r0=(end("failed", "diverged", 0), 0), r1=(end("failed", "error", 1), 1))
    assert judge(state, 1).failure["kind"] == "error"


def test_a_lost_supervisor_fails_the_run():
    state = heard()
    state.lost[1] = ("h1", 5)
    assert judge(state, 5).failure == {**judge(state, 5).failure, "rank": 1, "host": "h1", "kind": "lost"}


@pytest.mark.parametrize("asked", [True, False])
def test_after_a_stop_lost_peers_are_no_failure(asked):
    state = heard(r0=(end("stopped"), 1), r1=(end("failed", "peer", 1), 1))
    if asked:
        state.stop_asked_at, state.stop_deadline = 0, 20
    assert judge(state, 2).state == ("STOPPED" if asked else "FAILED")


def test_a_stop_ends_by_force():
    state = heard()
    state.stop_asked_at, state.stop_deadline = 0, 20
    assert judge(state, 19) is None
    assert (judge(state, 21).state, judge(state, 21).kill) == ("STOPPED", True)


def test_spark_has_the_word_when_no_rank_has():
    state = heard()
    state.spark_done_at, state.spark_error = 0, "Job aborted"
    assert judge(state, SPARK_GRACE_SECONDS / 2) is None
    assert judge(state, SPARK_GRACE_SECONDS + 1).message == "Job aborted"


def test_ranks_must_come_in_time():
    state = heard()
    state.start_deadline, state.start_message = 10, "nobody came"
    assert judge(state, 9) is None and judge(state, 11).message == "nobody came"
