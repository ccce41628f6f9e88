"""Requests to the driver of a Livy session, by its side channel and by statements, and through what goes wrong."""

import base64
import importlib
import json
import math
import os
import sys
import threading
import time
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from IPython.core.error import UsageError
from support import fake_livy
from support.fake_livy import FakeLivy

from ddl_magics.clusters import idle_session, livy_channel, livy_http, livy_remote, livy_session, shipping
from ddl_magics.clusters import livy as livy_cluster
from ddl_magics.clusters.base import Polled, Postponed, Refused, Unreachable
from ddl_magics.clusters.livy import LivyCluster
from ddl_magics.clusters.livy_channel import Channel, StatementFailed
from ddl_magics.clusters.livy_http import Connection, Gone, LivyHttp, Rejected, Unavailable
from ddl_magics.clusters.livy_session import LivySession, NoSession
from ddl_magics.commands.kernel import Kernel
from ddl_magics.commands.table import BY_VERB
from ddl_magics.commands.use import lifetime, use
from ddl_magics.options.parsing import parse
from ddl_magics.runs import follower

LATER = (503, b"")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(livy_http, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(livy_channel, "PROBE_SECONDS", 0.1)
    monkeypatch.setattr(livy_session, "REACH_SECONDS", 0.1)


@pytest.fixture
def livy():
    with FakeLivy() as livy:
        yield livy


@pytest.fixture
def package(tmp_path):
    functions = (
        "def poll(argument, *more):\n"
        "    return json.dumps({'got': json.loads(argument), 'more': [sorted(m) for m in more]})\n"
        "launch = poll\n"
        "def bad(argument): raise ValueError('no such run')\n"
        "def busy(argument): return json.dumps({'busy': 0})\n"
    )
    with fake_livy.driver(tmp_path, functions) as runtime:
        yield runtime


def http_of(livy, **how):
    return LivyHttp(Connection(livy.url, **how))


def opened(livy, package):
    channel = Channel(http_of(livy), 7, package)
    channel.open(5)
    return channel


def test_the_runtime_is_sent_once_in_chunks_and_each_statement_is_one_expression(livy, package, monkeypatch):
    monkeypatch.setattr(livy_remote, "CHUNK_CHARACTERS", 300)
    channel = opened(livy, package)
    sent = [body["code"] for _, path, _, body in livy.seen if path.endswith("/statements")]
    assert len(sent) > 2 and channel.has_side_channel
    for code in sent:
        compile(code, "<statement>", "eval")
    channel.open(5)
    opened(livy, package)
    assert sys.modules[package.module].__file__.startswith("/") and package.module not in "".join(sys.path)
    assert livy.names.keys() <= {"__builtins__"}, "the session's names are the user's"


def test_calls_go_beside_the_statements_and_launch_gets_the_sessions_names(livy, package):
    channel = opened(livy, package)
    before = len(livy.statements)
    assert channel.call("poll", '{"run": "ä\\n"}') == {"got": {"run": "ä\n"}, "more": []}
    assert len(livy.statements) == before
    livy.names["frame"] = 1
    answer = channel.call("launch", "{}", namespace=True)
    assert "frame" in answer["more"][0] and len(livy.statements) == before + 1


def test_where_there_is_no_side_channel_statements_do_its_work(package):
    with FakeLivy(side_channel=False) as livy:
        channel = opened(livy, package)
        assert channel.has_side_channel is False and channel.no_side_channel_reason == "it refuses submit-job (404)"
        assert channel.call("poll", "[1]") == {"got": [1], "more": []}


def test_a_statement_that_has_ended_and_has_no_output_yet_is_looked_at_again(package):
    with FakeLivy(side_channel=False) as livy:
        channel = opened(livy, package)
        livy.faults["GET /sessions/7/statements"] = [(200, {"state": "available", "output": None})]
        assert channel.call("busy", "{}") == {"busy": 0}


@pytest.mark.parametrize("came", [{}, {"id": None}, {"id": ""}])
def test_what_is_posted_and_gets_no_id_says_what_came_instead(livy, package, came):
    channel = opened(livy, package)
    livy.faults = {f"POST /sessions/7/{path}": [(201, came)] for path in ("statements", "submit-job")}
    for what, ask in (("statement", lambda: channel.statement("1")), ("job", lambda: channel.call("poll", "{}"))):
        with pytest.raises(Rejected) as caught:
            ask()
        assert str(caught.value) == f"{channel.http.host} answers a posted {what} without an id: {json.dumps(came)}"


@pytest.mark.parametrize("waits", [False, True])
def test_an_interrupt_while_a_statement_is_posted_cancels_it(livy, package, monkeypatch, waits):
    """The statement interrupts this thread before its number is known: while it waits for the number, or begins to."""
    channel, start = opened(livy, package), threading.Thread.start
    if not waits:
        monkeypatch.setattr(threading.Thread, "start", lambda thread: (start(thread), thread.join()))
    with pytest.raises(KeyboardInterrupt):
        channel.statement("__import__('_thread').interrupt_main()", math.inf)
    method, path, _, _ = livy.seen[-1]
    assert method == "POST" and path == f"/sessions/7/statements/{len(livy.statements) - 1}/cancel"


def test_an_answer_that_names_code_is_not_unpickled(livy, package, tmp_path):
    channel = opened(livy, package)
    path = str(tmp_path / "executed")
    for module, name, argument in (
        ("builtins", "exec", f"open({path!r}, 'w')"),
        ("builtins", "open", path),
        ("os", "mkdir", path),
        ("posix", "mkdir", path),
        ("subprocess", "getoutput", f"mkdir {path}"),
        ("builtins", "str", "{}"),
    ):
        for pickled in (f"c{module}\n{name}\n(V{argument}\ntR.", f"c{module}\n{name}\n."):
            evil = base64.b64encode(base64.b64encode(pickled.encode())).decode()
            livy.faults["GET /sessions/7/jobs"] = [(200, {"state": "SUCCEEDED", "result": evil})]
            with pytest.raises(Unavailable, match=f"cannot be read .the answer names {module}.{name}.$"):
                channel.call("poll", "{}")
            assert not os.path.exists(path)
    assert channel.call("poll", "{}")["got"] == {}


def test_a_lost_answer_of_a_job_is_asked_for_by_a_new_one(livy, package):
    channel = opened(livy, package)
    livy.faults["GET /sessions/7/jobs"] = [(-200, b'{"state": "SUCC')]
    with pytest.raises(Unavailable, match="closed the connection"):
        channel.call("poll", "{}")
    assert channel.call("poll", "{}")["got"] == {}


def test_a_python_that_java_does_not_reach_is_gone(livy, package):
    channel = opened(livy, package)
    error = "java.net.ConnectException: Connection refused\n\tat java.base/sun.nio.ch.Net.connect0(Native Method)"
    livy.faults["GET /sessions/7/jobs"] = [(200, {"state": "FAILED", "error": error})]
    with pytest.raises(Gone, match=r"the Python of Livy session 7 at .* has ended: begin a new session"):
        channel.call("poll", "{}")


def test_an_error_in_the_driver_is_one_line(livy, package):
    channel = opened(livy, package)
    with pytest.raises(Unavailable, match=r"^the driver could not answer \(ValueError: no such run\)$"):
        channel.call("bad", "{}")
    channel.has_side_channel = False
    with pytest.raises(StatementFailed, match=r"^ValueError: no such run$"):
        channel.call("bad", "{}")


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ("gone", "Livy session 7 at 127.0.0.1:PORT has ended (Session '7' not found)"),
        ("dead", "Livy session 7 at 127.0.0.1:PORT has ended (it is dead)"),
    ],
)
def test_a_session_that_has_ended_is_gone_at_once(livy, package, state, says):
    channel = opened(livy, package)
    livy.state = state
    livy.faults["POST /sessions/7/submit-job"] = [] if state == "gone" else [(500, "session is not there")]
    with pytest.raises(Gone) as caught:
        channel.call("poll", "{}")
    assert str(caught.value) == says.replace("PORT", livy.url.rpartition(":")[2])


def test_another_session_of_the_same_number_is_not_taken_for_the_old_one(livy, package):
    channel = opened(livy, package)
    fake_livy.forget(package)
    importlib.invalidate_caches()
    for beside in (True, False):
        channel.has_side_channel = beside
        with pytest.raises(Gone, match="is a different one now"):
            channel.call("poll", "{}")


def test_the_cluster_tells_unreachable_from_gone_and_is_patient_where_it_matters(livy, package):
    cluster = LivyCluster(LivySession(http_of(livy), 7), package)
    cluster.channel.open(5)
    livy.faults["POST /sessions/7/submit-job"] = [LATER, LATER, (429, b"")]
    assert isinstance(cluster.poll("r", 0), Unreachable)
    assert not cluster.poll("r", 0).session_ended
    livy.faults = {"POST /sessions/7/statements": [LATER, LATER]}
    assert cluster._call("launch", {}, {})["got"] == {}
    livy.state = "gone"
    answer = cluster.poll("r", 0)
    assert isinstance(answer, Unreachable) and answer.session_ended


def test_without_a_side_channel_a_busy_session_is_no_reason_to_give_a_run_up(livy, package, monkeypatch):
    cluster = LivyCluster(LivySession(http_of(livy), 7), package)
    cluster.channel.open(5)
    cluster.channel.has_side_channel = False
    monkeypatch.setattr(livy_channel, "STATEMENT_SECONDS", 0.0)
    livy.faults["GET /sessions/7/statements"] = [(200, {"state": "waiting"})] * 3
    assert cluster.poll("r", 3) == Polled((), 3, False, "")
    livy.faults["GET /sessions/7/statements"] = [(200, {"state": "waiting"})] * 3
    assert cluster.check(replace(parse("--workers 1"), run="r"), {}) is None, "whose slots are not known yet"
    cluster._details, cluster._asked_at = {"slots": 2}, time.monotonic()
    livy.faults["GET /sessions/7/statements"] = [(200, {"state": "waiting"})] * 3
    assert cluster.status() == Unreachable("session 7 is busy with another cell", busy=True)
    assert any(path.endswith("/cancel") for _, path, _, _ in livy.seen)


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(idle_session, "ANSWER_SECONDS", 0.4)
    monkeypatch.setattr(livy_channel, "LOOK_SECONDS", 0.05)


@pytest.mark.parametrize("side_channel", [True, False])
@pytest.mark.parametrize("deaf", ["accepts", "fails"])
def test_a_session_that_is_idle_and_answers_nothing_is_dead(livy, package, impatient, side_channel, deaf):
    """Livy may not notice that a driver has died: LIVY-727."""
    cluster = LivyCluster(LivySession(http_of(livy), 7), package)
    cluster.channel.open(5)
    cluster.channel.has_side_channel = side_channel
    livy.deaf, answer, began = deaf, None, time.monotonic()
    while not getattr(answer, "session_ended", False) and time.monotonic() < began + 10:
        answer = cluster.poll("r", 0)
    assert answer.session_ended and 0.4 < time.monotonic() - began < 5
    assert answer.message.startswith("Livy session 7 at 127.0.0.1:")
    assert "has ended (its driver has not answered for " in answer.message and answer.message.endswith("new session")
    refused = cluster.check(replace(parse("--workers 1"), run="r"), {})
    assert isinstance(refused, Refused) and "has ended (its driver" in refused.message


def test_a_session_that_is_busy_or_was_heard_of_is_not_dead(livy, package, impatient, monkeypatch):
    channel = opened(livy, package)
    monkeypatch.setattr(livy_channel, "JOB_SECONDS", 0.3)
    for _ in range(3):
        livy.deaf = "accepts"
        with pytest.raises(Unavailable, match="the side channel of session 7 does not answer"):
            channel.call("poll", "{}")
        livy.deaf = ""
        assert channel.call("poll", "{}")["got"] == {}
    livy.deaf, livy.state = "accepts", "busy"
    for _ in range(3):
        with pytest.raises(Unavailable, match="the side channel of session 7 does not answer"):
            channel.call("poll", "{}")


def test_the_time_of_an_idle_session_that_is_dead_is_less_than_a_minute():
    """Two replies that do not come, or the pauses of a follower between jobs."""
    assert idle_session.ANSWER_SECONDS < 2 * livy_channel.REPLY_SECONDS < 55
    assert idle_session.ANSWER_SECONDS + 2 * idle_session.LOOK_SECONDS + follower.FAILING_POLL_SECONDS < 60


def test_a_launch_is_postponed_by_a_busy_session_and_cancelled_if_it_takes_too_long(livy, package, monkeypatch):
    cluster = LivyCluster(LivySession(http_of(livy), 7), package)
    cluster.channel.open(5)
    monkeypatch.setattr(livy_channel, "STATEMENT_SECONDS", 0.0)
    spec = replace(parse("--workers 1 --name digits"), run="r1")
    livy.faults["GET /sessions/7/statements"] = [(200, {"state": "waiting"})] * 3
    answer = cluster.launch(spec, {})
    assert isinstance(answer, Postponed) and answer.message.endswith("which executes another cell")
    assert any(path.endswith("/cancel") for _, path, _, _ in livy.seen)

    stopped = []
    monkeypatch.setattr(cluster, "stop", lambda run, reason: stopped.append(run))
    monkeypatch.setitem(livy_cluster._SECONDS, "launch", 0.0)
    livy.faults["GET /sessions/7/statements"] = [(200, {"state": "running"})] * 3
    answer = cluster.launch(spec, {})
    assert isinstance(answer, Refused) and "has not answered within 0 s" in answer.message and stopped == ["r1"]


def test_the_real_runtime_answers_in_the_shipped_form(livy, monkeypatch):
    monkeypatch.setattr(shipping.load_driver().registry, "_jobs", {})  # runs of other tests of this process
    channel = opened(livy, shipping.pack())
    assert channel.call("busy", "{}") == {"busy": 0} and channel.call("runs", "{}") == {"runs": []}
    assert channel.call("poll", json.dumps({"run": "x", "after": 0}))["state"] == "LOST"
    looked = channel.environment()
    assert looked["ready"] and looked["numpy"] and abs(looked["time"]) > 1e9


# HTTP


def test_credentials_and_headers_are_sent_and_never_shown(livy):
    http = http_of(livy, auth=("ann", "secret"), headers={"X-Requested-By": "me"})
    assert http.get("/version") == {"version": "0.0"}
    _, _, headers, _ = livy.seen[-1]
    assert headers["X-Requested-By"] == "me"
    assert headers["Authorization"] == "Basic " + base64.b64encode(b"ann:secret").decode()
    assert "secret" not in repr(Connection(livy.url, auth=("ann", "secret"))) + http.authentication
    http_of(livy).get("/version")
    assert livy.seen[-1][2]["X-Requested-By"] == "ddl_magics"


@pytest.mark.parametrize(
    ("status", "body", "kind", "says"),
    [
        (503, b"<html>busy</html>", Unavailable, r"answers 503$"),
        (429, b"", Unavailable, r"answers 429$"),
        (500, '"java.util.NoSuchElement"', Unavailable, r"answers 500 \(.*NoSuchElement"),
        (401, b"", Rejected, r"wants a user name and password: set them for http://127.*config\.json"),
        (403, b"", Rejected, r"refuses this user"),
        (404, b"", Rejected, r"is not a Livy \(404\): is the URL complete \(HDInsight: \.\.\./livy\)\?"),
        (404, {"msg": "Session '3' not found."}, Gone, r"Session '3' not found"),
        (404, "Statement not found", Gone, r"Statement not found"),
        (404, {"status": 404, "error": "Not Found"}, Rejected, r"is not a Livy \(404\)"),
        (400, {"code": 1, "message": "unknown field"}, Rejected, r"refuses \(unknown field\)\.$"),
        (500, {"detail": ["x"]}, Unavailable, r"answers 500$"),
        (302, b"", Rejected, r"is not a Livy \(302\)"),
        (400, {"msg": "bad\nconf"}, Rejected, r"refuses \(bad conf\)\.$"),
        (200, b"<html>sign in</html>", Rejected, r"answers with a web page"),
        (200, b'{"id": ', Unavailable, r"sent a broken answer"),
        (-200, b'{"id": 1}', Unavailable, r"closed the connection"),
    ],
)
def test_every_problem_is_one_line_that_says_what_to_do(livy, status, body, kind, says):
    livy.faults["GET /x"] = [(status, body)]
    with pytest.raises(kind, match=says) as caught:
        http_of(livy).get("/x")
    assert "\n" not in str(caught.value)


def test_where_nobody_listens_or_answers(monkeypatch):
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:9 refuses connections: is Livy running there\?"):
        LivyHttp(Connection("http://127.0.0.1:9")).get("/version")
    import socket

    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        with pytest.raises(Unavailable, match="does not answer in time"):
            LivyHttp(Connection(f"http://127.0.0.1:{deaf.getsockname()[1]}")).get("/version", seconds=0.2)


# --send


@pytest.mark.parametrize(
    "value",
    [
        3,
        "ä'\n\"",
        (1, [2.5, None]),
        {1: {"a": b"x"}},
        {1, 2},
        np.float32(0.1),
        np.arange(6.0).reshape(2, 3),
        np.array(["a"]),
    ],
    ids=repr,
)
def test_a_small_value_arrives_as_it_was(livy, package, value):
    cluster = LivyCluster(LivySession(http_of(livy), 7), package)
    spec = parse("--send value")
    assert cluster.launch(spec, {"value": value}) == Refused("spark", "the driver refused without a reason")
    arrived = livy.names["value"]
    assert type(arrived) is type(value) and repr(arrived) == repr(value)
    assert "send" not in spec.to_record()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("valu", "--send valu: this notebook has no variable valu. Did you mean value?"),
        ("frame", "--send frame: a DataFrame cannot be sent; numbers, text"),
        ("objects", "--send objects: a ndarray cannot be sent"),
        ("masked", "--send masked: a MaskedArray cannot be sent"),
        ("matrix", "--send matrix: a matrix cannot be sent"),
        ("large", "--send large is too large (1041 kB of 512): write it to the cluster's storage"),
    ],
)
def test_what_cannot_be_sent_is_refused_in_one_line(livy, package, name, says):
    cluster = LivyCluster(LivySession(http_of(livy), 7), package)
    names = {
        "value": 1,
        "frame": pd.DataFrame(),
        "objects": np.array([object()]),
        "masked": np.ma.array([1, 2], mask=[0, 1]),  # would arrive as something else
        "matrix": np.matrix([[1, 2]]),
        "large": np.zeros(10**5),
    }
    refused = cluster.check(parse(f"--send {name}"), names)
    assert refused.kind == "usage" and refused.message.startswith(says)
    assert livy.statements == []


# Sessions


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        ("", (None, None, False, None)),
        ("https://c.example/livy/", ("https://c.example/livy", None, False, None)),
        ("http://h:8998 --detached", ("http://h:8998", None, True, None)),
        ("--session ddl_1 http://h:8998", ("http://h:8998", "ddl_1", False, None)),
    ],
)
def test_what_use_livy_asks_for(line, arguments):
    choice = Mock()
    choice.livy.return_value = None
    use(Kernel(Mock(), choice=choice), **BY_VERB["use"].read(["livy", *line.split()]))
    assert choice.livy.call_args.args == arguments


@pytest.mark.parametrize("line", ["--session", "http://h http://g", "ftp://h", "--session 1 --detached", "--detachd"])
def test_what_use_livy_does_not_understand(line):
    with pytest.raises(UsageError):
        use(Kernel(Mock(), choice=Mock()), **BY_VERB["use"].read(["livy", *line.split()]))


def test_a_session_that_cannot_be_made_or_found_says_why(livy):
    with pytest.raises(NoSession, match=r"^no session could be created: 127\.0\.0\.1:9 refuses connections"):
        livy_session.create(LivyHttp(Connection("http://127.0.0.1:9")), {}, report=lambda line: None)
    sessions = {"sessions": [{"id": 7, "state": "idle", "kind": "spark", "name": "s"}, {"id": 8, "state": "dead"}]}
    livy.faults["GET /sessions?size"] = [(200, sessions)] * 6
    with pytest.raises(NoSession, match=r"has no session 8; it has 7 \(s\)\.$"):
        livy_session.find(http_of(livy), "8")
    with pytest.raises(NoSession, match="session s is of kind spark: create one of kind pyspark"):
        livy_session.find(http_of(livy), "s")
    sessions["sessions"][0]["kind"] = "pyspark"
    assert livy_session.find(http_of(livy), "s").id == 7


def test_a_livy_that_tells_no_names_is_used_by_number(livy):
    """Livy 0.5: sessions have no name, and say nothing of their heartbeat."""
    known = {"sessions": [{"id": 7, "state": "idle", "kind": "pyspark"}, {"id": 8, "state": "idle", "kind": "spark"}]}
    livy.faults["GET /sessions?size"] = [(200, known)] * 4
    found = livy_session.find(http_of(livy), "7")
    assert (found.id, found.name, found.ends_with_kernel, found.detached) == (7, "", False, False)
    cluster = LivyCluster(found, shipping.pack())
    assert cluster.driver_address["name"] == "" and cluster.name.startswith("Livy session 7 at ")
    with pytest.raises(NoSession, match=r"has no session ddl_1; it has 7, 8\.$"):
        livy_session.find(http_of(livy), "ddl_1")


def test_a_livy_that_tells_no_names_makes_sessions_all_the_same(livy):
    livy.faults = {
        "GET /sessions?size": [(200, {"sessions": []})],
        "POST /sessions": [(201, {"id": 7, "state": "starting", "kind": "pyspark"})],
    }
    session = livy_session.create(http_of(livy), {}, detached=True, report=lambda line: None)
    assert (session.id, session.name, session.detached) == (7, "", True)
    assert lifetime(session).startswith("Session 7 outlives this kernel.") and "--session 7" in lifetime(session)
    assert "Livy's default (livy.server.session.timeout, 1 h unless set)" in lifetime(session)


def test_a_session_whose_making_got_no_answer_is_found_by_its_name(livy, monkeypatch):
    monkeypatch.setattr(livy_session.secrets, "token_hex", lambda size: "1")
    known = {"sessions": [{"id": 7, "state": "idle", "kind": "pyspark", "name": "ddl_detached_1"}]}
    livy.faults = {
        "POST /sessions": [(-201, b'{"id": ')],
        "GET /sessions?size": [(200, {"sessions": []}), (200, known)],
    }
    session = livy_session.create(http_of(livy), {}, detached=True, report=lambda line: None)
    assert session.id == 7
    body = next(body for method, path, _, body in livy.seen if (method, path) == ("POST", "/sessions"))
    assert body == {"kind": "pyspark", "name": "ddl_detached_1", "heartbeatTimeoutInSecond": 0}
