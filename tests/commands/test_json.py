"""`--json`: each verb of the terminal answers with one line of JSON, which has the keys that docs/commands.md lists."""

import json
import time
from datetime import datetime

import pytest
from support import stored
from support.fake_cluster import epoch, training
from support.fake_cluster import state as event_state
from support.invented_search import StoredSearch
from support.invented_server import InventedServer
from support.refusals import refusal

from ddl_magics.__main__ import VERBS, main
from ddl_magics.commands.answer import as_json
from ddl_magics.commands.table import BY_VERB
from ddl_magics.commands.values import RUN, SEARCH, TRIAL
from ddl_magics.runtime import events as ev

SECRET = "hf_abcdefghijklmnopqrstuvwxyz"


@pytest.fixture
def runs(data_dir):
    """A run that went well, one that failed with a loss that is no number, and a search."""
    failure = {"rank": 1, "kind": "error", "host": "wn1", "message": "boom", "traceback": "Traceback"}
    secrets = {"set": {"api_key": SECRET, "lr": "0.1"}, "conf": {"spark.hadoop.token": SECRET}, "cell": SECRET}
    good = stored.finished(name="good", **secrets)
    bad = stored.stored(ev.FAILED, [*list(training())[:-1], epoch(2, loss=None), event_state(ev.FAILED)], name="bad")
    metrics = {"loss": float("nan"), "accuracy": 0.5}
    bad.update({"failure": failure, "ended": 0.5, "created": 0.0, "progress": {"epoch": 2, "metrics": metrics}})
    search = StoredSearch(3, runs=0)
    _, study, space = search.study()
    study.tell(study.ask(space), 0.9)
    return {"good": good, "bad": bad}


@pytest.fixture
def answer(capsys):
    """`answer(*words, status=0)`: what the verb prints with --json, and that it prints nothing else."""

    def ask(*words, status=0):
        capsys.readouterr()
        assert main([*words, "--json"]) == status
        printed = capsys.readouterr().out
        assert printed.endswith("\n") and printed.count("\n") == 1
        assert SECRET not in printed and "NaN" not in printed and "Infinity" not in printed
        return json.loads(printed)

    return ask


def of_runs(answer, runs, tmp_path):
    return answer("runs")


def of_run(answer, runs, tmp_path):
    """Runs that it starts: tests/unattended."""
    (tmp_path / "a.py").write_text("print('a message')\n%%distributed --dry-run\nx = 1")
    return answer("run", str(tmp_path / "a.py"))


def of_show(answer, runs, tmp_path):
    return answer("show", "tuned") | answer("show", "bad")


def of_logs(answer, runs, tmp_path):
    return answer("logs", "good", "0")


def of_stop(answer, runs, tmp_path):
    assert answer("stop", "good", status=1)["outcome"] == "ended"
    stored.stored(name="live")
    return answer("stop", "live")


def of_serve(answer, runs, tmp_path):
    """What serves: tests/serving/test_serving.py, and what deploys: test_deployment.py."""
    server = InventedServer()
    try:
        found = answer("serve", "--stop", "digits")
    finally:
        server.end()
    assert found == {"name": "digits", "stopped": True}
    return dict.fromkeys(BY_VERB["serve"].keys) | found


def of_serving(answer, runs, tmp_path):
    server = InventedServer(log="requests")
    server.count(12.5, 40, 1, "2", (0.001, float("inf"), None))
    try:
        return answer("serving")
    finally:
        server.end()


def of_clean(answer, runs, tmp_path):
    dry = answer("clean", "--keep-last", "1", "--dry-run")
    assert dry["dry_run"] and runs["bad"].path.exists()
    return answer("clean", "--keep-last", "1")


def of_export(answer, runs, tmp_path):
    return answer("export", "good", str(tmp_path / "good"))


def of_import(answer, runs, tmp_path):
    main(["export", "good", str(tmp_path / "good.zip")])
    runs["good"].remove()
    return answer("import", str(tmp_path / "good.zip"))


FOUND = {
    "runs": lambda found: (
        [run["name"] for run in found["runs"]] == ["good", "bad"]
        and found["runs"][0].keys() == RUN.keys()
        and found["searches"][0].keys() == SEARCH.keys()
        and found["runs"][0]["parameters"] == {"api_key": "***", "lr": "0.1"}
        and found["runs"][1]["metrics"] == {"loss": None, "accuracy": 0.5}
        and (found["runs"][1]["created"], found["runs"][1]["ended"]) == ("1970-01-01T00:00:00+00:00",) * 2
        and abs(datetime.fromisoformat(found["runs"][0]["ended"]).timestamp() - time.time()) < 60
    ),
    "run": lambda found: (found["state"], found["runs"], found["error"]) == ("FINISHED", [], None),
    "show": lambda found: (
        found["failure"]["message"] == "boom"
        and [rank["host"] for rank in found["ranks"]] == ["host0", "host1"]
        and found["trials"][0].keys() == set(TRIAL)
    ),
    "logs": lambda found: (
        found["lines"] == [{"rank": 0, "stream": "stdout", "text": f"hello {n}"} for n in (0, 1)] and found["rank"] == 0
    ),
    "stop": lambda found: found["outcome"] == "asked",
    "serve": lambda found: True,
    "serving": lambda found: (
        found["models"][0]["latency"] == {"p50": 0.001, "p95": None, "p99": None}
        and found["models"][0]["alive"]
        and found["models"][0].keys() >= {"url", "grpc", "version", "problem", "requests", "rate"}
    ),
    "clean": lambda found: (
        [run["name"] for run in found["removed"]] == ["bad"]
        and (found["left"], found["dry_run"]) == (1, False)
        and found["bytes"] == found["removed"][0]["bytes"] > 0
    ),
    "export": lambda found: found["file"].endswith("good.zip") and len(found["runs"]) == 1 and found["search"] is None,
    "import": lambda found: len(found["runs"]) == 1 and found["searches"] == [],
}


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_answers_programs(verb, answer, runs, tmp_path):
    """With the keys of its row, which are those of the docs. A new verb needs an `of_VERB` above."""
    found = globals()[f"of_{verb}"](answer, runs, tmp_path)
    assert set(found) == set(BY_VERB[verb].keys)
    assert FOUND[verb](found), found


@pytest.mark.parametrize("verb", VERBS)
def test_a_mistake_is_json_with_the_exit_status_of_a_mistake(verb, answer, data_dir):
    says = answer(verb, "--no-such-word", status=1)
    assert list(says) == ["error"] and f"ddl-magics {verb} has no option --no-such-word" in says["error"]


def test_other_mistakes_are_json_as_well(answer, data_dir, monkeypatch):
    assert answer("shwo", status=2)["error"].startswith("no command shwo. Did you mean show?")
    assert answer("show", "nothing", status=1)["error"] == "there is no run nothing. ddl-magics runs lists them."
    monkeypatch.setattr("ddl_magics.store.list_runs", lambda: 1 / 0)
    assert answer("runs", status=1)["error"] == "ZeroDivisionError: division by zero"


def test_only_a_verb_of_the_terminal_has_it():
    assert "no option --json" in refusal(BY_VERB["use"].read, ["embedded", "--json"])
    assert BY_VERB["runs"].read(["--", "--json"])["query"] == ("--json",)


def test_no_character_of_a_text_steers_a_terminal():
    steering = "\x1b]0;title\x07\x9b2J\u202e\r\x08\x7f\ud800"
    text = as_json({"metrics": {steering: [float("inf"), 1.5]}})
    assert text.isascii() and text.isprintable() and json.loads(text) == {"metrics": {steering: [None, 1.5]}}
