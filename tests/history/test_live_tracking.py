"""Runs and searches that MLflow follows while they train, in a database and on a real server; and places that fail."""

import dataclasses
import os

import pytest
from IPython.core.error import UsageError
from support import mlflow_server
from support.fake_cluster import FakeCluster, epoch, training
from support.ports import free_port
from support.stored import stored
from support.until import until

from ddl_magics import store
from ddl_magics.history import mlflow
from ddl_magics.history import tensorboard as written_for_tensorboard
from ddl_magics.options.parsing import parse
from ddl_magics.runs import live_tracking
from ddl_magics.runtime import events as ev
from ddl_magics.session import dry_run
from ddl_magics.session.session import Session

pytestmark = pytest.mark.timeout(240)

CELL = 'units = ddl.suggest_int("units", 1, 100, default=8)'
#: Of an epoch of `training`, and after the last one.
EPOCH_EVENTS, LAST_EVENTS = 5, 3


@pytest.fixture(autouse=True)
def folder(data_dir, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    monkeypatch.setattr(live_tracking, "GATHER_SECONDS", 0.1)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module", params=["database", pytest.param("server", marks=pytest.mark.slow)])
def uri(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("mlflow")
    if request.param == "database":
        yield f"sqlite:///{folder}/mlflow.db"
    else:
        with mlflow_server.mlflow_server(folder) as url:
            yield url


def test_without_its_environment_a_server_says_how_to_make_it(tmp_path, monkeypatch):
    monkeypatch.setattr(mlflow_server, "PYTHON", tmp_path / "python")
    with pytest.raises(AssertionError, match="make mlflow-env"), mlflow_server.mlflow_server(tmp_path):
        pass


def spec(line, cell=CELL):
    return dataclasses.replace(parse(line), cell=cell)


def of_id(uri, run):
    """MLflow's client, and its run of this id if there is one."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("ddl_magics")
    found = client.search_runs([experiment.experiment_id], f"tags.`ddl_magics.id` = '{run}'") if experiment else []
    assert len(found) < 2
    return client, found[0] if found else None


def values(client, found, name):
    return [(metric.step, metric.value) for metric in client.get_metric_history(found.info.run_id, name)]


def test_mlflow_follows_a_run(uri, tmp_path):
    script = list(training(epochs=3))
    script.insert(-1, ev.make("artifact", 0, name="model-0.keras", size=5, sha256=""))
    cluster = FakeCluster(
        script, artifacts={"model-0.keras": b"model"}, visible=len(script) - EPOCH_EVENTS - LAST_EVENTS - 1
    )
    run = Session(cluster).submit(spec(f"--name digits --set units=3 --mlflow {uri}"), {})

    def logged():
        client, found = of_id(uri, run.id)
        return values(client, found, "loss") if found else []

    until(lambda: logged() == [(1, 1.0), (2, 0.5)], 60)
    client, found = of_id(uri, run.id)
    assert run.state == ev.RUNNING and found.info.status == "RUNNING" and found.info.run_name == "digits"
    assert found.data.params["units"] == "3" and found.data.params["strategy"] == "allreduce"

    cluster.visible = len(script)
    run.wait(60)
    client, found = of_id(uri, run.id)
    assert found.info.status == "FINISHED" and found.info.end_time == int(store.find_run(run.id).ended * 1000)
    assert [step for step, _ in values(client, found, "loss")] == [1, 2, 3]
    assert [step for step, _ in values(client, found, "steps/loss")] == [10, 20, 30]
    tags = found.data.tags
    assert tags["mlflow.user"] and tags["mlflow.source.type"] == "NOTEBOOK"
    model = store.find_run(run.id).folder / "files" / "model-0.keras"
    assert tags["ddl_magics.files"] == str(model), "where it is"
    artifacts = {each.path for each in client.list_artifacts(found.info.run_id)}
    assert {"model-0.keras", "cell.py", "requirements.txt"} <= artifacts
    brought = client.download_artifacts(found.info.run_id, "model-0.keras", str(tmp_path))
    with open(brought, "rb") as file:
        assert file.read() == b"model"
    assert not [e for e in run.events if e["kind"] == "notice"]


def test_a_search_is_a_run_with_its_trials_as_children(uri):
    cluster = FakeCluster(slots=2)
    line = f"--trials 3 --objective accuracy:max --name tuned --prune no --mlflow {uri} --tensorboard logs"
    search = Session(cluster).search(spec(line), {})
    search.wait(100)
    client, parent = of_id(uri, search.id)
    assert (parent.info.run_name, parent.info.status) == ("tuned", "FINISHED")
    assert parent.data.params["trials"] == "3" and parent.data.metrics["best/accuracy"] == 0.6
    experiment = parent.info.experiment_id
    children = client.search_runs([experiment], f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'")
    assert {child.info.run_name for child in children} == {"tuned_0", "tuned_1", "tuned_2"}
    assert {child.info.status for child in children} == {"FINISHED"}
    assert {int(child.data.params["units"]) for child in children} == set(search.trials["units"])
    assert len(list(os.scandir("logs"))) == 3
    assert search.to_mlflow(uri) == parent.info.run_id, "not another one"


def test_what_continues_writes_nothing_twice(uri):
    """As after `%ddl attach`: all events are read again."""
    from ddl_magics.history.scalars import scalars

    record = stored(created=1.8e9).record()
    events = [{**epoch(number, loss=1.0 - number / 10), "time": 1.8e9 + number} for number in range(4)]
    first = mlflow.Experiment(uri, "ddl_magics").begin(record, {"units": 3})
    first.add(scalars(events[:2]))
    again = mlflow.Experiment(uri, "ddl_magics").begin(record, {"units": 3})
    assert again.number == first.number
    again.add(scalars(events))
    client, found = of_id(uri, record.id)
    assert [step for step, _ in values(client, found, "loss")] == [1, 2, 3, 4]


def test_a_place_that_fails_costs_the_run_nothing_and_gets_all_once_it_works(tmp_path, monkeypatch):
    monkeypatch.setattr(live_tracking, "RETRY_SECONDS", 0.2)
    monkeypatch.setattr(live_tracking, "END_SECONDS", 0.5)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    uri = f"http://127.0.0.1:{free_port()}"  # nobody listens there
    (tmp_path / "file").write_text("in the way of a folder")
    run = Session(FakeCluster()).submit(spec(f"--name digits --mlflow {uri} --tensorboard file"), {})
    assert run.wait(60).state == ev.FINISHED
    told = [e["message"] for e in run.events if e["kind"] == "notice"]
    assert sum(line.startswith(f"MLflow at {uri} could not be written, still trying: ") for line in told) == 1
    assert f"MLflow at {uri} has not taken all of the run yet: it is still tried, and " in "\n".join(told)
    assert any(line.startswith("TensorBoard's folder ") and "could not be written, still" in line for line in told)
    assert not any("\n" in line for line in told)
    (tmp_path / "file").unlink()
    until(lambda: list(tmp_path.glob("file/digits-*/events.out.tfevents.*")), 30)


def test_values_that_a_server_did_not_take_come_when_it_is_back(monkeypatch):
    monkeypatch.setattr(live_tracking, "RETRY_SECONDS", 0.01)
    taken, failures, opened = [], [ConnectionError("away")] * 3, []

    class Outlet:
        def add(self, scalars):
            if failures:
                raise failures.pop()
            taken.extend(scalars)

        def finish(self, run):
            taken.append(run)

    def open_outlet():
        opened.append(1)
        return Outlet()

    export = live_tracking.LiveTracker("a server", open_outlet, "it")
    export.feed([{**epoch(0, loss=1.0), "attempt": 1}])
    until(lambda: len(opened) > 1, 10)
    export.feed([{**epoch(1, loss=0.5), "attempt": 1}])
    export.finish(lambda: "the end")
    assert export.wait(10)
    assert [each if each == "the end" else each.value for each in taken] == [1.0, 0.5, "the end"]
    assert list(export.problems()) == ["a server could not be written, still trying: ConnectionError: away"]


def test_a_run_that_the_kernels_end_stops_is_no_running_one_in_mlflow(uri):
    session = Session(FakeCluster([*list(training())[:5]]))
    run = session.submit(spec(f"--name digits --mlflow {uri}"), {})
    until(lambda: of_id(uri, run.id)[1] is not None, 30)
    session.close()
    until(lambda: of_id(uri, run.id)[1].info.status in ("FINISHED", "KILLED"), 30)


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("--mlflow sqlite:///mlflow.db", "MLflow is missing here: pip install mlflow-skinny"),
        ("--tensorboard logs", "written by tensorboardX, which is missing here: pip install tensorboardX"),
        ("--tensorboard s3://bucket/logs", "s3:// needs boto3, which is missing here: pip install boto3"),
        ("--tensorboard gs://bucket/logs", "gs:// needs google-cloud-storage, which is missing here"),
    ],
)
def test_what_is_missing_is_said_before_anything_starts(line, refused, monkeypatch):
    if "://bucket" not in line:
        for module in (mlflow, written_for_tensorboard):
            monkeypatch.setattr(module, "find_spec", lambda name: None)
    cluster = FakeCluster()
    for begin, more in ((Session(cluster).submit, ""), (Session(cluster).search, " --trials 2 --objective loss:min")):
        with pytest.raises(UsageError, match=refused):
            begin(spec(line + more), {})
    assert refused in dry_run.report(spec(line), cluster, {})
    assert store.list_runs() == store.list_searches() == [] and not cluster.launched


def test_where_a_runs_folder_is():
    folder = written_for_tensorboard.run_folder
    assert folder("logs", "digits", "1", "/home/me") == "/home/me/logs/digits-1"
    assert folder("/logs", "digits", "1", "/home/me") == folder("file:///logs", "digits", "1") == "/logs/digits-1"
    assert folder("s3://bucket/logs/", "digits", "1", "/home/me") == "s3://bucket/logs/digits-1"
