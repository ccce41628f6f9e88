"""`ddl-magics run` as a process: what it prints, its exit status, and what its runs are left as."""

import json
import os
import signal
import subprocess
import sys

import nbformat
import pytest
from support import stored, trainings
from support.paths import ROOT
from support.until import until

from ddl_magics import store
from ddl_magics.__main__ import main
from ddl_magics.runtime import events as ev
from ddl_magics.store import owner
from ddl_magics.unattended.execution import Outcome, started_by

pytestmark = pytest.mark.usefixtures("data_dir")

#: The cell of a run that nobody waits for, and that ends when it is stopped.
ENDLESS = trainings.cell("--name endless --workers 1 --no-wait", epochs=100_000, pause=0.1)


class Process:
    """`ddl-magics run FILE ...` with --json, in a folder of its own."""

    def __init__(self, folder, *words, name="cells.py", text=""):
        (folder / name).write_text(text)
        command = [sys.executable, "-m", "ddl_magics", "run", name, "--json", *words]
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def send(self, number):
        self._process.send_signal(number)

    def ended(self, seconds=110):
        """(exit status, answer, messages)"""
        try:
            printed, messages = self._process.communicate(timeout=seconds)
        finally:
            self._process.kill()
        assert printed.count("\n") == 1, printed + messages
        return self._process.returncode, json.loads(printed), messages


def test_a_cell_that_fails_ends_the_file_with_1(tmp_path):
    text = "print('before')\n# %%\nfrom pathlib import Path\nprint(Path().resolve())\n1 / 0\n# %%\nprint('after')\n"
    marked = f"{text}\n%%distributed --dry-run\nx = 1"
    status, answer, messages = Process(tmp_path, "--output", "done.ipynb", text=marked).ended()
    assert (status, answer["state"], answer["runs"]) == (1, "FAILED", [])
    assert answer["error"] == "ZeroDivisionError: division by zero" and "ZeroDivisionError" in messages
    assert "before" in messages and str(tmp_path) in messages and "after" not in messages
    executed = nbformat.read(tmp_path / answer["output"], as_version=4)
    assert (
        executed.cells[1].outputs[0].text == "before\n" and executed.cells[2].outputs[-1].ename == "ZeroDivisionError"
    )


def test_a_signal_ends_a_cell_that_trains_nothing(tmp_path):
    process = Process(tmp_path, text="open('begun', 'w').close()\nimport time; time.sleep(600)\n%%distributed\nx")
    until((tmp_path / "begun").exists, 60)
    process.send(signal.SIGTERM)
    status, answer, _ = process.ended()
    assert (status, answer["state"], answer["error"]) == (128 + signal.SIGTERM, "STOPPED", None)


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_runs_on_the_embedded_spark_and_ctrl_c(tmp_path):
    """One that a cell waits for, and one that nobody waits for, which is stopped; in one kernel."""
    process = Process(
        tmp_path, "--cluster", "embedded", text=f"{trainings.cell('--name whole --workers 1')}\n# %%\n{ENDLESS}"
    )

    def trains():
        record = store.find_run("endless")
        return record is not None and record.progress

    until(trains, 200)
    process.send(signal.SIGINT)
    status, answer, messages = process.ended()
    assert (status, answer["state"]) == (128 + signal.SIGINT, "STOPPED")
    assert [(run["name"], run["state"]) for run in answer["runs"]] == [("whole", "FINISHED"), ("endless", "STOPPED")]
    assert "trained by 0" in messages and "runs are executed on this machine" in messages
    assert not store.RunFolder(store.find_run("endless").folder).has_live_owner(), "its kernel has ended"


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_run_in_the_background_outlives_the_command(tmp_path):
    status, answer, _ = Process(tmp_path, "--detach", text=ENDLESS).ended(200)
    (run,) = answer["runs"]
    assert (status, answer["state"], run["name"]) == (0, "RUNNING", "endless")
    record = store.find_run(run["id"])
    until(lambda: store.find_run(run["id"]).progress, 200)
    store.RunFolder(record.folder).request("stop")
    until(lambda: owner.started(answer["process"]) is None, 100)
    with open(answer["log"]) as log:
        assert log.read().splitlines()[-1] == f"endless  STOPPED  {run['id']}"


def test_in_the_background_a_file_that_fails_says_so_at_once(tmp_path):
    status, answer, _ = Process(tmp_path, "--detach", text="1 / 0\n%%distributed\nx = 1").ended()
    assert (status, answer["state"], answer["runs"]) == (1, "FAILED", [])
    assert answer["error"] == "cells.py has failed: ZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["--cluster", "embeded"],
            "--cluster takes the URL of a Livy, auto, embedded, livy, not embeded. Did you mean",
        ),
        (["--cluster", "http://u:p@h"], "the URL holds a password, which would be stored"),
        (["--session", "1"], "--session needs --cluster: add it, or leave --session out."),
        (["--output", "nowhere/a.ipynb"], "--output nowhere/a.ipynb: there is no folder nowhere."),
        (["--kernel-name", "nothing"], "there is no kernel nothing: jupyter kernelspec list"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, monkeypatch, capsys, words, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_text("x = 1")
    assert main(["run", "a.py", "--json", *words]) == 1
    assert json.loads(capsys.readouterr().out)["error"].startswith(says)


@pytest.mark.parametrize(
    ("states", "error", "number", "state", "status"),
    [
        ([], "", None, "FINISHED", 0),
        ([ev.FINISHED, ev.FINISHED], "", None, "FINISHED", 0),
        ([ev.FINISHED, ev.STOPPED], "", None, "STOPPED", 3),
        ([ev.STOPPED, ev.FAILED], "", None, "FAILED", 1),
        ([ev.LOST], "", None, "FAILED", 1),
        ([ev.FINISHED], "NameError: x", None, "FAILED", 1),
        ([ev.FAILED], "", signal.SIGINT, "STOPPED", 130),
    ],
)
def test_the_exit_status(states, error, number, state, status):
    runs = [stored.stored(each).record() for each in states if each != ev.LOST]
    for _ in range(states.count(ev.LOST)):
        folder = stored.stored()
        stored.kill_owner(folder)
        runs.append(folder.record())
    outcome = Outcome(runs, [], error, number)
    assert (outcome.state, outcome.status) == (state, status)


def test_the_runs_of_a_process_are_found_when_it_has_ended():
    ours, theirs, trial = stored.finished(name="ours"), stored.finished(name="theirs"), stored.finished(parent="s")
    dead = stored.dead_process()
    for folder in (ours, trial):
        stored.claim(folder, **dead)
    runs, searches = started_by({**owner.this_process(), **dead})
    assert [run.name for run in runs] == ["ours"] and searches == []
    assert "theirs" in [run.name for run in started_by(owner.this_process())[0]] and theirs.path.exists()
