"""Ending a run whose kernel is gone: what was done, or what still runs and how it is ended, in words."""

import json
import socket
import subprocess
import sys

import pytest
from IPython.core.error import UsageError
from support.fake_cluster import FakeCluster, training
from support.fake_livy import FakeLivy
from support.stored import finished, kill_owner, stored

from ddl_magics.clusters import livy_http, sparkmagic_link
from ddl_magics.clusters.livy_http import Connection
from ddl_magics.runs import Run, attaching, ending
from ddl_magics.runtime import events as ev
from ddl_magics.store import owner

#: How many events of its run the driver has sent.
SENT = 8


@pytest.fixture(autouse=True)
def environment(data_dir, monkeypatch):
    monkeypatch.setattr(ending, "REACH_SECONDS", 0.2)
    monkeypatch.setattr(livy_http, "PAUSE_SECONDS", 0.01)


@pytest.fixture
def livy(monkeypatch):
    """A Livy that has the session 7, which sparkmagic's configuration lets us use."""
    monkeypatch.setattr(sparkmagic_link, "connection", lambda shell, url, token_from=None: Connection(url))
    with FakeLivy() as livy:
        livy.about = {"name": "ddl_ours"}
        sessions = {"sessions": [{"id": 7, "state": "idle", "kind": "pyspark", "name": "ddl_ours"}]}
        livy.faults = {"GET /sessions?": [(200, sessions)] * 10}
        yield livy


def orphan(url="http://livy.example:8998"):
    """A run in session 7 of a Livy, whose kernel is gone."""
    address = {"livy": url, "session": 7, "name": "ddl_ours", "detached": True, "runtime": "ddl_runtime_0123456789ab"}
    folder = stored(events=list(training())[:SENT], place=address)
    kill_owner(folder)
    return folder


def assert_says_how_to_end_it(ended, url):
    assert ended.outcome == "runs" and "it may still train in Livy session 7 at " in ended.message
    assert "%ddl attach digits, then digits.stop()" in ended.how
    assert ended.how.endswith(f"DELETE {url}/sessions/7")


@pytest.mark.parametrize(
    ("state", "strategy", "says"),
    [
        (ev.RUNNING, "allreduce", "digits stops after its current step; what it has trained is kept."),
        (ev.RUNNING, "monitor", "digits stops; what it has counted is kept."),
        (ev.WAITING, "allreduce", "digits stops before it trains."),
    ],
)
def test_a_kernel_that_lives_is_asked(state, strategy, says):
    folder = stored(state, strategy=strategy)
    assert ending.end_run(folder.record()) == ending.Ending("asked", says)
    assert folder.requested("stop")


def test_a_run_that_has_trained_keeps_what_it_has():
    folder = stored(ev.RUNNING)
    folder.update({"progress": {"epoch": 0, "metrics": {}}})
    says = "digits stops after its current step; its history and model are kept."
    assert ending.ask_stored(folder.record()).text == says
    assert ending.ask(Run.stored(folder.record())).text.endswith("has no history and no model to keep.")
    trained = stored(ev.RUNNING, list(training())[:SENT])
    assert ending.ask(Run.stored(trained.record())).text == says


def test_a_run_that_cannot_be_attached_says_how_it_is_and_where_its_model_is():
    def refused(folder):
        with pytest.raises(UsageError) as error:
            attaching.find_stored(folder.record(), lambda address: None)
        return str(error.value)

    ended = finished()
    show = "digits has ended: FINISHED. %ddl show digits shows what is stored."
    assert refused(ended) == show
    ended.file("model-0.keras").write_bytes(b"")
    path = ended.path / "files" / "model-0.keras"
    assert refused(ended) == f"{show} Its trained model: import keras; model = keras.models.load_model('{path}')"
    living = stored(ev.RUNNING)
    assert refused(living) == "digits is followed by another kernel (a.ipynb): %ddl show digits shows it."
    kill_owner(living)
    assert refused(living).startswith(
        "digits cannot be attached: it ran on this machine, which ended with its kernel. "
    )


def test_what_has_ended_is_left_alone():
    folder = finished()
    assert ending.end_run(folder.record()).text == "digits has ended already: FINISHED."
    assert not folder.requested("stop")


def test_an_embedded_spark_dies_with_its_kernel():
    folder = stored()
    kill_owner(folder)
    ended = ending.end_run(folder.record())
    assert ended.outcome == "nothing" and "its Spark (this machine) with it: nothing to stop" in ended.message


def test_an_embedded_spark_whose_kernel_lost_sight_of_the_run_may_still_train():
    folder = stored(ev.LOST)
    ended = ending.end_run(folder.record())
    assert ended.outcome == "runs" and "could not follow it any more, and it may still train" in ended.message
    assert "Restart the kernel" in ended.how


@pytest.mark.parametrize("state", ["gone", "dead", "killed"])
def test_with_its_session_the_run_has_ended(livy, state):
    livy.state = state
    ended = ending.end_run(orphan(livy.url).record())
    assert ended.outcome == "nothing" and "does not have it any more. It does not run." in ended.message


def test_another_session_of_its_number_is_not_touched(livy):
    livy.about = {"name": "of somebody else"}
    assert ending.end_run(orphan(livy.url).record()).outcome == "nothing"
    assert {method for method, *_ in livy.seen} == {"GET"} and not livy.statements


def test_a_session_that_was_started_again_does_not_have_the_run(livy):
    ended = ending.end_run(orphan(livy.url).record())
    assert ended.outcome == "nothing", ended.text
    assert "POST" in {method for method, *_ in livy.seen}, "it was asked"


def test_a_livy_that_does_not_answer(livy):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        assert_says_how_to_end_it(ending.end_run(orphan(url).record()), url)


@pytest.mark.parametrize("status", [401, 403, 500])
def test_a_livy_that_lets_nobody_in(livy, status):
    livy.faults = {"GET /sessions": [(status, b"")] * 100}
    folder = orphan(livy.url)
    assert_says_how_to_end_it(ending.end_run(folder.record()), livy.url)
    assert folder.record().state == ev.LOST


def test_without_requests_nothing_is_reached(monkeypatch):
    monkeypatch.setitem(sys.modules, "requests", None)
    folder = orphan()
    ended = ending.end_run(folder.record())
    assert_says_how_to_end_it(ended, "http://livy.example:8998")
    assert "Livy is reached with requests: pip install requests" in ended.message


@pytest.mark.parametrize("address", [{"livy": "http://livy.example:8998"}, {"session": 7}])
def test_a_driver_address_with_missing_fields(livy, address):
    folder = stored(place=address)
    kill_owner(folder)
    assert ending.end_run(folder.record()).outcome == "runs"


@pytest.fixture
def session(monkeypatch):
    """The cluster that has the run, which can be reached; it has sent `SENT` events."""
    cluster = FakeCluster(visible=SENT)
    monkeypatch.setattr(ending, "_reach", lambda record: cluster)
    return cluster


def test_a_session_that_is_reached_ends_the_run_and_its_history_is_whole(session):
    folder = orphan()
    ended = ending.end_run(folder.record(), seconds=20)
    assert ended.outcome == "stopped" and "digits is STOPPED; its history and model are kept." in ended.message
    assert "Livy session 7 at livy.example stays" in ended.how
    record, events = folder.record(), list(folder.events())
    assert record.state == ev.STOPPED and session.stopped == session.released == [record.id]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))


def test_a_run_that_does_not_stop_is_lost_again_and_can_be_tried_again(session, monkeypatch):
    monkeypatch.setattr(session, "_stop", lambda request: {"ok": True})
    folder = orphan()
    ended = ending.end_run(folder.record(), seconds=0.3)
    assert ended.outcome == "runs" and "was asked to stop and has not ended after 0 s" in ended.message
    assert ended.how and folder.record().state == ev.LOST


def test_of_two_at_once_one_ends_the_run_and_is_asked_to(session):
    folder = orphan()
    record = folder.record()
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as other:
        who = {**owner.this_process(), "pid": other.pid, "start": owner.started(other.pid)}
        (folder.path / "owner.json").write_text(json.dumps(who))
        assert ending.end_run(record).outcome == "asked"
        other.kill()
    assert folder.requested("stop") and not session.stopped
