"""Runs on disk: what is written, who owns it, and what a reader makes of what is foreign or broken."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
from support.stored import claim, dead_process, stored
from support.until import until

from ddl_magics import store
from ddl_magics.runtime import events as ev
from ddl_magics.store import owner
from ddl_magics.store.files import move

pytestmark = pytest.mark.usefixtures("data_dir")


def test_a_run_reads_back():
    folder = stored(cell="x = 1")
    folder.update({"state": ev.FAILED, "failure": {"rank": 1}, "ended": 5.0})
    folder.label(["good", "baseline", "good"])
    folder.label(title="the one to beat")
    record = folder.record()
    assert (record.name, record.state, record.failure, record.ended) == ("digits", ev.FAILED, {"rank": 1}, 5.0)
    assert record.spec["cell"] == "x = 1" and record.labels == ("baseline", "good") and record.over
    assert record.title == "the one to beat"


def test_a_monitor_is_read_though_it_has_no_workers():
    folder = stored(strategy="monitor", workers=0, monitor={"log": "file:///log"})
    assert folder.record().spec["strategy"] == "monitor"
    assert [record.id for record in store.list_runs()] == [folder.path.name]
    assert stored(workers=0).record() is None


def test_a_run_of_010_reads_under_the_fields_of_today():
    folder = stored(prewarm=False)
    spec = json.loads((folder.path / "run.json").read_text())["spec"]
    change(folder, spec={**spec, "spare": spec.pop("prewarm")})
    spec = folder.record().spec
    assert spec["prewarm"] is False and "spare" not in spec


def test_events_keep_their_order_and_end_before_a_half_written_line():
    folder = stored()
    event = ev.make("log", 0, stream="stdout", text="ü\n")
    folder.append([{**event, "seq": 1}, {**event, "seq": 2}])
    folder.append([{**event, "seq": 3}])
    with open(folder.path / "events.jsonl", "a") as file:
        file.write('{"seq": 4, "te')
    assert [event["seq"] for event in folder.events()] == [1, 2, 3]
    assert folder.events_bytes() == (folder.path / "events.jsonl").stat().st_size
    none = store.RunFolder(folder.path / "none")
    assert list(none.events()) == [] and none.events_bytes() == 0


def test_a_run_whose_owner_died_reads_lost():
    folder = stored()
    assert folder.record().state == ev.RUNNING
    claim(folder, heartbeat=7.0, **dead_process())
    record = folder.record()
    assert (record.state, record.ended) == (ev.LOST, 7.0)
    assert json.loads((folder.path / "run.json").read_text())["state"] == ev.RUNNING, "readers write no state"


def test_a_pid_that_another_process_got_is_not_the_owner():
    folder = stored()
    claim(folder, start="another boot:1")
    assert folder.record().state == ev.LOST


def test_one_alone_takes_over_a_run_whose_owner_died():
    folder = stored()
    claim(folder, **dead_process())
    folder.request("stop")
    assert folder.take_over() == [] and not folder.requested("stop")
    assert folder.record().state == ev.RUNNING
    init = {"pid": 1, "start": owner.started(1)}
    claim(folder, **init)
    with pytest.raises(store.RunInUse):
        folder.take_over()


def test_a_run_is_discarded_when_it_has_ended():
    folder = stored()
    with pytest.raises(store.RunInUse):
        folder.discard()
    claim(folder, **dead_process())
    folder.discard()
    assert os.listdir(store.runs_folder()) == []


def test_a_run_that_ended_is_never_lost():
    folder = stored(state=ev.FINISHED)
    claim(folder, **dead_process())
    assert folder.record().state == ev.FINISHED


@pytest.mark.parametrize(("silence", "state"), [(1.0, ev.RUNNING), (owner.SILENCE_SECONDS + 1, ev.LOST)])
def test_an_owner_on_another_host_lives_by_its_heartbeat(silence, state):
    folder = stored()
    claim(folder, host="elsewhere")
    beaten = time.time() - silence
    os.utime(folder.path / "owner.json", (beaten, beaten))
    assert folder.record().state == state


@pytest.mark.parametrize("ahead", [3600, -3600])
def test_clocks_of_hosts_may_differ(monkeypatch, ahead):
    """The file server dates heartbeats."""
    folder = stored()
    claim(folder, host="elsewhere")
    real = time.time
    monkeypatch.setattr(owner, "_clocks", {})
    monkeypatch.setattr(time, "monotonic", lambda: owner.CLOCK_SECONDS / 2)  # of a host that was just booted
    monkeypatch.setattr(time, "time", lambda: real() + ahead)
    assert folder.record().state == ev.RUNNING
    assert list(owner._clocks) == [folder.path.parent], "it is not asked each time"


def test_an_owner_whose_run_was_taken_over_writes_no_heartbeat():
    folder = stored()
    claim(folder, host="elsewhere")
    with pytest.raises(store.RunInUse, match="is followed by another process"):
        folder.heartbeat()
    assert json.loads((folder.path / "owner.json").read_text())["host"] == "elsewhere"


def test_no_damaged_number_is_one_to_send_a_signal_to(monkeypatch):
    """As an argument of kill, 0 is all of this process' group."""
    monkeypatch.setattr(owner, "started", lambda pid: None)  # a system that does not tell
    assert [owner.number_of({"pid": pid}) for pid in (-1, 0, 1, 2**31 - 1, 2**31, True, "5")] == [
        *(None, None, 1, 2**31 - 1, None, None, None)
    ]


def test_a_zombie_is_dead():
    child = subprocess.Popen([sys.executable, "-c", ""])
    until(lambda: owner.started(child.pid) is None, 10)
    child.wait()


def test_no_settings_that_look_secret_are_written():
    conf = {"spark.hadoop.fs.s3a.secret.key": "hunter2", "my.PassWord": "hunter2", "spark.executor.memory": "2g"}
    folder = stored(conf=conf)
    folder.update({"state": ev.FINISHED})
    assert "hunter2" not in "".join(path.read_text() for path in folder.path.rglob("*") if path.is_file())
    assert folder.record().spec["conf"]["spark.executor.memory"] == "2g"


def test_others_cannot_read_a_run():
    folder = stored()
    assert folder.path.stat().st_mode & 0o077 == 0


def test_requests_are_files():
    folder = stored()
    assert not folder.requested("stop")
    store.RunFolder(folder.path).request("stop")
    assert folder.requested("stop")


def test_runs_are_found_by_id_by_name_and_by_the_beginning_of_an_id():
    older, newer = stored(created=1.0), stored(created=2.0)
    other = stored(name="other")
    assert store.find_run(older.path.name).folder == older.path
    assert store.find_run("digits").folder == newer.path
    assert store.find_run(other.path.name[:-1]).folder == other.path
    assert store.find_run("2") is None, "more than one begins so"
    assert store.find_run("../../etc") is None and store.find_run("") is None


@pytest.mark.parametrize("name", ["../run.json", "a/b", "", ".hidden"])
def test_an_artifact_cannot_leave_its_folder(name):
    with pytest.raises(ValueError, match="not a name of an artifact"):
        stored().file(name)


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    store.write_atomically(path, [b"old"])

    monkeypatch.setattr(os, "replace", Mock(side_effect=OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        store.write_atomically(path, [b"new"])
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["a.json"]


@pytest.fixture
def synced(monkeypatch):
    """What is done to files, in order: ("sync" or "rename", the file's name)."""
    done, fsync, replace = [], os.fsync, os.replace

    def name(descriptor):
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        return os.path.basename(path).lstrip(".").partition(".json")[0]

    monkeypatch.setattr(os, "fsync", lambda file: (done.append(("sync", name(file))), fsync(file)))
    monkeypatch.setattr(os, "replace", lambda old, new: (done.append(("rename", Path(new).name)), replace(old, new)))
    return done


def test_what_a_run_promises_is_on_the_disk_before_it_has_its_name(synced):
    folder = stored()
    run = folder.path.name
    record = [("sync", "run"), ("rename", "run.json"), ("sync", run)]
    assert synced == [("rename", "owner.json"), *record, ("sync", "runs")], "a heartbeat is no promise"
    synced.clear()
    folder.update({"state": ev.FINISHED})
    assert synced == record
    synced.clear()
    folder.append([{"seq": 1, "kind": "log"}])
    folder.heartbeat()
    assert synced == [("rename", "owner.json")], "events are not waited for, until the last"
    folder.append([{"seq": 2, "kind": "state", "state": ev.FINISHED}])
    assert synced[1:] == [("sync", "events")]
    synced.clear()
    folder.rewrite(["{}"])
    assert [what for what, _ in synced] == ["sync", "rename", "sync"]


def test_a_fetched_model_is_on_the_disk_before_the_driver_forgets_it(synced, tmp_path):
    arrived, path = tmp_path / "model.part", tmp_path / "model.keras"
    arrived.write_bytes(b"x")
    move(arrived, path)
    assert synced == [("sync", "model.part"), ("rename", "model.keras"), ("sync", tmp_path.name)]
    assert path.read_bytes() == b"x"


def test_a_thousand_runs_are_listed_fast():
    for number in range(1000):
        folder = store.runs_folder() / f"run-{number}"
        folder.mkdir(parents=True)
        record = {"format": 1, "id": folder.name, "name": "n", "created": number, "spec": {"cell": "x" * 4000}}
        (folder / "run.json").write_text(json.dumps({**record, "state": ev.RUNNING}))
        (folder / "owner.json").write_text(json.dumps(owner.this_process()))
    begun = time.process_time()
    records = store.list_runs()
    seconds = time.process_time() - begun
    assert [record.created for record in records[:2]] == [999, 998] and records[0].state == ev.RUNNING
    assert seconds < 1.0, f"{seconds:.2f} s"


def change(folder, **fields):
    record = json.loads((folder.path / "run.json").read_text())
    (folder.path / "run.json").write_text(json.dumps({**record, **fields}))


def test_a_damaged_line_is_left_out_and_only_that():
    folder = stored()
    event = ev.make("notice", -1, level="info", message="a")
    folder.append([{**event, "seq": 1}])
    with open(folder.path / "events.jsonl", "ab") as file:
        file.write(b"[" * 100_000 + b"\n\xff\n" + json.dumps({**event, "seq": 2, "time": "now"}).encode() + b"\n")
    folder.append([{**event, "seq": 4, "message": "\ud800"}])
    assert [event["seq"] for event in folder.events()] == [1, 4]
    assert [event and event["seq"] for event in folder.lines()] == [1, None, None, None, 4]
    assert [event["seq"] for event in folder.intact_events()] == [1], "the driver has the others"
    assert list(folder.events())[1]["message"] == "?"


@pytest.mark.parametrize(
    "fields",
    [
        {"format": 2},
        {"state": "DANCING"},
        {"created": "soon"},
        {"spec": []},
        {"spec": {"workers": "two"}},
        {"spec": {"workers": 0}},
        {"spec": {"features": 5}},
        {"created": 1e300},
        {"created": True},
        {"name": ["a"]},
        {"failure": 3},
        {"cell_files": 1},
        {"environment": [["a", "b"]]},
        {"state": []},
    ],
    ids=str,
)
def test_a_record_with_values_of_other_types_is_unreadable(fields):
    folder, other = stored(), stored()
    change(folder, **fields)
    (store.runs_folder() / "notes.txt").write_text("mine")
    (store.runs_folder() / "empty").mkdir()
    for text in ('{"format": 1, "id"', "[1]", "\x00\x01"):
        (stored().path / "run.json").write_text(text)
    assert folder.record() is None
    assert [record.id for record in store.list_runs()] == [other.path.name]


def test_what_a_view_can_do_without_is_left_out():
    folder = stored(state=ev.FAILED)
    metrics = {"loss": 1.0, "text": "x", "huge": 10**400}
    change(
        folder, ended="x", progress={"epoch": "2", "epochs": 2, "metrics": metrics}, failure={"rank": "x", "host": "h"}
    )
    record = folder.record()
    assert (record.ended, record.failure) == (None, {"host": "h"})
    assert record.progress == {"epochs": 2, "metrics": {"loss": 1.0}}


def test_surrogates_that_json_cannot_take_back_are_replaced():
    """Python's names of files that are no UTF-8 have some; what is written elsewhere must be UTF-8."""
    folder = stored()
    change(folder, failure={"message": "no file caf\udce9"})
    assert folder.record().failure == {"message": "no file caf?"}
    folder.update({"ended": 5.0})
    assert b"udce9" not in (folder.path / "run.json").read_bytes()


def test_a_damaged_owner_makes_a_run_lost_and_not_unreadable():
    folder = stored()
    for pid, heartbeat in ((float("inf"), []), ("x", "y")):
        (folder.path / "owner.json").write_text(json.dumps({"pid": pid, "heartbeat": heartbeat}))
        assert (folder.record().state, folder.record().ended) == (ev.LOST, None)
