"""The Livy of the tests does what a client of Livy 0.7.1 meets.

One session serves most tests, in the order of the file: the last ones end it. They are tests of the rig alone, which
changes seldom, and run with `make test-slow`; what the package needs of it, its own tests on the rig show every time.
"""

import http.client
import json
import time

import pytest
from livy.client import Client, value
from livy.faults import Cut, Delay, Status, Truncate
from support.until import until

pytestmark = pytest.mark.slow

#: A job that answers with a number: pickled by reference, called with Livy's context.
ANY_JOB = b"cbuiltins\nid\n."

#: Functions for the side channel, put into the session's sys.modules as a module `probe`.
PROBE = """
import sys, types, os, signal, time, threading
probe = types.ModuleType("probe")
def pid(context): return str(os.getpid())
def names(context): return ",".join(sorted(n for n in ("sc", "spark_session") if hasattr(context, n)))
def sleep(context): time.sleep(2); return "slept"
def fail(context): raise ValueError("no such thing")
def interrupt(context): os.kill(os.getpid(), signal.SIGINT); return "sent"
def adder(a, b): return lambda context: str(a + b)
for f in (pid, names, sleep, fail, interrupt, adder): setattr(probe, f.__name__, f)
sys.modules["probe"] = probe
"""

#: A barrier job of two ranks in a thread of the driver, under a job group of its own; `outcome` says how it ended.
BARRIER = """
import threading, time
from pyspark import BarrierTaskContext
from py4j.java_gateway import is_instance_of
def rank(rows):
    BarrierTaskContext.get().barrier()
    time.sleep({seconds})
    yield 1
outcome = []
def train():
    rdd = sc.parallelize(range(2), 2).barrier().mapPartitions(rank)
    try:
        outcome.append(len(rdd.collectWithJobGroup("{group}", "a run")))
    except BaseException as error:
        outcome.append(type(error).__name__)
runner = threading.Thread(target=train)
runner.start()
"""


def probe(name, arguments=""):
    """The pickle of probe.NAME, or of its call with arguments in pickle's own words."""
    return f"cprobe\n{name}\n{arguments}.".encode()


def one(source):
    """Source of many statements as the one expression that Livy 0.7.1 bears."""
    return f"exec({source!r}, globals())"


@pytest.fixture(scope="module")
def livy_client(livy_server):
    return Client(livy_server.url)


@pytest.fixture(scope="module")
def early(livy_client):
    """A session, and what it answered while it was starting."""
    session = livy_client.create(name="rig")
    answers = {
        "state": session.state,
        "statement": livy_client.post(f"{session.path}/statements", {"code": "1"}),
        "job": session.submit(ANY_JOB),
    }
    session.until("idle")
    yield session, answers
    livy_client.delete(session.path)


@pytest.fixture
def session(early):
    return early[0]


@pytest.fixture
def side_channel(session):
    """The session, with the functions of PROBE."""
    session.text(one(PROBE))
    return session


# What needs no session


def test_it_is_the_livy_of_hdinsight_and_answers_as_that_what_it_cannot_do(livy_server, livy_client):
    assert livy_client.get("/version").json["version"] == "0.7.1-incubating"
    for method, path in (("POST", "/sessions"), ("DELETE", "/sessions/0")):
        reply = Client(livy_server.url, requested_by=None).request(method, path, {})
        assert reply.status == 400 and "<html>" in reply.text.lower(), "a request without the header"
    for body in ({"kind": "pyspark", "ttl": "1h"}, {"kind": "cobol"}):
        reply = livy_client.post("/sessions", body)
        assert reply.status == 400 and isinstance(reply.json, str)
    unknown = livy_client.get("/sessions/4711")
    assert (unknown.status, "msg" in unknown.json) == (404, True)
    assert livy_client.get("/nowhere").status == 404


# A session


def test_a_starting_session_refuses_statements_and_takes_jobs(early):
    session, answers = early
    assert answers["state"] == "starting"
    assert answers["statement"].status == 500
    assert "starting" in answers["statement"].json
    value(session.job_ended(answers["job"]))


def test_a_session_is_found_by_its_name(livy_client, session):
    found = {one["name"]: one["id"] for one in livy_client.get("/sessions").json["sessions"]}
    assert session.path == f"/sessions/{found['rig']}"


# Statements


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("6 * 7", "42"),
        ("'quoted'", "'quoted'"),
        ("None", ""),
        ("print('said')", "said"),
        ("__import__('sys').stderr.write('warned') and None", "warned"),
        ("__name__", "'builtins'"),
        ("sorted({'sc', 'spark', 'sqlContext'} & set(globals()))", "['sc', 'spark', 'sqlContext']"),
        ("'äöü 漢字'", "'äöü 漢字'"),
    ],
)
def test_a_statement_gives_what_it_prints_and_the_echo_of_its_value(session, code, text):
    assert session.text(code) == text


def test_several_statements_at_once_fail_as_in_0_7_1(session):
    output = session.run("a = 1\nb = 2")
    assert output["status"] == "error"
    assert (output["ename"], output["evalue"]) == ("TypeError", 'required field "type_ignores" missing from Module')
    assert session.text(one("a = 1\nb = 2\nprint(a + b)")) == "3"
    session.text("def twice(x):\n    y = 2 * x\n    return y")
    assert session.text("twice(21)") == "42", "names stay from statement to statement"


def test_an_error_has_name_value_and_the_users_traceback_and_ends_no_session(session):
    output = session.run("print('lost') or 1 / 0")
    assert (output["status"], output["ename"], output["evalue"]) == ("error", "ZeroDivisionError", "division by zero")
    assert "lost" not in json.dumps(output)
    assert "child" not in "".join(output["traceback"])
    assert session.run("raise SystemExit(3)")["ename"] == "SystemExit"
    assert session.text("1") == "1"


def test_json_comes_as_json(session):
    session.text("table = {'a': [1, 2.5, None]}")
    assert session.run("%json table")["data"] == {"application/json": {"a": [1, 2.5, None]}}


def test_statements_are_listed_with_their_code(session):
    first, second = session.start("1"), session.start("2")
    session.ended(second)
    reply = session.client.get(f"{session.path}/statements?from={first}&size=2").json
    assert [(s["id"], s["code"], s["output"]["data"]["text/plain"]) for s in reply["statements"]] == [
        (first, "1", "1"),
        (second, "2", "2"),
    ]
    assert session.client.get(f"{session.path}/statements/4711").status == 404


def test_statements_wait_their_turn_and_a_waiting_one_can_be_cancelled(session):
    first, second, third = (session.start(f"__import__('time').sleep({s}) or 'done'") for s in (1, 0, 0))
    assert session.client.post(f"{session.path}/statements/{second}/cancel").status == 200
    assert session.statement(third)["state"] == "waiting"
    assert session.state == "busy"
    assert session.ended(second)["state"] == "cancelled"
    assert session.ended(third)["state"] == "available"
    assert session.statement(first)["started"] < session.statement(first)["completed"]
    session.until("idle", seconds=5)


def test_spark_runs_on_two_executors_whose_python_has_tensorflow_and_nothing_of_ours(session):
    code = """
    from importlib.util import find_spec
    def look(rows):
        import os, time
        time.sleep(1)
        yield os.environ["SPARK_EXECUTOR_DIRS"], *(bool(find_spec(name)) for name in ("tensorflow", "ddl_magics"))
    seen = sc.parallelize(range(2), 2).mapPartitions(look).collect()
    print(len({folder for folder, *_ in seen}), {tuple(found) for _, *found in seen})
    """
    assert session.text(one("if True:" + code)) == "2 {(True, False)}"


def test_cancel_ends_the_sparks_jobs_of_a_statement(session):
    number = session.start("sc.parallelize(range(2), 2).map(lambda x: __import__('time').sleep(60)).count()")
    session.runs(number)
    time.sleep(1)
    session.client.post(f"{session.path}/statements/{number}/cancel")
    begun = time.monotonic()
    assert session.ended(number)["state"] == "cancelled"
    assert time.monotonic() - begun < 10


def test_cancel_leaves_python_running(session):
    number = session.start("__import__('time').sleep(1) or 'done'")
    session.runs(number)
    session.client.post(f"{session.path}/statements/{number}/cancel")
    ended = session.ended(number)
    assert (ended["state"], ended["output"]["data"]) == ("cancelled", {"text/plain": "'done'"})


def test_progress_counts_finished_tasks(session):
    number = session.start("sc.parallelize(range(4), 4).map(lambda x: __import__('time').sleep(x % 2 * 2)).count()")
    assert 0 < until(lambda: session.statement(number)["progress"]) <= 0.75
    assert session.ended(number)["progress"] == 1.0


def test_threads_go_on_after_a_statement_and_what_they_print_is_lost(session):
    source = (
        "import threading, time\nticks = []\n"
        "def tick():\n    time.sleep(0.3)\n    ticks.append(1)\n    print('unheard')\n"
        "threading.Thread(target=tick).start()"
    )
    assert session.text(one(source)) == ""
    assert until(lambda: session.text("len(ticks)") == "1")
    assert session.text("1") == "1"


# The side channel


def test_a_job_runs_in_the_statements_python_with_a_context_and_arguments(side_channel):
    assert value(side_channel.job(probe("pid"))) == side_channel.text("__import__('os').getpid()")
    assert value(side_channel.job(probe("names"))) == "sc,spark_session"
    assert value(side_channel.job(probe("adder", "(I40\nI2\ntR"))) == "42"


def test_a_job_answers_while_a_statement_runs(side_channel):
    number = side_channel.start("__import__('time').sleep(3)")
    side_channel.runs(number)
    begun = time.monotonic()
    value(side_channel.job(probe("pid")))
    assert time.monotonic() - begun < 2
    assert side_channel.statement(number)["state"] == "running"
    side_channel.ended(number)


def test_a_job_answers_while_a_barrier_stage_runs_and_the_session_is_idle(side_channel):
    side_channel.text(one(BARRIER.format(seconds=3, group="barrier")))
    side_channel.until("idle", seconds=5)
    value(side_channel.job(probe("pid")))
    assert side_channel.text("outcome") == "[]"
    assert until(lambda: side_channel.text("outcome") == "[2]", seconds=60)


def test_a_background_barrier_job_ends_by_its_group(side_channel):
    side_channel.text(one(BARRIER.format(seconds=60, group="to-cancel")))
    until(lambda: side_channel.text("len(sc.statusTracker().getActiveJobsIds())") == "1")
    side_channel.text("sc.cancelJobGroup('to-cancel')")
    assert until(lambda: side_channel.text("outcome") == "['Py4JJavaError']")


def test_jobs_run_beside_each_other(side_channel):
    begun = time.monotonic()
    numbers = [side_channel.submit(probe("sleep")) for _ in range(3)]
    assert [value(side_channel.job_ended(number)) for number in numbers] == ["slept"] * 3
    assert time.monotonic() - begun < 5.5, "one after the other they take six seconds"


def test_a_failing_job_tells_its_traceback_and_each_job_is_told_once(side_channel):
    number = side_channel.submit(probe("fail"))
    answer = side_channel.job_ended(number)
    assert answer["state"] == "FAILED"
    assert "Client job error:" in answer["error"] and "no such thing" in answer["error"]
    again = side_channel.client.get(f"{side_channel.path}/jobs/{number}")
    assert (again.status, "NoSuchElementException" in again.text) == (500, True)


def test_a_job_can_interrupt_a_running_statement(side_channel):
    number = side_channel.start("__import__('time').sleep(60)")
    side_channel.runs(number)
    time.sleep(0.3)
    side_channel.job(probe("interrupt"))
    assert side_channel.ended(number, seconds=5)["output"]["ename"] == "KeyboardInterrupt"
    assert side_channel.text("1") == "1"


# In front of it


def test_the_gateway_wants_password_and_header_and_keeps_the_password(livy_server, livy_gateway, session):
    credentials = (livy_gateway.user, livy_gateway.password)
    client = Client(livy_gateway.url, credentials, livy_gateway.ca)
    assert client.get(session.path).json["name"] == "rig"
    assert client.post(f"{session.path}/statements", {"code": "1"}).status == 201
    assert Client(livy_gateway.url, ("admin", "guessed"), livy_gateway.ca).get("/version").status == 401
    assert Client(livy_gateway.url, credentials, livy_gateway.ca, None).post("/sessions").status == 400
    with pytest.raises(OSError, match="certificate verify failed"):
        Client(livy_gateway.url, credentials).get("/version")
    assert livy_gateway.password not in livy_server.log + livy_gateway.log


def test_the_proxy_answers_errors_livy_does_not_hear_of(livy_faults, session):
    client = Client(livy_faults.url)
    before = session.client.get(f"{session.path}/statements").json["total_statements"]
    livy_faults.plan(Status(503), Status(429, retry_after=7), Cut(), path=r"POST .*/statements$")
    assert client.get("/version").status == 200
    assert [client.post(f"{session.path}/statements", {"code": "1"}).status for _ in range(2)] == [503, 429]
    with pytest.raises((OSError, http.client.HTTPException)):
        client.post(f"{session.path}/statements", {"code": "1"})
    assert session.client.get(f"{session.path}/statements").json["total_statements"] == before
    assert [seen.fault for seen in livy_faults.requests] == [None, Status(503), Status(429, retry_after=7), Cut()]


def test_the_proxy_loses_answers_of_what_livy_has_done(livy_faults, session):
    client = Client(livy_faults.url)
    session.text("done = []")
    livy_faults.plan(Cut(after=True), Truncate(0.5))
    for _ in range(2):
        with pytest.raises((OSError, http.client.HTTPException)):
            client.post(f"{session.path}/statements", {"code": "done.append(1)"})
    assert session.text("len(done)") == "2"


def test_the_proxy_delays_fails_at_random_and_is_out(livy_faults):
    client = Client(livy_faults.url)
    livy_faults.plan(Delay(0.5))
    begun = time.monotonic()
    assert client.get("/version").status == 200
    assert time.monotonic() - begun > 0.5
    livy_faults.sometimes(0.5, Status(500), seed=3)
    assert {client.get("/version").status for _ in range(20)} == {200, 500}
    livy_faults.always(Cut())
    with pytest.raises((OSError, http.client.HTTPException)):
        client.get("/version")
    livy_faults.clear()
    assert client.get("/version").status == 200


# The ends


def test_a_hundred_statements_are_kept(session):
    numbers = [session.start("0") for _ in range(101)]
    session.ended(numbers[-1])
    kept = [s["id"] for s in session.client.get(f"{session.path}/statements?size=1000").json["statements"]]
    assert kept == numbers[-100:]


def test_a_write_to_the_real_standard_output_ends_the_session(session):
    session.start("__import__('os').write(1, b'not JSON') and None")
    session.until("error", "dead", seconds=20)


def test_a_deleted_session_is_gone_with_driver_and_executors(livy_server, livy_client, session):
    assert len(livy_server.processes()) >= 4  # server, driver, two executors
    assert livy_client.delete(session.path).status == 200
    assert livy_client.get(session.path).status == 404
    assert until(lambda: list(livy_server.processes()) == [livy_server.pid], seconds=30)
