"""A run's life in the notebook, against a cluster that replays events: what a real one cannot be brought to at will."""

import errno
import io
import json
import math
import pickle
import threading
import time
from unittest.mock import Mock

import numpy as np
import pytest
from IPython.core.error import UsageError
from support.fake_cluster import FakeCluster, epoch, notices, state, steps, training
from support.until import until

from ddl_magics import store
from ddl_magics.clusters.base import LockedOut, Postponed, Refused, Unreachable
from ddl_magics.dashboard.charts import history_of
from ddl_magics.errors import DistributedCellError, RunInterrupted
from ddl_magics.options.parsing import parse
from ddl_magics.runs import follower, run_text, tables, transfer
from ddl_magics.runs import run as run_module
from ddl_magics.runs.run import Run
from ddl_magics.runtime import events as ev
from ddl_magics.session.session import Session
from ddl_magics.session.waiting import wait_in_cell
from ddl_magics.store import owner


@pytest.fixture(autouse=True)
def quick(data_dir, monkeypatch):
    monkeypatch.setattr(follower, "TURN_SECONDS", 0.01)
    monkeypatch.setattr(follower, "IDLE_POLL_SECONDS", 0.02)


def submit(cluster, line="--name digits", namespace=None, session=None):
    session = session or Session(cluster)
    return session.submit(parse(line), {} if namespace is None else namespace)


def running(run):
    until(lambda: run.state == ev.RUNNING, 10)
    return run


def failing(**failure):
    cause = {"rank": 1, "host": "wn3", "kind": "error", "message": "ValueError: bad", "traceback": "", **failure}
    return [*list(training())[:10], state(ev.FAILED, "rank 1 failed", failure=cause)]


def test_a_name_that_a_history_has_not_is_an_error_of_one_line():
    empty, some = tables.EpochHistory(), tables.EpochHistory(loss=[1.0])
    assert empty == {} and some == {"loss": [1.0]} and type(pickle.loads(pickle.dumps(some))) is dict
    with pytest.raises(KeyError) as error:
        empty["loss"]
    assert str(error.value) == "there is no history: the run has completed no epoch so far, or ended before it did"
    with pytest.raises(KeyError, match=r"^the history has no los\. Did you mean loss\?$"):
        some["los"]


def test_a_run_that_goes_well():
    cluster = FakeCluster()
    run = submit(cluster).wait(10)
    assert run.state == ev.FINISHED
    assert run.history == {"loss": [1.0, 0.5], "accuracy": [0.5, 0.6]}
    assert run.result == {"answer": 42}
    assert repr(run) == "<Run digits FINISHED: 2 epochs, loss 0.5, accuracy 0.6>"
    assert cluster.released == [run.id]


def test_the_versions_on_the_cluster_are_stored_as_the_chief_tells_them():
    def loaded(rank, **versions):
        facts = {"host": "h", "pid": 1, "device": "CPU", "state": "running"}
        return ev.make("worker", rank, **facts, versions=versions)

    before, *rest = training()
    run = submit(FakeCluster([before, loaded(0, tensorflow="2.13.1"), loaded(1, tensorflow="2.15.0"), *rest])).wait(10)
    assert store.find_run(run.id).versions == {"tensorflow": "2.13.1"}


def test_what_the_cluster_has_written_is_not_fetched_and_its_uri_is_in_the_error():
    def written(name):
        return ev.make("artifact", 0, name=name, size=5, sha256="", uri=f"hdfs://nn/m/{name}")

    script = [*list(training())[:-1], written("model-0.keras"), written("weights-0.npz"), state(ev.FINISHED, "done")]
    run = submit(FakeCluster(script), "--name digits --out hdfs:///m").wait(10)
    assert run.spec.to_record()["out"] == "hdfs:///m"
    for ask in (run.model, run.weights, lambda: run.save_model("m.keras")):
        with pytest.raises(LookupError, match="is not on this machine: --out has written it to hdfs://nn/m") as caught:
            ask()
        assert "\n" not in str(caught.value)
    assert not list(run._folder.file("x").parent.iterdir())


def test_the_driver_gets_the_spec_with_a_seed_and_an_id():
    cluster = FakeCluster()
    run = submit(cluster, "--workers 2 --seed 7").wait(10)
    assert cluster.launched[run.id].seed == 7 and run.name == "run_1"
    assert 0 <= submit(cluster).spec.seed < 2**31


def test_events_are_stored_in_order_without_gaps():
    run = submit(FakeCluster()).wait(10)
    record = store.find_run("digits")
    assert record.state == ev.FINISHED and record.ended
    begun = next(event["time"] for event in run.events if event["kind"] == "fit")
    done = {"epoch": 2, "epochs": 2, "steps": 10, "begun": begun}
    assert record.progress == {**done, "metrics": {"loss": 0.5, "accuracy": 0.6}}
    stored = list(store.RunFolder(record.folder).events())
    assert stored == run.events
    assert [event["seq"] for event in stored] == list(range(1, len(stored) + 1))


def test_an_event_of_the_notebook_costs_none_of_the_drivers():
    """It takes a number of the run: the driver's have others then, and are asked for by the driver's own."""
    cluster = FakeCluster(visible=4)
    run = submit(cluster)
    until(lambda: len(run.events) == 4, 10)
    for number in range(2):
        run._follower._emit("notice", level="info", message=f"of the notebook {number}")
    cluster.visible = len(cluster.script)
    run.wait(10)
    kinds = [event["kind"] for event in cluster.script]
    assert [event["kind"] for event in run.events] == [*kinds[:4], "notice", "notice", *kinds[4:]]
    assert [event["seq"] for event in run.events] == list(range(1, len(kinds) + 3))


def test_a_stored_run_reads_as_the_live_one_did():
    live = submit(FakeCluster(artifacts={}, script=training(3))).wait(10)
    again = Run.stored(store.find_run(live.id))
    assert (again.state, again.history, again.result) == (live.state, live.history, live.result)
    assert again.spec.seed == live.spec.seed


def test_metrics_and_workers_are_tables():
    run = submit(FakeCluster()).wait(10)
    metrics = run.metrics
    assert list(metrics.columns) == list(tables.METRIC_COLUMNS)
    of_steps = metrics[metrics.step.notna() & (metrics["name"] == "loss")]
    assert list(of_steps["rank"]) == [0, 1, 0, 1] and list(of_steps.step) == [9, 9, 9, 9]
    assert list(metrics[metrics.step.isna() & (metrics["name"] == "accuracy")].value) == [0.5, 0.6]
    workers = run.workers.set_index("rank")
    assert list(workers.host) == ["host0", "host1"] and list(workers["samples/s"]) == [320.0, 320.0]
    assert (workers["from"] >= 0).all() and (workers["until"] >= workers["from"]).all()


def test_tables_of_nothing_have_their_columns():
    assert list(tables.metrics([]).columns) == list(tables.METRIC_COLUMNS)
    assert list(tables.workers([]).columns) == list(tables.WORKER_COLUMNS)
    assert tables.histories([]) == [] and tables.logs([]) == ""


def test_histories_take_the_later_attempt_and_missing_values_as_nan():
    events = [
        epoch(0, loss=3.0),
        epoch(1, loss=2.0),
        {**epoch(1, loss=None), "attempt": 2},
        {**epoch(0, a=1.0), "fit": 1},
    ]
    first, second = tables.histories(events)
    assert first["loss"][0] == 3.0 and math.isnan(first["loss"][1]) and second == {"a": [1.0]}


def test_a_loop_has_the_history_that_rank_0_has_logged():
    def logged(rank, **metrics):
        return {**epoch(0, **metrics), "kind": "values", "rank": rank}

    begun = {"kind": "fit", "rank": 0, "fit": 1, "epochs": 0}
    one_fit = [logged(0, before=1.0), {**BEGUN, "fit": 0, "epochs": 1}, epoch(0, loss=3.0), logged(0, after=1.0)]
    assert tables.histories(one_fit) == [{"loss": [3.0]}]
    silent = [*one_fit, begun, logged(1, loss=7.0)]
    assert tables.histories(silent)[1:] == [{}] and tables.last_history(silent) == {"loss": [3.0]}
    repeated = [*silent, logged(0, loss=2.0), begun, logged(0, loss=2.5), logged(1, loss=7.0), logged(0, loss=1.5)]
    assert tables.last_history(repeated) == {"loss": [2.5, 1.5]}


def test_samples_a_second_are_those_of_the_live_view():
    worker = {"host": "a", "pid": 1, "device": "CPU", "state": "training"}
    events = [*(ev.make("worker", rank, **worker) for rank in (0, 1)), steps(0, 0, rows=10, seconds=100.0)]
    events.append(steps(0, 1, rows=600, seconds=6.0))
    rate, unknown = tables.workers(events)["samples/s"]
    assert rate == history_of(events).workers[0].rate and 1 < rate < 100, "the newest seconds count most"
    assert math.isnan(unknown)


BEGUN = ev.make("state", ev.JOB, state=ev.WAITING, message="")


def test_a_worker_is_there_from_its_first_to_its_last_sign():
    events = [{**event, "time": 100.0 + at} for at, event in enumerate([BEGUN, worker(1), worker(0)])]
    events += [{**steps(0, 1), "time": 105.0}, {**BEGUN, "time": 106.0}]
    rows = tables.workers(events)[["rank", "from", "until", "state"]]
    assert rows.values.tolist() == [[0, 2.0, 5.0, "training"], [1, 1.0, 1.0, "training"]]


def test_where_workers_come_and_go_each_is_there_while_it_trains():
    moments = [(0, [BEGUN, worker(0), worker(1)]), (1, [group(0, 1)]), (4, [group(0)]), (5, [worker(2)])]
    moments += [(6, [group(0, 2)]), (7, [worker(3)]), (8, [steps(0, 1), worker(1), worker(2)])]
    events = [{**event, "time": 100.0 + at} for at, happened in moments for event in happened]
    rows = tables.workers(events)[["from", "until", "state"]]
    of_one_that_came_too_late = [7.0, 7.0, "training"]
    assert rows.values.tolist() == [
        [1.0, 8.0, "training"],
        [1.0, 4.0, "left"],
        [6.0, 8.0, "training"],
        of_one_that_came_too_late,
    ]


def worker(rank):
    return ev.make("worker", rank, host="a", pid=1, device="CPU", state="training")


def group(*members):
    return ev.make("group", ev.JOB, members=list(members))


def test_the_failure_is_raised_with_rank_host_and_traceback_and_the_history_stays():
    run = submit(FakeCluster(failing(traceback='Traceback\n  File "<cell>", line 3\nValueError: bad')))
    with pytest.raises(DistributedCellError) as caught:
        run.wait(10)
    error = caught.value
    assert (error.rank, error.host, error.kind, error.message) == (1, "wn3", "error", "ValueError: bad")
    assert str(error) == f"{error.where}: ValueError: bad" and error.where == "digits, rank 1 on wn3"
    shown = "\n".join(error._render_traceback_())
    assert 'File "<cell>", line 3' in shown and "follower" not in shown
    assert run.history["loss"] == [1.0]
    for read in (lambda: run.result, run.model, run.weights):
        with pytest.raises(DistributedCellError):
            read()


def test_waiting_is_bounded():
    cluster = FakeCluster(visible=2)
    run = submit(cluster)
    with pytest.raises(TimeoutError, match=r"digits is RUNNING after 0.2 s and continues: .*digits.stop\(\)"):
        run.wait(0.2)
    assert run.stop(10).state == ev.STOPPED
    assert run.wait(0) is run, "a run that was stopped has not failed"


def test_a_stop_request_of_another_process_is_heard():
    cluster = FakeCluster(visible=2)
    run = submit(cluster)
    Run.stored(store.find_run(run.id)).request_stop()
    run.wait(10)
    assert run.state == ev.STOPPED and cluster.stopped == [run.id]


def test_a_run_says_why_it_was_stopped():
    pruned = "pruned after epoch 1: score 0.1 was not among the best third of the trials"
    end = state(ev.STOPPED, f"stopped: {pruned}; the model and its history are kept")
    run = submit(FakeCluster([*list(training())[:-1], end])).wait(10)
    assert run.reason == pruned and pruned in repr(run)
    assert Run.stored(store.find_run(run.id)).reason == pruned


def test_the_notebook_stops_a_run_whose_driver_forgot_its_timeout(monkeypatch):
    monkeypatch.setattr(follower, "TIMEOUT_GRACE_SECONDS", 0.0)
    cluster = FakeCluster(visible=2)
    assert submit(cluster, "--timeout 0.1").wait(10).state == ev.STOPPED


def test_artifacts_come_before_the_run_is_forgotten(tmp_path):
    arrays = [np.arange(6.0).reshape(2, 3), np.ones(3)]
    weights = io.BytesIO()
    np.savez(weights, *arrays)
    result = io.BytesIO()
    np.save(result, np.arange(1000))
    files = {"weights-0.npz": weights.getvalue(), "model-0.keras": b"k" * 2500, "result.npy": result.getvalue()}
    announced = [ev.make("artifact", 0, name=name, size=len(data), sha256="") for name, data in files.items()]
    made = ev.make("result", 0, encoding="npy", artifact="result.npy")
    cluster = FakeCluster([*announced, made, state(ev.FINISHED)], artifacts=files)
    run = submit(cluster)
    for there, sent in zip(run.weights(), arrays, strict=True):
        np.testing.assert_array_equal(there, sent)
    np.testing.assert_array_equal(run.result, np.arange(1000))
    assert run.save_model(tmp_path / "m.keras").read_bytes() == files["model-0.keras"]
    assert cluster.released == [run.id]
    with pytest.raises(LookupError, match="has 1 model: no index 3"):
        run.save_model(tmp_path / "m.keras", index=3)
    with pytest.raises(ValueError, match=r"must end in .keras"):
        run.save_model(tmp_path / "m.h5")


def test_an_ensemble_has_models_and_histories_of_every_rank(tmp_path, monkeypatch):
    files = {"model-0.keras": b"first", "rank-1-model-0.keras": b"second"}
    script = [
        ev.make("fit", 0, fit=0, model="m", epochs=1, steps=1),
        epoch(0, loss=3.0),
        ev.make("member", 1, fit=0, epoch=0, metrics={"loss": 2.0}),
        *(ev.make("artifact", 0, name=name, size=len(data), sha256="") for name, data in files.items()),
        state(ev.FINISHED),
    ]
    run = submit(FakeCluster(script, artifacts=files), "--name digits --strategy ensemble --workers 2")
    assert run.save_model(tmp_path / "m.keras", rank=1).read_bytes() == b"second"
    assert run.save_model(tmp_path / "m.keras").read_bytes() == b"first"
    monkeypatch.setattr(run_module, "load_model", lambda path, _=None: path.read_bytes())
    assert run.models() == [b"first", b"second"]
    assert run.member_histories == [{"loss": [3.0]}, {"loss": [2.0]}] and run.history == {"loss": [3.0]}
    assert set(zip(run.metrics["rank"], run.metrics["value"], strict=True)) == {(0, 3.0), (1, 2.0)}
    assert "loss of rank 1" in history_of(run.events).metrics()


@pytest.mark.parametrize(("seconds", "parts"), [(0.0, [1000, 2000, 2500]), (60.0, [])])
def test_the_progress_of_a_transfer_is_sent_to_the_views_and_not_stored(monkeypatch, seconds, parts):
    monkeypatch.setattr(transfer, "REPORT_SECONDS", seconds)
    artifact = ev.make("artifact", 0, name="model-0.keras", size=2500, sha256="")
    cluster = FakeCluster([artifact, state(ev.FINISHED)], artifacts={"model-0.keras": b"k" * 2500}, visible=0)
    run = submit(cluster)
    seen = []
    run.listen(seen.extend)
    cluster.visible = 2
    run.wait(10)
    transfers = [event for event in seen if event["kind"] == "transfer"]
    assert [(event["name"], event["done"], event["size"]) for event in transfers] == [
        ("model-0.keras", done, 2500) for done in parts
    ]
    assert [event["seq"] for event in seen if event not in transfers] == [1, 2], "the others come once and in order"
    assert [event["kind"] for event in run.events] == ["artifact", "state"]
    assert [event["kind"] for event in run._folder.events()] == ["artifact", "state"]


def test_an_artifact_with_a_wrong_checksum_is_not_kept(tmp_path, monkeypatch):
    artifact = ev.make("artifact", 0, name="model-0.keras", size=3, sha256="")
    cluster = FakeCluster([artifact, state(ev.FINISHED)], artifacts={"model-0.keras": b"abc"})
    fetch = cluster._fetch
    monkeypatch.setattr(cluster, "_fetch", lambda request: {**fetch(request), "sha256": "0" * 64})
    with pytest.raises(LookupError, match=r"model-0.keras could not be fetched: its checksum is wrong"):
        submit(cluster).save_model(tmp_path / "m.keras")


@pytest.mark.parametrize(
    "problem", [ConnectionError("503"), TimeoutError("busy"), OSError(errno.ENOSPC, "No space left on device")]
)
def test_a_model_is_fetched_once_the_cluster_answers_or_there_is_room(tmp_path, monkeypatch, problem):
    artifact = ev.make("artifact", 0, name="model-0.keras", size=3, sha256="")
    cluster = FakeCluster([artifact, state(ev.FINISHED)], artifacts={"model-0.keras": b"abc"})
    fetch, tried = cluster._fetch, []

    def fails_thrice(request):
        tried.append(request)
        if len(tried) <= 3:
            raise problem
        return fetch(request)

    monkeypatch.setattr(cluster, "_fetch", fails_thrice)
    run = submit(cluster).wait(10)
    assert run.save_model(tmp_path / "m.keras").read_bytes() == b"abc" and cluster.released == [run.id]
    (notice,) = (event["message"] for event in run.events if event["kind"] == "notice")
    assert notice == f"model-0.keras comes later, still trying: {type(problem).__name__}: {problem}"


def test_a_model_that_cannot_be_fetched_stays_with_the_driver(tmp_path, monkeypatch):
    monkeypatch.setattr(follower, "LOST_SECONDS", 0.1)
    artifact = ev.make("artifact", 0, name="model-0.keras", size=3, sha256="")
    cluster = FakeCluster([artifact, state(ev.FINISHED)])

    monkeypatch.setattr(cluster, "_fetch", Mock(side_effect=ConnectionError("503")))
    with pytest.raises(LookupError, match=r"model-0.keras could not be fetched: ConnectionError: 503"):
        submit(cluster).save_model(tmp_path / "m.keras")
    assert cluster.released == []


def test_a_run_without_a_model_says_so():
    with pytest.raises(LookupError, match="digits has no model: none was fitted in the cell"):
        submit(FakeCluster()).model()


def test_a_driver_that_is_gone_loses_the_run():
    cluster = FakeCluster(visible=4)
    run = running(submit(cluster))
    cluster.broken = ProcessLookupError("the session has ended")
    with pytest.raises(DistributedCellError, match="lost: the session has ended") as caught:
        run.wait(10)
    assert run.state == ev.LOST and caught.value.kind == "lost"
    assert store.find_run(run.id).state == ev.LOST


def test_a_driver_that_does_not_answer_for_a_while_is_waited_for(monkeypatch):
    cluster = FakeCluster(visible=4)
    run = running(submit(cluster))
    cluster.broken = ConnectionError("503")
    time.sleep(0.2)  # many polls
    assert run.state == ev.RUNNING
    cluster.broken, cluster.visible = None, 100
    assert run.wait(10).state == ev.FINISHED
    monkeypatch.setattr(follower, "LOST_SECONDS", 0.1)
    cluster.visible = 4
    run = running(submit(cluster))
    cluster.broken = ConnectionError("503")
    with pytest.raises(DistributedCellError, match="lost: no answer for 0 s: 503"):
        run.wait(10)


def test_a_run_is_not_lost_while_the_notebook_has_no_ticket(monkeypatch):
    monkeypatch.setattr(follower, "LOST_SECONDS", 0.1)
    cluster = FakeCluster(visible=4)
    run = running(submit(cluster))
    cluster.broken = LockedOut("the ticket has expired: run kinit")
    time.sleep(0.5)
    assert run.state == ev.RUNNING
    assert notices(run) == ["the ticket has expired: run kinit. The run waits for that, and does not fail meanwhile"]
    cluster.broken, cluster.visible = None, 100
    assert run.wait(10).state == ev.FINISHED and notices(run)[1] == "the cluster answers again"


def test_a_run_waits_in_the_queue_while_the_notebook_has_no_ticket(monkeypatch):
    monkeypatch.setattr(follower, "LOST_SECONDS", 0.1)
    monkeypatch.setattr(follower, "LAUNCH_SECONDS", 0.1)
    cluster = FakeCluster()
    ready, locked = cluster.status(), Unreachable("no ticket: run kinit", locked_out=True)
    monkeypatch.setattr(cluster, "status", lambda: locked)
    run = submit(cluster)
    time.sleep(0.5)
    assert run.state == ev.QUEUED and notices(run)[0].startswith("no ticket: run kinit. The run waits")
    monkeypatch.setattr(cluster, "status", lambda: ready)
    assert run.wait(10).state == ev.FINISHED


def test_a_run_that_the_notebook_fails_to_follow_is_ended(monkeypatch):
    cluster = FakeCluster(visible=4)
    run = running(submit(cluster))
    cluster.broken = MemoryError()
    monkeypatch.setattr(cluster, "stop", lambda run, reason: cluster.stopped.append(run))
    with pytest.raises(DistributedCellError, match=r"could not follow the run \(MemoryError"):
        run.wait(10)
    until(lambda: cluster.stopped == [run.id], 5)


def test_a_driver_that_does_not_know_the_run_loses_it(monkeypatch):
    cluster = FakeCluster()
    monkeypatch.setattr(cluster, "_poll", lambda r: {"events": [], "last": 0, "more": False, "state": "LOST"})
    with pytest.raises(DistributedCellError, match="does not know"):
        submit(cluster).wait(10)


def test_a_view_that_raises_does_not_harm_the_run_and_is_logged_once(caplog):
    cluster = FakeCluster()
    run = submit(cluster)

    received = []
    run.listen(Mock(side_effect=RuntimeError))
    run.listen(received.extend)
    run.wait(10)
    assert received == run.events
    assert [record.message for record in caplog.records] == [
        f"a view of run {run.id} raised an error and is no longer updated"
    ]


def test_a_full_disk_does_not_end_the_training(monkeypatch, caplog):
    monkeypatch.setattr(owner, "HEARTBEAT_SECONDS", 0.2)
    cluster = FakeCluster(visible=4)
    run = running(submit(cluster))

    until(lambda: store.find_run(run.id).state == "RUNNING", 10)

    full = Mock(side_effect=OSError(28, "No space left on device"))
    with monkeypatch.context() as patch:
        patch.setattr(store.RunFolder, "append", full)
        patch.setattr(store.run_folder, "write_atomically", full)
        cluster.visible = 100
        assert run.wait(10).history["loss"] == [1.0, 0.5]
        assert store.find_run(run.id).state == "RUNNING"
    folder = store.RunFolder(store.find_run(run.id).folder)
    until(lambda: len(caplog.records) == 2, 10)
    assert folder.record().state == "FINISHED"
    assert [*folder.events()] == run.events, "what could not be written is there as soon as there is room"
    assert [record.message for record in caplog.records] == [
        f"run {run.id} cannot be stored, and continues; this is tried again: [Errno 28] No space left on device",
        f"run {run.id} is stored again, with all its events",
    ]


def test_a_run_that_another_process_has_taken_over_is_stored_by_that_alone(monkeypatch, caplog):
    monkeypatch.setattr(owner, "HEARTBEAT_SECONDS", 0.05)
    cluster = FakeCluster(visible=4)
    run = running(submit(cluster))
    until(lambda: store.find_run(run.id).state == "RUNNING", 10)
    folder = store.find_run(run.id).folder
    with store.RunFolder(folder)._locked():
        (folder / "owner.json").write_text(json.dumps({**owner.this_process(), "pid": 1, "start": owner.started(1)}))
    until(lambda: caplog.records, 10)
    cluster.visible = 100
    assert run.wait(10).history["loss"] == [1.0, 0.5]
    assert len([*store.RunFolder(folder).events()]) < len(run.events)
    assert [record.message for record in caplog.records] == [
        f"run {run.id} is followed by another process, which stores it now: this kernel only shows it"
    ]


def test_a_folder_that_cannot_be_written_is_one_line(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "file"))
    with pytest.raises(UsageError, match=r"runs cannot be stored \(.*\): set JUPYTER_DATA_DIR"):
        submit(FakeCluster())


def test_listeners_get_every_event_once_however_late_they_come():
    run = submit(FakeCluster()).wait(10)
    received = []
    run.listen(received.extend)
    assert received == run.events


def test_a_second_run_waits_for_its_turn_and_sees_the_names_as_they_were():
    cluster = FakeCluster(slots=2, visible=2)
    session, names = Session(cluster), {"x": 1}
    first = submit(cluster, "--name first", names, session)
    second = submit(cluster, "--name second", names, session)
    third = submit(cluster, "--name third --workers 1", names, session)
    names["x"] = 2
    running(first)
    assert (first.state, second.state, third.state) == (ev.RUNNING, ev.QUEUED, ev.QUEUED)
    assert second.events[-1]["message"] == store.find_run(second.id).message
    assert second.events[-1]["message"] == "waits for 2 slots; before it: first. %ddl stop first ends it"
    waits = "waits for 1 slot; before it: first, second. %ddl stop first ends the first of them"
    assert third.events[-1]["message"] == waits
    cluster.visible = 100
    assert third.wait(10).state == second.wait(10).state == ev.FINISHED
    assert list(cluster.launched) == [first.id, second.id, third.id], "first come, first served"
    assert cluster.namespaces[second.id]["x"] == 1
    assert [event["seq"] for event in second.events] == list(range(1, len(second.events) + 1))


def test_a_queued_run_can_be_stopped_and_lets_the_next_one_pass():
    cluster = FakeCluster(slots=2, visible=2)
    session = Session(cluster)
    first, second = (submit(cluster, f"--name {name}", session=session) for name in ("first", "second"))
    assert second.stop(10).state == ev.STOPPED and second.id not in cluster.launched
    third = submit(cluster, "--name third", session=session)
    cluster.visible = 100
    assert third.wait(10).state == first.wait(10).state == ev.FINISHED


def test_a_queued_run_that_cannot_be_any_more_fails():
    cluster = FakeCluster(slots=2, visible=2)
    session = Session(cluster)
    submit(cluster, "--name first", session=session)
    second = submit(cluster, "--name second", session=session)
    cluster.refuse = Refused("slots", "2 workers do not fit into 1 slots")
    with pytest.raises(DistributedCellError, match="second: 2 workers do not fit into 1 slots"):
        second.wait(10)


def test_a_refused_run_leaves_nothing_behind():
    cluster = FakeCluster()
    cluster.refuse = Refused("usage", "train_df has no column lable. Did you mean label?")
    with pytest.raises(UsageError, match="Did you mean label"):
        submit(cluster)
    assert store.list_runs() == []
    cluster.refuse = None
    cluster.launch = lambda spec, namespace: Refused("usage", "no such name")
    with pytest.raises(UsageError, match="no such name"):
        submit(cluster)
    assert store.list_runs() == []


def test_a_refusal_that_takes_long_fails_the_run(monkeypatch):
    monkeypatch.setattr(follower, "LAUNCH_SECONDS", 0.05)
    cluster = FakeCluster()

    def launch(spec, namespace):
        time.sleep(0.3)
        return Refused("usage", "train_df has no rows")

    cluster.launch = launch
    run = submit(cluster)
    with pytest.raises(DistributedCellError, match="digits: train_df has no rows"):
        run.wait(10)
    assert store.find_run(run.id).failure["message"] == "train_df has no rows"


@pytest.mark.parametrize("stops", [False, True])
def test_a_run_waits_for_a_session_that_executes_another_cell(monkeypatch, stops):
    monkeypatch.setattr(follower, "TURN_SECONDS", 0.02)
    cluster = FakeCluster()
    launch, answers = cluster.launch, [Postponed("waits for session 7, which executes another cell")] * 3
    cluster.launch = lambda spec, namespace: answers.pop() if answers else launch(spec, namespace)
    if stops:
        cluster.launch = lambda spec, namespace: answers[0]
    run = submit(cluster)
    if stops:
        run.stop()
    run.wait(10)
    states = [(event["state"], event["message"]) for event in run.events if event["kind"] == "state"]
    assert (ev.QUEUED, answers[0].message if stops else "waits for session 7, which executes another cell") in states
    assert states[-1][0] == (ev.STOPPED if stops else ev.FINISHED) and bool(cluster.launched) != stops


def test_an_interrupt_while_the_driver_is_asked_leaves_no_run_behind(monkeypatch):
    cluster = FakeCluster(visible=2)

    def interrupt(timeout):
        raise KeyboardInterrupt

    wait = threading.Event.wait
    monkeypatch.setattr(
        threading.Event, "wait", lambda e, t=None: interrupt(t) if t == follower.LAUNCH_SECONDS else wait(e, t)
    )
    with pytest.raises(KeyboardInterrupt):
        submit(cluster)
    until(lambda: store.list_runs()[0].state == ev.STOPPED, 10)


def test_a_name_does_not_replace_a_variable_but_a_run():
    with pytest.raises(UsageError, match=r"--name digits would replace your variable digits \(dict\)"):
        submit(FakeCluster(), namespace={"digits": {}})
    run = submit(FakeCluster()).wait(10)
    assert submit(FakeCluster(), namespace={"digits": run}).name == "digits"
    assert submit(FakeCluster(), "", namespace={"run_1": 5}).name == "run_2"


def test_finding_runs():
    session = Session(FakeCluster())
    first = session.submit(parse("--name digits"), {}).wait(10)
    second = session.submit(parse("--name digits"), {}).wait(10)
    assert session.find("digits") is second and session.find(first.id) is first
    assert Session(FakeCluster()).find(first.id).history == first.history
    with pytest.raises(UsageError, match=r"there is no run digit\. Did you mean digits"):
        session.find("digit")


def test_waiting_in_a_cell_prints_progress_and_raises_the_failure(capsys):
    wait_in_cell(submit(FakeCluster()), True)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("digits  0:00  STARTING") and lines[-1].startswith("digits  0:00  FINISHED")
    with pytest.raises(DistributedCellError):
        wait_in_cell(submit(FakeCluster(failing())), False)


def interrupt(monkeypatch, run, times):
    """The cell that waits for the run is interrupted so many times."""
    settled, interrupts = type(run).settled, iter(range(times))

    def interrupted(one, timeout):
        if run.state == ev.RUNNING and next(interrupts, None) is not None:
            raise KeyboardInterrupt
        return settled(one, timeout)

    monkeypatch.setattr(type(run), "settled", interrupted)


def test_an_interrupt_stops_the_run_and_keeps_later_cells_from_starting(monkeypatch, capsys):
    cluster = FakeCluster(visible=2)
    run = submit(cluster)
    interrupt(monkeypatch, run, 1)
    with pytest.raises(RunInterrupted, match="digits is STOPPED; it had not begun to train"):
        wait_in_cell(run, True)
    assert cluster.stopped == [run.id]
    assert "interrupt again" in capsys.readouterr().out


def test_a_second_interrupt_leaves_the_run_to_itself(monkeypatch):
    cluster = FakeCluster(visible=2)
    monkeypatch.setattr(cluster, "stop", lambda run, reason: None)
    run = submit(cluster)
    interrupt(monkeypatch, run, 2)
    with pytest.raises(RunInterrupted, match=r"no longer waiting for digits, which is RUNNING; digits.wait\(\)"):
        wait_in_cell(run, True)
    cluster.visible = 100
    assert run.wait(10).state == ev.FINISHED


def test_the_end_of_the_kernel_stops_its_runs(monkeypatch):
    monkeypatch.setattr("ddl_magics.session.session.EXIT_SECONDS", 1.0)
    cluster = FakeCluster(visible=2)
    session = Session(cluster)
    run = submit(cluster, session=session)
    session.close()
    assert run.state == ev.STOPPED and cluster.shut


def test_the_end_of_the_kernel_marks_what_does_not_end_in_time(monkeypatch):
    monkeypatch.setattr("ddl_magics.session.session.EXIT_SECONDS", 0.1)
    cluster = FakeCluster(visible=2)
    monkeypatch.setattr(cluster, "stop", lambda run, reason: None)
    session = Session(cluster)
    run = submit(cluster, session=session)
    session.close()
    record = json.loads((store.runs_folder() / run.id / "run.json").read_text())
    assert record["state"] == ev.LOST and list(run.events)[-1]["message"] == "its kernel has ended"


def test_reading_while_it_grows_is_safe():
    cluster = FakeCluster(training(80))
    run = submit(cluster)
    errors = []

    def read():
        try:
            while not run.settled(0):
                assert repr(run)
                tables.metrics(run.events)
        except Exception as error:
            errors.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    run.wait(60)
    for reader in readers:
        reader.join(10)
    assert not errors and len(run.history["loss"]) == 80


def test_reports_of_another_version_are_left_out_and_said_once():
    script = list(training())
    script[5:5] = [{"kind": "epoch", "time": "now"}, {**epoch(0), "seconds": None}, ev.make("of a later version", 0)]
    cluster = FakeCluster(script)
    run = submit(cluster).wait(10)
    assert run.history == {"loss": [1.0, 0.5], "accuracy": [0.5, 0.6]}
    notices = [event["message"] for event in run.events if event["kind"] == "notice"]
    assert [notice for notice in notices if "cannot be read and are left out" in notice] == notices[:1]
    assert store.find_run(run.id).state == ev.FINISHED


def test_surrogates_reach_neither_the_store_nor_a_view():
    seen = []
    cluster = FakeCluster(
        [*list(training())[:-1], ev.make("log", 0, stream="stdout", text="caf\udce9\n"), state(ev.FINISHED)]
    )
    run = submit(cluster)
    run.listen(seen.extend)
    run.wait(10)
    assert "caf?" in run.logs(0) and "caf?" in Run.stored(store.find_run(run.id)).logs(0)
    json.dumps(seen, ensure_ascii=False).encode()


def test_what_is_missing_of_a_stored_run_is_said():
    run = submit(FakeCluster()).wait(10)
    path = run._folder.path / "events.jsonl"
    lines = path.read_bytes().split(b"\n")
    assert Run.stored(store.find_run(run.id)).damage == ""
    path.write_bytes(b"\n".join([*lines[:5], b"\xff{", *lines[6:]]))
    assert "1 line cannot be read" in run_text.describe(Run.stored(store.find_run(run.id)))
    path.write_bytes(b"\n".join(lines[:-2]) + b"\n")
    assert "its end is missing" in run_text.describe(Run.stored(store.find_run(run.id)))


def test_a_stop_that_does_not_arrive_is_asked_for_again():
    cluster = FakeCluster(visible=3)
    run, asked = running(submit(cluster)), []

    def stop(request):
        asked.append(request["run"])
        if len(asked) < 3:
            raise TimeoutError("the session is busy")
        cluster.stopped.append(request["run"])
        return {"ok": True}

    cluster._stop = stop
    assert run.stop(10).state == ev.STOPPED and len(asked) == 3


def test_results_that_cannot_be_fetched_are_told_though_the_run_has_ended(monkeypatch):
    monkeypatch.setattr(follower.Follower, "_collect", Mock(side_effect=ValueError("bad name")))
    run = submit(FakeCluster()).wait(10)
    said = [event["message"] for event in run.events if event["kind"] == "notice"]
    assert run.state == ev.FINISHED and "not all of its results could be fetched (ValueError: bad name)" in said


def test_a_run_that_another_kernel_follows_has_no_results_yet():
    cluster = FakeCluster(visible=3)
    run = running(submit(cluster))
    until(lambda: store.find_run(run.id).state == ev.RUNNING, 10)
    other = Run.stored(store.find_run(run.id))
    for ask in (other.wait, other.model, lambda: other.result):
        with pytest.raises(LookupError, match="digits is RUNNING in another kernel: its results are here when it has"):
            ask()
    run.stop(10)
    assert Run.stored(store.find_run(run.id)).wait().state == ev.STOPPED
