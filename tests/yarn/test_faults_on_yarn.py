"""What befalls an application on a real YARN, in client mode, and what its run says of it."""

import contextlib
import os
import re
import signal
import time
from pathlib import Path

import pytest
from support.until import until
from yarn import rig
from yarn.session import MARKS, SLOW, Session, trained, without_master

from ddl_magics.runtime import scratch
from ddl_magics.runtime.histories import histories
from ddl_magics.runtime.spark import session_end

pytestmark = [*MARKS, pytest.mark.slow]


@pytest.fixture
def session(yarn):
    session = Session(yarn)
    yield session
    session.end()


def kill_container(container):
    """All processes of a container at once, as its host's memory or a control group ends them."""
    mark = f"CONTAINER_ID={container}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)


def of_executor(yarn):
    """(a host, a container on it that has an executor)."""
    return next((node, name) for node in yarn.nodes for name in yarn.containers(node) if not name.endswith("_000001"))


def test_temporary_folders_of_a_killed_container_are_removed_by_the_next_run_there(yarn, session):
    def folders():
        return set(yarn.temporary(host).glob(f"{scratch.PREFIX}*"))

    run = session.run(SLOW)
    run.until(trained)
    host, container = of_executor(yarn)
    kill_container(container)
    left, killed_at = folders(), time.monotonic()
    assert any(folder.name.startswith(f"{scratch.PREFIX}rank-") for folder in left)
    assert run.end() == ("FINISHED", "all workers finished"), run.messages()
    assert [text for text in run.messages() if text.startswith("attempt 2 of 3: rank ")]
    assert len(histories(run.events)[0]["loss"]) == 15
    time.sleep(max(0.0, killed_at + scratch.YOUNG_SECONDS - time.monotonic()))
    assert session.run(SLOW.replace("epochs=15", "epochs=1")).end()[0] == "FINISHED"
    assert not left & folders()


def test_a_host_that_is_cut_off_costs_an_attempt_and_not_the_run(yarn, session):
    """Spark itself misses its executor after two minutes, and YARN its NodeManager after ten."""
    run = session.run(SLOW)
    run.until(trained)
    host = without_master(yarn)
    yarn.hosts.cut(host)
    cut_at = time.monotonic()
    reason = "its executor was lost: its host does not answer"
    try:
        run.until(lambda event: reason in event.get("message", ""))
        assert time.monotonic() - cut_at < 60
        assert run.end() == ("FINISHED", "all workers finished"), run.messages()
    finally:
        yarn.hosts.kill(host)
        yarn.revive(host)


def test_a_node_manager_that_ends_alone_costs_an_attempt_once_yarn_gives_its_containers_up(yarn, session):
    """After ten minutes, or as here, when another one takes its place."""
    run = session.run(SLOW.replace("epochs=15", "epochs=40"))
    run.until(trained)
    host = without_master(yarn)
    yarn.end_node_manager(host)
    run.until(lambda event: event["kind"] == "epoch" and event["epoch"] >= 8)
    assert not [text for text in run.messages() if "attempt 2" in text]
    yarn.revive(host)
    said = run.until(lambda event: "its executor was lost" in event.get("message", ""))["message"]
    assert "Container released on a *lost* node); continues from epoch" in said
    assert run.end() == ("FINISHED", "all workers finished"), run.messages()


@pytest.mark.parametrize("strategy", ["allreduce", "ps"])
def test_an_application_that_is_killed_ends_the_run_in_words_of_yarn(yarn, session, strategy):
    """And so it does the next one: the driver's process lives on, without an application."""
    run = session.run(SLOW, strategy=strategy)
    run.until(trained)
    (application,) = yarn.applications()
    yarn.end_application(application)
    killed_at = time.monotonic()
    state, message = run.end()
    assert time.monotonic() - killed_at < 30
    told = (
        f"the Spark session has ended (YARN: Application {application} was killed by user root; "
        f"`yarn logs -applicationId {application}` has its logs): {session_end.ADVICE}"
    )
    assert state == "FAILED" and message.startswith(f"{told}; --resume test continues from epoch "), run.messages()
    assert session.run(SLOW).end() == ("REFUSED", told)
    until(lambda: "Container: container_" in yarn.logs(application), 120)


def test_a_worker_that_is_preempted_says_so_and_the_run_goes_on_when_there_is_room_again(yarn):
    """Each executor fills most of a host, and another queue takes its half of the cluster back."""
    large = {"spark.executor.memoryOverhead": "3584m"}
    with contextlib.ExitStack() as stack:
        session = Session(yarn, **large)
        stack.callback(session.end)
        run = session.run(SLOW.replace("epochs=15", "epochs=40"))
        run.until(trained)
        other = Session(yarn, **large, **{"spark.executor.instances": "1", "spark.yarn.queue": rig.URGENT})
        stack.callback(other.kill)
        reason = r"its executor was lost: Container container_\S+ on host: \S+ was preempted"
        said = run.until(lambda event: "preempted" in event.get("message", ""))["message"]
        assert re.match(
            rf"attempt 2 of 3: rank [01] on \S+ died \({reason}\); continues from epoch \d+; 1 of 2 slots$", said
        )
        said = run.until(lambda event: "YARN has no room" in event.get("message", ""))["message"]
        assert re.search(r"queue default at \d+ % of its capacity, of 10\.0 GB at most\): wait until other appl", said)
        other.end()
        assert run.end() == ("FINISHED", "all workers finished"), run.messages()
    assert len(histories(run.events)[0]["loss"]) == 40


def test_an_application_master_that_dies_is_replaced_and_the_run_goes_on(yarn, session):
    run = session.run(SLOW)
    run.until(trained)
    for node in yarn.nodes:
        for name in yarn.containers(node):
            if name.endswith("_01_000001"):
                kill_container(name)
    assert run.end() == ("FINISHED", "all workers finished"), run.messages()
    assert len(histories(run.events)[0]["loss"]) == 15
