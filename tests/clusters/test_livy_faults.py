"""Runs on a real Livy through the errors of a network: nothing of the history is missing or doubled."""

import time

import pytest
from livy import runs
from livy.faults import Cut, Status, Truncate
from support.fake_cluster import notices
from support.until import until

from ddl_magics.clusters import livy_session
from ddl_magics.clusters.livy import LivyCluster
from ddl_magics.clusters.livy_http import Connection, LivyHttp
from ddl_magics.errors import DistributedCellError
from ddl_magics.runs import follower
from ddl_magics.runtime import events as ev

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def livy_session_number(livy_server):
    session = runs.create(livy_server).session
    yield session.id
    session.delete()


@pytest.fixture
def cluster(livy_session_number, livy_faults):
    """The session, through the fault proxy, without faults at first."""
    return LivyCluster(livy_session.LivySession(LivyHttp(Connection(livy_faults.url)), livy_session_number))


def test_a_fifth_of_the_requests_fails_and_nothing_is_missing(cluster, livy_faults, monkeypatch):
    undisturbed = runs.submit(cluster, 30).wait(120)
    monkeypatch.setattr(follower, "FAILING_POLL_SECONDS", 1.0)
    livy_faults.sometimes(0.2, Status(503), Status(429), Cut(), Cut(after=True), Truncate(), seed=1)
    run = runs.submit(cluster, 30).wait(200)
    livy_faults.clear()
    assert sum(seen.fault is not None for seen in livy_faults.requests) > 5
    assert run.state == ev.FINISHED
    runs.assert_whole(run, 30)
    runs.assert_equal(run, undisturbed)


@pytest.mark.timeout(2400)
def test_ten_minutes_of_faults_and_two_of_outage(cluster, livy_faults):
    """With the pauses and bounds that a user has."""
    undisturbed = runs.submit(cluster, 300, pause=0.0).wait(600)
    faults = Status(503), Status(500), Cut(), Cut(after=True)
    begun, before = time.monotonic(), len(livy_faults.requests)
    livy_faults.sometimes(0.2, *faults, seed=1)
    run = runs.submit(cluster, 300, pause=2.0)
    time.sleep(240)
    failed = [seen.fault is not None for seen in livy_faults.requests[before:]]
    livy_faults.always(Cut())
    time.sleep(120)
    livy_faults.always(None)
    run.wait(1500)
    assert time.monotonic() - begun > 600
    assert 0.1 < sum(failed) / len(failed) < 0.3
    assert run.state == ev.FINISHED
    assert any(text.startswith("no answer for ") for text in notices(run))
    assert "the cluster answers again" in notices(run)
    runs.assert_whole(run, 300)
    runs.assert_equal(run, undisturbed)


def test_an_outage_is_told_and_survived(cluster, livy_faults, monkeypatch):
    monkeypatch.setattr(follower, "SILENT_SECONDS", 2.0)
    monkeypatch.setattr(follower, "FAILING_POLL_SECONDS", 1.0)
    run = runs.submit(cluster, 20)
    until(lambda: run.history, 100)
    livy_faults.always(Cut())
    time.sleep(5)
    livy_faults.always(None)
    run.wait(100)
    assert any(text.startswith("no answer for ") for text in notices(run))
    assert "the cluster answers again" in notices(run)
    runs.assert_whole(run, 20)


def test_a_stop_comes_through(cluster, livy_faults):
    run = runs.submit(cluster, 100_000)
    until(lambda: run.history, 100)
    livy_faults.plan(Status(503), Cut(), Status(502), path="POST .*submit-job")
    run.stop(40)
    assert run.state == ev.STOPPED and len(run.weights()) == 2


def test_a_session_that_is_deleted_ends_its_run_at_once(cluster):
    """The last test: it ends the session."""
    run = runs.submit(cluster, 100_000)
    until(lambda: run.history, 100)
    cluster.session.delete()
    begun = time.monotonic()
    with pytest.raises(DistributedCellError, match=r"lost: Livy session .* has ended"):
        run.wait(60)
    assert time.monotonic() - begun < 20 and run.state == ev.LOST and run.history["loss"]
