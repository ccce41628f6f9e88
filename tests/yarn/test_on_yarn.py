"""Runs on a real YARN, in client mode: what is learned there, and what a host, a container or a queue does to them."""

import re

import pytest
from yarn import rig
from yarn.session import (
    EPOCHS,
    MARKS,
    MODEL,
    ROWS,
    SLOW,
    Session,
    alone,
    assert_equal,
    trained,
    trained_rows,
    without_master,
)

from ddl_magics.runtime.histories import histories

pytestmark = MARKS


@pytest.fixture(scope="module")
def session(yarn):
    session = Session(yarn)
    yield session
    session.end()


#: Batches of its own rows, in their order.
OWN_ROWS = f"""{MODEL}
x = np.random.default_rng(0).normal(size=({ROWS}, 2))
fit = model.fit(x, x[:, :1] - np.sin(x[:, 1:]), batch_size=48, shuffle=False, epochs={EPOCHS}, verbose=0)
"""


def test_two_workers_on_two_hosts_learn_what_one_process_learns_and_write_it_to_hdfs(yarn, session):
    cell = f"{OWN_ROWS}\n[w.tolist() for w in model.get_weights()]"
    run = session.run(cell, out=f"{yarn.uri}/models/first", checkpoint=f"{yarn.uri}/checkpoints")
    assert run.end() == ("FINISHED", "all workers finished")
    assert run.info["master"] == "yarn" and run.info["slots"] == 2
    assert {event["executor"] for event in run.of_kind("worker")} == {"1", "2"}
    (result,) = run.of_kind("result")
    assert_equal(result["value"], histories(run.events)[0]["loss"], alone(OWN_ROWS))
    assert trained_rows(run.events) == [ROWS * EPOCHS / 2] * 2
    written = [event.get("uri") for event in run.of_kind("artifact")]
    assert f"{yarn.uri}/models/first/model-0.keras" in written


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
