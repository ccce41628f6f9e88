"""A batch of a Livy: what is asked for, what is reported, and each problem in one line. The Livy is a stand-in."""

import json
import re

import pytest
from IPython.core.error import UsageError
from support import fake_livy
from support.fake_livy import FakeLivy

from ddl_magics import store
from ddl_magics.__main__ import main
from ddl_magics.clusters import livy_batch, livy_channel, livy_http, livy_session, shipping, yarn_application
from ddl_magics.runs import attaching, batch_run, ending

#: What the session answers, in the place of the runtime's driver/batch.py.
WRITES = """
def busy(argument): return json.dumps({'busy': 0})
def write_batch(argument):
    spec = json.loads(argument)["spec"]
    if "denied" in spec["out"]:
        return json.dumps({"ok": False, "error": {"message": "--out %s cannot be written to: denied" % spec["out"]}})
    if "broken" in spec["out"]:
        raise OSError("no disk")
    files = {"file": "hdfs:/p/main.py", "py_files": ["hdfs:/p/r.zip"]}
    return json.dumps({"ok": True, **files, "args": [spec["out"], "r"]})
"""
CELL = "%%distributed --name far --workers 2 --out hdfs:///m --seed 5 --conf spark.hidden.password=open\nx = 1\n"
FINISHED = [
    "stdout: ",
    "INFO of Spark",
    "<ddl_magics 1> epoch 1  loss 0.5",
    "<ddl_magics 2> epoch 2  loss 0.25",
    '<ddl_magics end> {"state": "FINISHED", "message": ""}',
]


#: As `spark-submit` prints it, of a batch for which its queue has no room.
WAITS = [
    "26/11/28 08:13:28 INFO Client: Application report for application_17_0005 (state: ACCEPTED)",
    "\t diagnostics: AM resource limit exceeded",
    "\t queue: town",
]
WAITING = "application_17_0005 waits in queue town of YARN: AM resource limit exceeded"


@pytest.fixture
def livy(tmp_path, monkeypatch, data_dir):
    for name, seconds in (("APPEAR_SECONDS", 0.3), ("REACH_SECONDS", 0.1), ("POLL_SECONDS", 0.02)):
        monkeypatch.setattr(livy_session, name, seconds)
    for name, seconds in (("RETRY_SECONDS", 0.3), ("LAST_LINES_SECONDS", 0.1), ("POLL_SECONDS", 0.02)):
        monkeypatch.setattr(livy_batch, name, seconds)
    for name in ("QUEUE_SECONDS", "QUEUE_LOOK_SECONDS"):
        monkeypatch.setattr(yarn_application, name, 0.02)
    monkeypatch.setattr(livy_http, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(livy_channel, "PROBE_SECONDS", 0.1)
    (tmp_path / "config.json").write_text(
        json.dumps({"session_configs": {"executorMemory": "2g", "ttl": "1h", "conf": {"spark.a": "b"}}})
    )
    monkeypatch.setenv("SPARKMAGIC_CONF_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "package").mkdir()
    with fake_livy.driver(tmp_path / "package", WRITES) as runtime, FakeLivy(side_channel=False) as livy:
        monkeypatch.setattr(shipping, "pack", lambda: runtime)
        livy.runtime = runtime.module
        yield livy


@pytest.fixture
def run(livy, tmp_path, capsys):
    """`run(cell, *words)`: (exit status, answer, messages)."""

    def run(cell=CELL, *words):
        (tmp_path / "train.py").write_text(cell)
        status = main(["run", "train.py", "--cluster", livy.url, "--batch", "--json", *words])
        captured = capsys.readouterr()
        return status, json.loads(captured.out), captured.err

    return run


def test_a_batch_is_made_from_what_a_session_has_written(livy, run):
    livy.batch = [("starting", []), ("running", FINISHED[:3]), ("running", FINISHED[:3]), ("success", FINISHED)]
    status, answer, messages = run()
    assert (status, answer["state"], answer["error"], answer["out"]) == (0, "FINISHED", None, "hdfs:///m")
    assert answer["batch"] == f"{livy.url}/batches/3"
    (body,) = livy.batches
    assert body.pop("name").startswith("ddl_far_")
    assert body == {
        "file": "hdfs:/p/main.py",
        "pyFiles": ["hdfs:/p/r.zip"],
        "args": ["hdfs:///m", "r"],
        "conf": {"spark.yarn.maxAppAttempts": "1", "spark.a": "b", "spark.hidden.password": "open"},
        "executorMemory": "2g",
    }
    assert livy.state == "gone", "the session that wrote is deleted"
    order = [(method, path) for method, path, _, _ in livy.seen if method != "GET"]
    assert order.index(("DELETE", "/sessions/7")) < order.index(("POST", "/batches"))
    assert [line for line in messages.splitlines() if line.startswith("epoch")] == [
        "epoch 1  loss 0.5",
        "epoch 2  loss 0.25",
    ]


def test_no_setting_is_in_a_file_or_in_a_statement(livy, run):
    run()
    for method, path, _, body in livy.seen:
        if (method, path) != ("POST", "/batches"):
            assert "spark.hidden.password" not in json.dumps(body), path
    assert "open" not in json.dumps(livy.batches[0]["args"])


@pytest.fixture
def ddl_magics(capsys):
    """`ddl_magics(*words)`: (exit status, answer) of another command."""

    def command(*words):
        status = main([*words, "--json"])
        return status, json.loads(capsys.readouterr().out)

    return command


@pytest.fixture
def submitted(livy, run):
    """A batch that no command follows."""
    livy.batch = [("starting", [])]
    status, answer, _ = run(CELL, "--detach")
    assert (status, answer["state"], answer["batch"]) == (0, "RUNNING", f"{livy.url}/batches/3")
    assert not [path for method, path, _, _ in livy.seen if method == "GET" and path.startswith("/batches/3")]
    record = store.find_run("far")
    leave(record)
    return record


def leave(record):
    """The command that has submitted the batch ends."""
    (record.folder / "owner.json").unlink()


def test_runs_asks_livy_how_a_batch_is_that_no_command_follows(livy, submitted, ddl_magics):
    failed = ['<ddl_magics end> {"state": "FAILED", "message": "x"}']
    for batch, state, reason in (
        (("starting", []), "SUBMITTED", ""),
        (("running", []), "RUNNING", ""),
        (("running", []), "RUNNING", ""),
        (("dead", failed), "FAILED", "x"),
        (("success", []), "FAILED", "x"),  # it has ended, and is not asked again
    ):
        livy.batch = [batch]
        (run,) = ddl_magics("runs")[1]["runs"]
        assert (run["name"], run["state"], run["reason"]) == ("far", state, reason)
        assert run["cluster"].startswith("Livy batch 3 at 127.0.0.1:") and (run["ended"] is None) == (state != "FAILED")
    events = [json.loads(line) for line in (submitted.folder / "events.jsonl").read_text().splitlines()]
    assert [(event["seq"], event["state"]) for event in events] == [(1, "SUBMITTED"), (2, "RUNNING"), (3, "FAILED")]
    assert "open" not in (submitted.folder / "run.json").read_text(), "no setting is stored"


def test_show_asks_livy_too(livy, submitted, ddl_magics):
    livy.batch = [("success", FINISHED)]
    assert ddl_magics("show", "far")[1]["state"] == "FINISHED"


def test_a_batch_that_livy_has_no_more_is_lost(livy, submitted, ddl_magics):
    livy.batches.clear()
    (run,) = ddl_magics("runs")[1]["runs"]
    assert (run["state"], run["reason"]) == ("LOST", "its Livy does not have batch 3 any more")


def test_a_livy_that_does_not_answer_is_said_once_and_changes_nothing(livy, run, submitted, ddl_magics):
    run(CELL, "--detach")
    leave(store.find_run("far"))
    livy.seen.clear()
    livy.faults = {"GET /batches/3": [(401, None)] * 2}
    states = [(run["state"], run["reason"][:30]) for run in ddl_magics("runs")[1]["runs"]]
    assert ("SUBMITTED", "its batch could not be asked: ") in states and {state for state, _ in states} == {"SUBMITTED"}
    assert len([path for _, path, _, _ in livy.seen if path == "/batches/3"]) == 1


def test_stop_deletes_a_batch_that_no_command_follows(livy, submitted, ddl_magics):
    status, answer = ddl_magics("stop", "far")
    assert (status, answer["outcome"]) == (0, "stopped") and "there is no model of it" in answer["message"]
    assert not livy.batches and store.find_run("far").state == "STOPPED"
    status, answer = ddl_magics("stop", "far")
    assert (status, answer["outcome"]) == (1, "ended")


def test_stop_says_what_to_do_where_a_batch_cannot_be_deleted(livy, submitted, ddl_magics):
    livy.faults = {"DELETE /batches/3": [(401, None)]}
    status, answer = ddl_magics("stop", "far")
    assert (status, answer["outcome"]) == (1, "runs") and f"DELETE {livy.url}/batches/3" in answer["how"]
    assert store.find_run("far").state == "SUBMITTED"


def test_a_batch_that_is_stopped_ends_the_command_that_follows_it_with_3(livy, run, monkeypatch):
    livy.batch = [("running", [])]
    sleep = livy_batch.time.sleep

    def stopped_meanwhile(seconds):
        record = store.find_run("far")
        if livy.batches and record is not None:
            assert record.state == "RUNNING"
            assert batch_run.end(record).outcome == "asked"
        sleep(seconds)

    monkeypatch.setattr(livy_batch.time, "sleep", stopped_meanwhile)
    status, answer, _ = run()
    assert (status, answer["state"], answer["error"]) == (3, "STOPPED", None)
    (stored,) = answer["runs"]
    assert (stored["name"], stored["state"]) == ("far", "STOPPED")


def test_a_batch_that_waits_in_a_queue_says_so_and_has_a_bound(livy, run):
    livy.batch = [("starting", WAITS)]
    status, answer, messages = run(CELL.replace("--seed 5", "--seed 5 --timeout 0.3"))
    assert re.search(rf"^after \d s, {WAITING}$", messages, re.MULTILINE), messages
    assert (status, answer["state"]) == (1, "FAILED") and not livy.batches
    assert "had not begun after the 0.3 s of --timeout, and was deleted (application_17_0005 waits" in answer["error"]


@pytest.fixture
def full(livy, monkeypatch):
    """`full(count)`: the first sessions wait in a queue, and Livy gives them up."""
    monkeypatch.setattr(livy_session, "POLL_SECONDS", 0.03)
    livy.log, answer_of, asked = WAITS, livy.answer, []

    def full(count):
        def answer(method, path, body):
            status, reply = answer_of(method, path, body)
            if (method, path) == ("GET", "/sessions/7") and len(livy.created) <= count:
                asked.append(len(livy.created))
                reply["state"] = "starting" if asked.count(len(livy.created)) < 4 else "dead"
            return status, reply

        livy.answer = answer

    return full


def test_a_session_for_the_files_that_livy_gives_up_in_a_queue_is_followed_by_another(livy, run, full):
    full(2)
    status, answer, messages = run()
    assert (status, answer["state"], len(livy.created), len(livy.batches)) == (0, "FINISHED", 3, 1)
    assert len(re.findall(rf"^after \d s, {WAITING}$", messages, re.MULTILINE)) == 2, messages


def test_the_timeout_bounds_the_wait_for_the_session_for_the_files(livy, run, full):
    full(100)
    status, answer, _ = run(CELL.replace("--seed 5", "--seed 5 --timeout 0.3"))
    told = rf"no batch was created in the 0\.3 s of --timeout: Livy session 7 did not start .*: {WAITING}, longer than"
    assert status == 1 and re.match(told, answer["error"]), answer
    assert not livy.batches and livy.state == "gone"


def test_a_batch_that_has_begun_may_take_longer_than_its_timeout(livy, run):
    livy.batch = [("running", [])] * 30 + [("success", FINISHED)]
    assert run(CELL.replace("--seed 5", "--seed 5 --timeout 0.3"))[:2][0] == 0


def test_no_notebook_attaches_a_batch(livy, submitted, ddl_magics):
    record = store.find_run("far")
    assert not record.attachable
    with pytest.raises(UsageError, match="far cannot be attached: it is a batch of Livy"):
        attaching.find_stored(record, lambda address: None)
    assert ending.ask_stored(record).outcome == "runs"


@pytest.mark.parametrize(
    ("end", "state", "status", "says"),
    [
        (("success", []), "FINISHED", 0, None),  # of YARN's cluster mode, whose driver's lines are elsewhere
        (("killed", []), "STOPPED", 3, None),
        (("dead", ['<ddl_magics end> {"state": "STOPPED", "message": ""}']), "STOPPED", 3, None),
        (("dead", ['<ddl_magics end> {"state": "FAILED", "message": "x"}']), "FAILED", 1, "x"),
        (("dead", ["stdout: ", "a", "Error: no file", "\nstderr: "]), "FAILED", 1, "batch 3 is dead: Error: no file"),
        (("dead", []), "FAILED", 1, "batch 3 is dead: its log in Livy is empty"),
    ],
)
def test_the_end_of_a_batch(livy, run, end, state, status, says):
    livy.batch = [("running", []), end]
    ended, answer, _ = run()
    assert (ended, answer["state"], answer["error"]) == (status, state, says)


def test_ctrl_c_leaves_it_and_says_how_to_end_it(livy, run, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(livy_batch, "follow", interrupted)
    status, answer, messages = run()
    assert (status, answer["state"]) == (130, "RUNNING")
    assert "ddl-magics runs says how it is, ddl-magics stop ends it" in messages
    assert not [path for method, path, _, _ in livy.seen if method == "DELETE" and path.startswith("/batches")]


def test_a_batch_whose_answer_is_lost_is_found_and_not_made_again(livy, run):
    livy.faults["POST /batches"] = []
    answer_of = livy.answer

    def lost_once(method, path, body):
        status, reply = answer_of(method, path, body)
        return (503, None) if (method, path) == ("POST", "/batches") else (status, reply)

    livy.answer = lost_once
    assert run()[0] == 0 and len(livy.batches) == 1


@pytest.mark.parametrize(
    ("faults", "says"),
    [
        ({"POST /sessions": [(400, {"msg": "no more sessions"})]}, "no session could be created: "),
        ({"POST /batches": [(400, {"msg": "Local path /p cannot be added"})]}, "no batch could be created: "),
        ({"GET /batches/3": [(404, {"msg": "Session '3' not found."})]}, "batch 3 at "),
        ({"GET /batches/3": [(503, None)] * 100}, "127.0.0.1:"),
    ],
)
def test_what_livy_refuses_is_one_line(livy, run, faults, says):
    livy.faults = faults
    status, answer, _ = run()
    assert status == 1 and answer["error"].startswith(says) and "\n" not in answer["error"]
    assert livy.state == "gone" or not livy.created


@pytest.mark.parametrize(
    ("out", "says"),
    [
        ("hdfs:///denied", "--out hdfs:///denied cannot be written to: denied."),
        ("hdfs:///broken", "Livy session 7 has not written the batch's files: OSError: no disk"),
    ],
)
def test_an_out_that_cannot_be_written_to_is_one_line(livy, run, out, says):
    status, answer, _ = run(CELL.replace("hdfs:///m", out))
    assert (status, answer["error"]) == (1, says) and livy.state == "gone" and not livy.batches
