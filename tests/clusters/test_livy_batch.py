"""A batch of a Livy: what is asked for, what is reported, and each problem in one line. The Livy is a stand-in."""

import json

import pytest
from support import fake_livy
from support.fake_livy import FakeLivy

from ddl_magics.__main__ import main
from ddl_magics.clusters import livy_batch, livy_channel, livy_http, livy_session, shipping

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


@pytest.fixture
def livy(tmp_path, monkeypatch):
    for name, seconds in (("APPEAR_SECONDS", 0.3), ("REACH_SECONDS", 0.1), ("POLL_SECONDS", 0.02)):
        monkeypatch.setattr(livy_session, name, seconds)
    for name, seconds in (("RETRY_SECONDS", 0.3), ("LAST_LINES_SECONDS", 0.1), ("POLL_SECONDS", 0.02)):
        monkeypatch.setattr(livy_batch, name, seconds)
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


def test_detached_it_says_how_to_see_and_to_end_it(livy, run):
    livy.batch = [("running", [])]
    status, answer, _ = run(CELL, "--detach")
    assert (status, answer["state"], answer["batch"]) == (0, "RUNNING", f"{livy.url}/batches/3")
    assert not [path for method, path, _, _ in livy.seen if method == "GET" and path.startswith("/batches/3")]


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
    assert (status, answer["state"]) == (130, "RUNNING") and f"DELETE {livy.url}/batches/3 ends it" in messages
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
