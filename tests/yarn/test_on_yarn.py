"""Runs on a real YARN, in client mode: what is learned there, and what a host, a container or a queue does to them."""

import re

import pytest
from yarn import rig
from yarn.session import MARKS, SLOW, Session, trained, without_master

from ddl_magics.runtime.histories import histories

pytestmark = [*MARKS, pytest.mark.slow]


@pytest.fixture(scope="module")
def session(yarn):
    session = Session(yarn)
    yield session
    session.end()


def test_a_host_that_dies_costs_an_attempt_and_not_the_run(yarn, session):
    """YARN itself misses the host after ten minutes."""
    run = session.run(SLOW)
    run.until(trained)
    dead = without_master(yarn)
    yarn.hosts.kill(dead)
    assert run.end() == ("FINISHED", "all workers finished"), run.messages()
    assert [message for message in run.messages() if message.startswith("attempt 2 of 3: rank ")]
    assert len(histories(run.events)[0]["loss"]) == 15
    yarn.revive(dead)


TOO_MUCH = """
    if epoch == 2 and ddl.rank == 1:
        kept = np.ones(3 << 27)
        time.sleep(60)
"""


def test_a_container_that_is_killed_for_its_memory_says_so_and_what_to_set(session):
    run = session.run(SLOW.replace("time.sleep(1)\n", f"time.sleep(1){TOO_MUCH}"), attempts=2)
    state, message = run.end()
    reason = "its executor was lost: Container killed by YARN for exceeding physical memory limits"
    assert state == "FAILED" and reason in message and "it was attempt 2 of 2" in message
    again = [text for text in run.messages() if text.startswith("attempt 2 of 2: rank 1 ")]
    assert again and all(reason in text and "boosting spark.executor.memoryOverhead" in text for text in again)


def test_executors_for_which_yarn_has_no_room_are_told_in_the_state(yarn):
    """Each fills a host. One host has the ApplicationMaster, and the other tests' session may be on both."""
    session = Session(yarn, **{"spark.executor.memoryOverhead": f"{rig.MEMORY_MIB - 520}m"})
    try:
        said = session.run(SLOW).until(lambda event: "no room" in event.get("message", ""))["message"]
    finally:
        session.kill()
    assert re.match(
        r"[01] of 2 slots; YARN has no room for an executor of 5\.0 GB and 1 core \(the freest of its nodes", said
    )
    assert "queue default at" in said and said.endswith("spark.executor.memory and memoryOverhead")
