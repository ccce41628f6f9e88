"""Runs in TensorBoard and MLflow: written by their own libraries, read back by their own readers."""

import dataclasses
import json
from pathlib import Path

import pytest
from support.fake_cluster import FakeCluster, epoch, state, steps, training
from support.stored import append, finished, stored
from support.tensorboards import tensorboard
from support.until import until

from ddl_magics import store
from ddl_magics.errors import NotInstalled
from ddl_magics.history import mlflow, provenance
from ddl_magics.history import tensorboard as written_for_tensorboard
from ddl_magics.history.scalars import scalars
from ddl_magics.options.parsing import parse
from ddl_magics.runs.run import Run
from ddl_magics.runtime import events as ev
from ddl_magics.search import Search
from ddl_magics.session.session import Session

CELL = 'lr = ddl.suggest_float("lr", 0.01, 1.0)'
#: Of an epoch of `training`, and after the last one.
EPOCH_EVENTS, LAST_EVENTS = 5, 3


@pytest.fixture(autouse=True)
def folder(data_dir, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run():
    """A run with two epochs, parameters, a model, tags and what it ran with."""
    cell = 'token = "hidden"\nmodel.fit(dataset)'
    folder = finished(set={"lr": "0.01", "act": "relu", "api_key": "hidden"}, seed=3, cell=cell)
    append(folder, [ev.make("values", 0, metrics={"recall@5": 0.5}, step=1)])
    (folder.path / "files" / "model-0.keras").write_bytes(b"model")
    folder.label(["paper"], "the one", "in Table 2")
    git = {"commit": "1a2b3c", "branch": "main", "remote": "https://host/repo.git", "diff": "+rate = 2\n"}
    provenance.write(folder.path, {"kernel": {"packages": {"keras": "3.15.1"}}, "git": git})
    return Run.stored(folder.record())


def search_of(count):
    """A search that has ended, with so many trials."""
    number = "20261121-000000-bbbbbb"
    spec = {"run": number, "name": "tuned", "trials": count, "objective": "loss:min", "cell": "x"}
    stored_spec = {**finished().record().spec, **spec}
    made = {"spec": stored_spec, "created": 1.8e9, "cluster": "this machine", "state": ev.FINISHED}
    folder = store.SearchFolder.create({**made, "ended": 1.8e9 + 9})
    for trial in range(count):
        finished(name=f"tuned_{trial}", parent=number, trial=trial, set={"lr": str(0.1 * trial)})
    return Search.stored(folder.record())


def test_steps_are_counted_over_the_epochs_of_a_fit():
    events = [
        steps(0, 0, loss=2.0),
        steps(0, 0, step=10, loss=1.5),
        steps(1, 0, loss=9.0),
        epoch(0, loss=1.0),
        steps(0, 1, loss=0.5),
        epoch(1, loss=None),
        {**steps(0, 0, loss=0.4), "fit": 1},
        ev.make("values", 0, metrics={"mine": 3.0}, step=None),
    ]
    found = [(each.name, each.step, each.value) for each in scalars(events)]
    assert found[:3] == [("steps/loss", 10, 2.0), ("steps/loss", 20, 1.5), ("loss", 1, 1.0)]
    assert found[3] == ("steps/loss", 30, 0.5) and found[4][:2] == ("loss", 2) and found[4][2] != found[4][2]
    assert found[5:] == [("fit_1/steps/loss", 10, 0.4), ("mine", 1, 3.0)]


def test_the_chief_of_the_time_has_the_steps_and_the_values_of_ddl_log():
    group = ev.make("group", ev.JOB, members=[1, 2])
    of_ranks = [ev.make("values", rank, metrics={"mine": float(rank)}, step=None) for rank in range(3)]
    events = [steps(0, 0, loss=2.0), *of_ranks, group, *of_ranks, steps(1, 1, loss=0.5), steps(2, 1, loss=0.5)]
    found = [(each.name, each.step, each.value) for each in scalars(events)]
    assert found == [("steps/loss", 10, 2.0), ("mine", 1, 0.0), ("mine", 2, 1.0), ("steps/loss", 20, 0.5)]


def test_each_rank_has_curves_of_what_it_uses():
    def sample(rank, second, **fields):
        usage = {"cpu": 310.0, "memory": 2 * 10**9, "gpus": None, **fields}
        return {**ev.make("sample", rank, **usage), "time": 1.8e9 + second}

    gpus = [{"percent": 50.0, "memory": 10**9, "memory_total": None}, {"percent": 70.0, "memory": 10**9}]
    events = [sample(0, 0, gpus=gpus), sample(1, 1), sample(0, 5), sample(0, 12, memory=0)]
    found = [(each.name.removeprefix("system/"), each.step, each.value) for each in scalars(events)]
    assert found == [
        ("rank_0/cpu_percent", 0, 310.0),
        ("rank_0/memory_gb", 0, 2.0),
        ("rank_0/gpu_percent", 0, 60.0),
        ("rank_0/gpu_memory_gb", 0, 2.0),
        ("rank_1/cpu_percent", 1, 310.0),
        ("rank_1/memory_gb", 1, 2.0),
        ("rank_0/cpu_percent", 12, 310.0),
    ]


def test_how_to_look_at_what_was_written_is_said(run, tmp_path, capsys):
    run.to_tensorboard(tmp_path / "my logs")
    search_of(2).to_tensorboard(tmp_path / "my logs")
    line = f"To see it: tensorboard --logdir '{tmp_path}/my logs' (pip install tensorboard)\n"
    assert capsys.readouterr().out == 2 * line
    assert mlflow.how_to_look("http://host:5000") == "To see it: http://host:5000"


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_tensorboard_reads_runs_and_a_search_and_follows_a_live_run(run, tmp_path):
    written = run.to_tensorboard(tmp_path / "logs")
    assert run.to_tensorboard(tmp_path / "logs") == written, "written anew"
    trials = search_of(2).to_tensorboard(tmp_path / "logs")
    cluster = FakeCluster(list(training(epochs=3)))
    cluster.visible = len(cluster.script) - EPOCH_EVENTS - LAST_EVENTS
    live = Session(cluster).submit(
        dataclasses.replace(parse("--name live --set lr=0.5 --tensorboard logs"), cell=CELL), {}
    )
    with tensorboard(tmp_path / "logs") as board:
        (following,) = (tmp_path / "logs").glob("live-*")
        until(lambda: board.points(following.name, "loss") == [(1, 1.0), (2, 0.5)], 60)
        assert live.state == ev.RUNNING
        assert set(board.tags()) == {written.name, following.name, *(trial.name for trial in trials)}
        cluster.visible = len(cluster.script)
        live.wait(30)
        until(lambda: [step for step, _ in board.points(following.name, "loss")] == [1, 2, 3], 30)
        assert board.points(following.name, "steps/loss")[0] == (10, 1.0)
        assert {"loss", "accuracy", "steps/loss"} <= set(board.tags()[written.name])
        assert board.points(written.name, "loss") == [(1, 1.0), (2, 0.5)]
        until(lambda: {"lr", "act", "strategy", "workers"} <= board.parameters()[0], 30)
        names, metrics = board.parameters()
        assert "api_key" not in names and metrics >= {"loss", "accuracy"}


@pytest.mark.timeout(120)
def test_mlflow_reads_a_run_and_a_search(run, tmp_path, monkeypatch, capsys):
    from mlflow import MlflowClient

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    first = run.to_mlflow(uri)
    assert capsys.readouterr().out == f"To see it: mlflow ui --backend-store-uri {uri} (pip install mlflow)\n"
    number = run.to_mlflow(uri)
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("ddl_magics").experiment_id
    assert [each.info.run_id for each in client.search_runs([experiment])] == [number] != [first], "written anew"
    found = client.get_run(number)
    assert (found.info.run_name, found.info.status) == ("the one", "FINISHED")
    assert found.data.params["lr"] == "0.01" and found.data.params["workers"] == "2"
    assert "api_key" not in found.data.params
    assert [(m.step, m.value) for m in client.get_metric_history(number, "loss")] == [(1, 1.0), (2, 0.5)]
    tags = found.data.tags
    assert tags["mlflow.source.git.commit"] == "1a2b3c" and tags["mlflow.note.content"] == "in Table 2"
    assert tags["ddl_magics.id"] == run.id and tags["mlflow.source.name"] == "a.ipynb"
    files = {artifact.path for artifact in client.list_artifacts(number)}
    assert files == {"model-0.keras", "cell.py", "requirements.txt", "diff.patch"}
    local = client.download_artifacts(number, "requirements.txt", str(tmp_path))
    assert Path(local).read_text() == "keras==3.15.1\n"
    cell = Path(client.download_artifacts(number, "cell.py", str(tmp_path))).read_text()
    assert "--set lr=0.01" in cell and "model.fit(dataset)" in cell and "hidden" not in cell
    assert found.data.metrics["recall_5"] == 0.5

    with monkeypatch.context() as broken:
        broken.setattr(MlflowClient, "log_artifact", lambda *_: json.loads(""))
        with pytest.raises(ValueError, match="Expecting value"):
            run.to_mlflow(uri)
    assert [each.info.run_id for each in client.search_runs([experiment])] == [number], "what was whole stays"

    search = search_of(2)
    parent = search.to_mlflow(uri, "searches")
    experiment = client.get_experiment_by_name("searches").experiment_id
    children = client.search_runs([experiment], f"tags.`mlflow.parentRunId` = '{parent}'")
    assert sorted(child.info.run_name for child in children) == ["tuned_0", "tuned_1"]
    assert search.to_mlflow(uri, "searches") == parent
    assert len(client.search_runs([experiment])) == 3


def test_a_failed_run_is_one_there_and_what_is_missing_is_one_line(tmp_path, monkeypatch):
    failure = {"rank": 1, "host": "h", "kind": "error", "message": "no", "traceback": ""}
    folder = stored(ev.FAILED, [*list(training())[:6], state(ev.FAILED, "no", failure=failure)])
    append(folder, [])
    failed = Run.stored(folder.record())
    with pytest.raises(ValueError, match="the URI holds a password: set MLFLOW_TRACKING_USERNAME"):
        failed.to_mlflow("http://me:hidden@host:5000")
    for module in (mlflow, written_for_tensorboard):
        monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(NotInstalled, match="MLflow is missing here: pip install mlflow-skinny"):
        failed.to_mlflow("http://host:5000")
    with pytest.raises(ImportError, match="tensorboardX, which is missing here: pip install tensorboardX"):
        failed.to_tensorboard(tmp_path)
