"""`python -m ddl_magics`, on stored runs."""

import sys
import time

import pytest
from support.fake_cluster import epoch, training
from support.processes import completed
from support.stored import append, claim, dead_process, stored

from ddl_magics import store
from ddl_magics.__main__ import main
from ddl_magics.runtime import events as ev
from ddl_magics.store import RunFolder

pytestmark = pytest.mark.usefixtures("data_dir")


def trained(**fields):
    return stored(events=training(), **fields)


def test_runs_lists_name_state_progress_and_id(capsys):
    folder = trained(state=ev.FINISHED)
    folder.update({"progress": {"epoch": 2, "epochs": 2, "metrics": {"loss": 0.5, "accuracy": 0.75}}})
    assert main(["runs"]) == 0
    line = capsys.readouterr().out.splitlines()[1]
    words = ("digits", "FINISHED", "allreduce", "2/2", "loss 0.5, accuracy 0.75", folder.path.name)
    assert all(word in line for word in words)


def test_runs_without_any(capsys):
    assert main(["runs"]) == 0
    assert capsys.readouterr().out == "no runs yet\n"


def test_show_and_logs(capsys):
    trained(state=ev.FINISHED)
    assert main(["show", "digits"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("digits FINISHED") and "epoch 2/2  loss 0.5" in shown and "hello" not in shown
    assert main(["logs", "digits"]) == 0
    assert capsys.readouterr().out == "0 │ hello 0\n1 │ not the chief\n0 │ hello 1\n1 │ not the chief\n"
    assert main(["logs", "digits", "1"]) == 0
    assert capsys.readouterr().out == "not the chief\nnot the chief\n"


def test_clean_removes_what_is_not_kept(capsys):
    old, new = (trained(state=ev.FINISHED, name=name) for name in ("old", "new"))
    old.update({"created": 1.0, "ended": 2.0})
    assert main(["clean", "--keep-last", "1", "--dry-run"]) == 0
    listed, summary = capsys.readouterr().out.splitlines()
    assert listed.startswith("old  FINISHED  1970-01-01") and listed.endswith(old.path.name)
    assert summary.startswith("1 run with ") and "would be removed; 1 run with" in summary and old.path.exists()
    assert main(["clean", "--keep-last", "1"]) == 0
    assert not old.path.exists() and new.path.exists()
    assert capsys.readouterr().out.startswith("1 run with ")
    assert main(["clean", "--keep", "30s"]) == 1 and new.path.exists()
    assert capsys.readouterr().err == "--keep must be a time such as 12h, 30d, 8w, not '30s'.\n"
    assert main(["clean"]) == 1
    assert capsys.readouterr().err.startswith("say what to keep: ddl-magics clean [--keep 30d]")


def test_stop_leaves_a_request_for_the_owner_and_does_not_read_the_events(monkeypatch, capsys):
    """A long run has some hundred MB of them, and the panel waits for this process."""
    folder = trained()
    monkeypatch.setattr(RunFolder, "lines", None)
    assert main(["stop", "digits"]) == 0
    assert "stops after its current step" in capsys.readouterr().out and folder.requested("stop")
    assert main(["stop", "digts"]) == 1
    assert capsys.readouterr().err == "there is no run digts. Did you mean digits?\n"


def test_stop_of_a_run_whose_kernel_is_gone_or_that_ended_says_so(capsys):
    folder = trained()
    claim(folder, **dead_process())
    assert main(["stop", "digits"]) == 1
    assert capsys.readouterr().out.startswith("digits is LOST: its kernel is gone")
    assert not folder.requested("stop")
    trained(state=ev.FINISHED, name="ended")
    assert main(["stop", "ended"]) == 1
    assert capsys.readouterr().out == "ended has ended already: FINISHED.\n"


def test_as_a_process_it_is_fast_and_needs_no_tensorflow(tmp_path):
    folder = trained()
    begun = time.perf_counter()
    command = [sys.executable, "-X", "importtime", "-m", "ddl_magics", "stop", folder.path.name]
    answer = completed(command, timeout=60)
    assert store.RunFolder(folder.path).requested("stop")
    imported = {line.rpartition("|")[2].strip() for line in answer.stderr.splitlines()}
    assert not imported & {"tensorflow", "keras", "pyspark", "pandas", "ipywidgets", "plotly"}
    assert time.perf_counter() - begun < 20


def test_a_strangers_texts_do_not_steer_the_terminal(capsys):
    """Names of metrics, of the cluster and tracebacks of an imported run may be of any characters."""
    steering = "\x1b]0;title\x07\x1b[2J\x9b2J\u202e\r\x08\x7f"
    metrics = {steering: 0.5}
    failure = {"rank": 0, "kind": "error", "message": "x", "traceback": f"a\n{steering}b"}
    folder = trained(state=ev.FAILED)
    append(folder, [epoch(2, **metrics), ev.make("log", 0, stream="stdout", text=f"\x1b[31m{steering}")])
    folder.update({"cluster": steering, "failure": failure})
    folder.update({"progress": {"epoch": 2, "epochs": 2, "metrics": metrics}})
    for verb in (["runs"], ["show", "digits"]):
        assert main(verb) == 0
        printed = capsys.readouterr().out
        assert not set(steering) & set(printed) - set("]0;title[2J") and "\\x1b]0;title\\x07\\x1b[2J" in printed
    assert main(["logs", "digits"]) == 0
    printed = capsys.readouterr().out
    assert "\x1b[31m\\x1b]0;title\\x07\\x1b[2J\\x9b2J\\u202e" in printed, "colours, and nothing that steers"
