"""Runs on a real Livy through the errors of a network: nothing of the history is missing or doubled."""

import dataclasses
import time

import pytest
from livy import rig
from livy.faults import Cut, Status, Truncate

from ddl_magics import follower
from ddl_magics.clusters import livy_session
from ddl_magics.clusters.livy import LivyCluster
from ddl_magics.clusters.livy_http import Connection, LivyHttp
from ddl_magics.errors import DistributedCellError
from ddl_magics.options import parse
from ddl_magics.runtime import events as ev
from ddl_magics.session import Session

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CELL = """
import keras
import numpy as np
import time

x = np.random.default_rng(0).normal(size=(256, 4)).astype("float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
pause = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: time.sleep({pause}))
model.fit(x, x.sum(1), epochs={epochs}, batch_size=32, verbose=0, callbacks=[pause])
"""


@pytest.fixture(scope="module")
def livy_session_number(livy_server):
    session = livy_session.create(LivyHttp(Connection(livy_server.url)), {}, say=lambda line: None)
    yield session.number
    session.delete()


@pytest.fixture
def short_livy(tmp_path_factory):
    """A server whose sessions end 30 s after the last request that counts; it looks once a minute."""
    server = rig.start(tmp_path_factory.mktemp("short"), conf={"livy.server.session.timeout": "30s"})
    yield server
    server.stop()


@pytest.fixture
def cluster(livy_session_number, livy_faults):
    """The session, through the fault proxy, without faults at first."""
    return LivyCluster(livy_session.LivySession(LivyHttp(Connection(livy_faults.url)), livy_session_number))


def submit(cluster, epochs, pause=0.2, name="run"):
    spec = dataclasses.replace(parse(f"--name {name} --seed 7"), cell=CELL.format(epochs=epochs, pause=pause))
    return Session(cluster).submit(spec, {})


def epochs(run):
    return [event["epoch"] for event in run.events if event["kind"] == "epoch"]


def until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.1)


def test_a_fifth_of_the_requests_fails_and_nothing_is_missing(cluster, livy_faults, monkeypatch):
    undisturbed = submit(cluster, 30).wait(120)
    monkeypatch.setattr(follower, "FAILING_POLL_SECONDS", 1.0)
    livy_faults.sometimes(0.2, Status(503), Status(429), Cut(), Cut(after=True), Truncate(), seed=1)
    run = submit(cluster, 30).wait(200)
    livy_faults.clear()
    assert sum(seen.fault is not None for seen in livy_faults.requests) > 5
    assert run.state == ev.FINISHED and epochs(run) == list(range(30))
    assert [event["seq"] for event in run.events] == list(range(1, len(run.events) + 1))
    assert run.history == undisturbed.history
    pairs = zip(run.weights(), undisturbed.weights(), strict=True)
    assert all((one == other).all() for one, other in pairs)
    assert cluster.runs() == [], "the driver has been told that it may forget them"


def test_an_outage_is_told_and_survived(cluster, livy_faults, monkeypatch):
    monkeypatch.setattr(follower, "SILENT_SECONDS", 2.0)
    monkeypatch.setattr(follower, "FAILING_POLL_SECONDS", 1.0)
    run = submit(cluster, 20)
    until(lambda: run.history)
    livy_faults.always(Cut())
    time.sleep(5)
    livy_faults.always(None)
    run.wait(100)
    notices = [event["message"] for event in run.events if event["kind"] == "notice"]
    assert any(text.startswith("no answer for ") for text in notices) and "it answers again" in notices
    assert epochs(run) == list(range(20))
    assert [event["seq"] for event in run.events] == list(range(1, len(run.events) + 1))


def test_a_stop_comes_through(cluster, livy_faults):
    run = submit(cluster, 100_000)
    until(lambda: run.history)
    livy_faults.plan(Status(503), Cut(), Status(502), path="POST .*submit-job")
    run.stop(40)
    assert run.state == ev.STOPPED and len(run.weights()) == 2


def test_a_session_that_is_deleted_ends_its_run_at_once(cluster, livy_faults):
    """The last test: it ends the session."""
    run = submit(cluster, 100_000)
    until(lambda: run.history)
    cluster.session.delete()
    begun = time.monotonic()
    with pytest.raises(DistributedCellError, match=r"lost: Livy session .* has ended"):
        run.wait(60)
    assert time.monotonic() - begun < 20 and run.state == ev.LOST and run.history["loss"]


@pytest.mark.timeout(700)
def test_a_session_lives_as_long_as_its_run(short_livy):
    session = livy_session.create(LivyHttp(Connection(short_livy.url)), {}, detached=True, say=lambda line: None)
    cluster = LivyCluster(session)
    run = submit(cluster, 16, pause=6.0).wait(300)
    assert run.state == ev.FINISHED and epochs(run) == list(range(16))
    until(lambda: not cluster.alive(), 200)
