"""What a cell has written comes to the notebook's folder, and nowhere else."""

import os
import shutil
import time

import pytest
from IPython.core.error import UsageError
from support.fake_cluster import FakeCluster, notices, state, training

from ddl_magics import store
from ddl_magics.clusters import sent_files
from ddl_magics.options.parsing import parse
from ddl_magics.runs import cell_files, follower
from ddl_magics.runs.run import Run
from ddl_magics.runtime import events as ev
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.session.session import Session


@pytest.fixture(autouse=True)
def notebook(data_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(follower, "IDLE_POLL_SECONDS", 0.02)
    folder = tmp_path / "notebook"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def cluster_with(files, end=ev.FINISHED, **attributes):
    written = [ev.make("file", 0, name=name, size=len(data), sha256="") for name, data in files.items()]
    script = [*list(training())[:-1], *written, state(end, "done")]
    cluster = FakeCluster(script, artifacts={f"files/{name}": data for name, data in files.items()})
    for name, value in attributes.items():
        setattr(cluster, name, value)
    return cluster


def submit(cluster):
    return Session(cluster).submit(parse("--name digits"), {}).wait(10)


def below(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_files_come_to_the_notebooks_folder(notebook):
    old = notebook / "old.csv"
    old.write_bytes(b"old")
    os.utime(old, (time.time() - 60,) * 2)
    files = {"old.csv": b"new", "logs/train/events": b"e" * 2500, "empty": b""}
    cluster = cluster_with(files)
    run = submit(cluster)
    assert below(notebook) == files
    assert run.files == {"empty": 0, "logs/train/events": 2500, "old.csv": 3}
    assert notices(run) == [f"written to {notebook}: empty, old.csv, logs/train/events (3 kB)"]
    assert cluster.released == [run.id]
    found = {file["name"]: file["path"] for file in store.RunFolder(store.runs_folder() / run.id).record().cell_files}
    assert found == {name: str(notebook / name) for name in files}
    assert run.fetch("old.csv") == old
    assert run.fetch("old.csv", notebook / "copy").read_bytes() == b"new"
    with pytest.raises(LookupError, match=r"digits has no file old\.cvs\. Did you mean old\.csv\?"):
        run.fetch("old.cvs")


def test_what_is_newer_than_the_run_is_never_replaced(notebook, tmp_path):
    later = time.time() + 3600
    for name in ("new.csv", "new.digits.csv"):
        (notebook / name).write_bytes(b"mine")
        os.utime(notebook / name, (later, later))
    (notebook / "folder").mkdir()
    (tmp_path / "mine").write_bytes(b"mine")
    (notebook / "link").symlink_to(tmp_path / "mine")
    run = submit(cluster_with({"new.csv": b"1", "folder": b"2", "link": b"3"}))
    assert below(notebook) == {
        "new.csv": b"mine",
        "new.digits.csv": b"mine",
        "new.digits-1.csv": b"1",
        "folder.digits": b"2",
        "link": b"mine",
        "link.digits": b"3",
    }
    beside = "folder as folder.digits, link as link.digits, new.csv as new.digits-1.csv"
    assert notices(run) == [f"kept beside what has changed in {notebook} since the run began: {beside}"]


def _by_mv(mine, target):
    os.rename(mine, target)


def _by_cp(mine, target):
    shutil.copy2(mine, target)


def _by_a_clock_set_back(mine, target):
    target.write_bytes(b"mine, long ago")


@pytest.mark.parametrize("existed", [True, False])
@pytest.mark.parametrize("change", [_by_mv, _by_cp, _by_a_clock_set_back])
def test_what_is_moved_into_place_during_a_run_stays(notebook, tmp_path, monkeypatch, change, existed):
    mine, target = tmp_path / "month.csv", notebook / "result.csv"
    mine.write_bytes(b"mine, long ago")
    os.utime(mine, (1e9, 1e9))
    if existed:
        target.write_bytes(b"old")
    cluster = cluster_with({"result.csv": b"of the run"})
    launch = cluster.launch

    def launch_then_change(spec, namespace):
        change(mine, target)
        os.utime(target, (1e9, 1e9))
        return launch(spec, namespace)

    monkeypatch.setattr(cluster, "launch", launch_then_change)
    run = submit(cluster)
    assert below(notebook) == {"result.csv": b"mine, long ago", "result.digits.csv": b"of the run"}
    assert notices(run)[-1].endswith("since the run began: result.csv as result.digits.csv")


@pytest.mark.parametrize("is_complete", [True, False])
def test_a_file_is_compared_with_what_it_was(notebook, monkeypatch, is_complete):
    for name in ("same", "changed"):
        (notebook / name).write_bytes(b"1")
    if not is_complete:  # the clock of the file system decides
        monkeypatch.setattr(cell_files, "MAX_REMEMBERED", 0)
    before = cell_files.FolderState.of(notebook)
    time.sleep(0.05)  # file systems have coarse clocks
    for name in ("changed", "new"):
        (notebook / name).write_bytes(b"2")
        os.utime(notebook / name, (1e9, 1e9))
    assert before.is_complete == is_complete
    changed = {name for name in ("same", "changed", "new", "none") if before.has_changed(notebook / name)}
    assert changed == {"changed", "new"}


@pytest.mark.parametrize("name", ["../out", "/tmp/ddl-out", "a/../../out", "away/out", "", "a\0b", "a\nb"])
def test_a_name_never_leaves_the_folder(notebook, tmp_path, name):
    (tmp_path / "away").mkdir()
    (notebook / "away").symlink_to(tmp_path / "away")
    run = submit(cluster_with({name: b"x", "good": b"y"}))
    assert below(notebook) == {"good": b"y"}
    assert not (tmp_path / "out").exists() and not list((tmp_path / "away").iterdir())
    assert f"not brought back: {name!r} is not in the notebook's folder" in notices(run)


def test_large_files_are_fetched_when_they_are_wanted(notebook):
    cluster = cluster_with({"small": b"1", "large": b"2" * 1500}, files_bytes=1000, name="Livy session 3 at host")
    run = submit(cluster)
    assert below(notebook) == {"small": b"1"} and cluster.released == []
    assert notices(run)[-1] == "Livy session 3 at host still has large (2 kB): digits.fetch('large') brings it here"
    assert run.fetch("large") == notebook / "large" and below(notebook)["large"] == b"2" * 1500
    assert run.files == {"large": 1500, "small": 1}
    from ddl_magics import store

    assert Run.stored(store.find_run(run.id)).fetch("large") == notebook / "large", "another kernel knows where it is"


def test_files_of_a_failed_run_come_back(notebook):
    cluster = cluster_with({"a": b"1"}, end=ev.FAILED)
    run = Session(cluster).submit(parse("--name digits"), {})
    assert run.settled(10) and run.state == ev.FAILED and run.fetch("a").read_bytes() == b"1"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("nothing.csv", "--files nothing.csv: there is no such file in .*notebook"),
        ("dtaa", "Did you mean data?"),
        ("../x", "--files ../x: it is not in the notebook's folder"),
        ("/etc/hosts", "--files /etc/hosts: it is not in the notebook's folder"),
        ("large", r"--files: 1 file of 33 MB \(large is the largest\), and up to 32 MB are sent"),
    ],
)
def test_files_that_cannot_be_sent(notebook, given, problem):
    (notebook / "data").mkdir()
    with open(notebook / "large", "wb") as file:
        file.truncate(33 << 20)
    with pytest.raises(sent_files.CannotSendFiles, match=problem):
        sent_files.check(RunSpec(files=(given,), folder=str(notebook)))


def test_files_are_sent_in_parts(notebook, monkeypatch):
    import base64
    import io
    import json
    import zipfile

    monkeypatch.setattr(sent_files, "CHUNK_BYTES", 100)
    (notebook / "data").mkdir()
    (notebook / "data/a.csv").write_bytes(os.urandom(300))
    (notebook / "b").write_bytes(b"b")
    requests = []

    def call(function, request):
        assert function == "upload"
        requests.append(json.loads(json.dumps(request)))
        return {"ok": True}

    spec = parse("--files data b")
    assert spec.files == ("data", "b")
    sent_files.upload(RunSpec(run="r", files=spec.files, folder=str(notebook)), call)
    assert len(requests) > 3 and {each["count"] for each in requests} == {len(requests)}
    data = b"".join(base64.b64decode(each["data"]) for each in requests)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.namelist() == ["data/a.csv", "b"] and archive.read("b") == b"b"
    with pytest.raises(UsageError, match="--files"):
        parse("--files")
