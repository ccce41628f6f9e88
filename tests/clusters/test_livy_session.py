"""What becomes of a run when its session or its Livy comes to an end, is replaced, or is somebody else's."""

import re

import pytest
from livy import rig, runs
from livy.client import Client
from support import sparkmagic_kernels
from support.trainings import cell
from support.until import until

from ddl_magics.errors import DistributedCellError
from ddl_magics.runtime import events as ev

pytestmark = [pytest.mark.slow, pytest.mark.livy, pytest.mark.timeout(400)]


@pytest.fixture
def server_with(tmp_path_factory):
    """`server_with(conf)`: a Livy of the test's own, with these settings."""
    states = []

    def start(conf):
        states.append(tmp_path_factory.mktemp("livy"))
        return rig.start(states[-1], conf=conf)

    yield start
    for state in states:
        rig.running(state).stop()


@pytest.mark.timeout(900)
def test_a_session_lives_as_long_as_its_run_and_ends_after_it(server_with):
    cluster = runs.create(server_with({"livy.server.session.timeout": "60s"}), detached=True)
    run = runs.submit(cluster, 60, pause=5.0).wait(500)
    assert run.state == ev.FINISHED
    assert run.events[-1]["time"] - run.events[0]["time"] > 300
    runs.assert_whole(run, 60)
    until(lambda: not cluster.alive(), 300)


def test_a_livy_that_starts_again_has_lost_its_sessions_and_the_run_says_so(server_with):
    """One that recovers its sessions wants YARN (LivyServer.testRecovery), and is not tried."""
    server = server_with({})
    run = runs.submit(runs.create(server), 100_000)
    until(lambda: run.history, 100)
    server.restart()
    with pytest.raises(DistributedCellError, match=r"lost: Livy session \d+ at \S+ has ended \(Session .* not found\)"):
        run.wait(60)
    assert run.state == ev.LOST and run.history["loss"]


def test_auto_takes_up_the_session_of_spark_add(livy_server, tmp_path):
    kernel = sparkmagic_kernels.start(
        sparkmagic_kernels.IPYTHON_KERNEL, sparkmagic_kernels.configuration(tmp_path, livy_server.url)
    )
    kernel.run("%load_ext ddl_magics\n%load_ext sparkmagic.magics")
    added = kernel.run(f"%spark add -s mine -l python -t None -u {livy_server.url}", timeout=300)
    assert added.error == "", added.traceback
    kernel.run("%ddl use auto")
    (session,) = Client(livy_server.url).get("/sessions").json["sessions"]
    assert f"Livy session {session['id']} at " in kernel.run("%ddl check").text
    kernel.run("%%spark -s mine\noffset = 41")
    kernel.run("%%distributed --name added --workers 1\noffset + 1")
    assert kernel.value("added.result") == 42
    kernel.run("%spark cleanup")
    kernel.close()


def test_configure_replaces_the_session_and_the_run_in_it_is_lost(livy_server, tmp_path):
    kernel = sparkmagic_kernels.start(
        sparkmagic_kernels.PYSPARK_KERNEL, sparkmagic_kernels.configuration(tmp_path, livy_server.url)
    )

    def session():
        return int(re.search(r"Livy session (\d+) at", kernel.run("%ddl check").text)[1])

    kernel.run("%load_ext ddl_magics")
    kernel.run(cell("--name before --no-wait", epochs=100_000), timeout=300)
    until(lambda: kernel.value("len(before.history.get('loss', []))", "%%local\n"), 100)
    first = session()
    kernel.run('%%configure -f\n{"executorMemory": "1g"}', timeout=300)
    until(lambda: kernel.value("before.state", "%%local\n") == "LOST")
    assert f"Livy session {first} at " in kernel.run("%ddl show before").text
    assert "has ended" in kernel.value("before.events[-1]['message']", "%%local\n")
    kernel.run("%%distributed --name after --workers 1\n6 * 7", timeout=300)
    assert kernel.value("after.result", "%%local\n") == 42 and session() != first
    kernel.close()
