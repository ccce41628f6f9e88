"""What befalls an application on a real YARN, in client mode, and what its run says of it."""

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest
from yarn.session import MARKS, SLOW, Session, trained

from ddl_magics.runtime import scratch
from ddl_magics.runtime.histories import histories

pytestmark = MARKS


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


def test_an_application_master_that_dies_is_replaced_and_the_run_goes_on(yarn, session):
    run = session.run(SLOW)
    run.until(trained)
    for node in yarn.nodes:
        for name in yarn.containers(node):
            if name.endswith("_01_000001"):
                kill_container(name)
    assert run.end() == ("FINISHED", "all workers finished"), run.messages()
    assert len(histories(run.events)[0]["loss"]) == 15
