"""Runs as one file: what comes back, what is left out, and what nobody may bring in."""

import hashlib
import json
import shutil
import stat
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import strategies as st
from IPython.core.error import UsageError
from support.bad_input import each, tried
from support.fake_cluster import epoch
from support.stored import finished, stored, stored_by_0_1_0

from ddl_magics import store
from ddl_magics.__main__ import main
from ddl_magics.errors import NotInRun
from ddl_magics.history import bundle, provenance
from ddl_magics.runs.attaching import find_stored
from ddl_magics.runs.run import Run
from ddl_magics.runs.run_text import describe
from ddl_magics.runtime import events as ev
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.runtime.variables.left import FILE as VARIABLES
from ddl_magics.runtime.variables.left import INDEX
from ddl_magics.search.study import open_study
from ddl_magics.store import cleaning

#: What this version has written first: every later one reads it.
FORMAT_1 = Path(__file__).parent / "data" / "format-1.zip"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """`elsewhere()`: the store of another machine."""
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "here"))
    return lambda: monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "there"))


@pytest.fixture
def whole():
    """A run with all that a run can have."""
    folder = finished(place={"livy": "http://host:8998", "session": 7})
    (folder.path / "files" / "model-0.keras").write_bytes(b"model" * 1000)
    provenance.write(folder.path, {"kernel": {"packages": {"keras": "3.15.1"}}})
    folder.label(["paper"], "the one", "in Table 2")
    return folder


def written(folder, tmp_path):
    path = tmp_path / "run.zip"
    bundle.write(path, [folder.record()])
    return path


def test_a_run_comes_back_as_it_was(whole, tmp_path, elsewhere):
    whole.file("model-1.keras").touch()
    before, path = Run.stored(whole.record()), written(whole, tmp_path)
    assert path.stat().st_size < 20_000
    elsewhere()
    assert bundle.read(path) == bundle.Imported((before.id,), ())
    record = store.find_run("digits")
    after = Run.stored(record)
    assert (after.events, after.history, after.state) == (before.events, before.history, ev.FINISHED)
    assert (after.tags, after.note, record.title) == (["paper"], "in Table 2", "the one")
    assert after.provenance.packages == {"keras": "3.15.1"}
    assert after._folder.file("model-0.keras").read_bytes() == b"model" * 1000
    assert after._folder.file("model-1.keras").read_bytes() == b""
    assert record.driver_address == {} and not (record.folder / "owner.json").exists()
    assert stat.S_IMODE(record.folder.stat().st_mode) == 0o700
    after._folder.request("stop")
    assert [run.record.id for run in cleaning.stored_runs()] == [before.id]
    with pytest.raises(bundle.BundleError, match="is in the store already"):
        bundle.read(path)


def test_an_imported_run_has_its_name_on_the_disk(whole, tmp_path, elsewhere, monkeypatch):
    path = written(whole, tmp_path)
    elsewhere()
    found = []
    monkeypatch.setattr(bundle, "synchronize_folder", lambda folder: found.append([*Path(folder).glob("[!.]*")]))
    bundle.read(path)
    assert found == [[store.find_run("digits").folder]]


def test_runs_of_0_1_0_and_their_models_can_be_passed_on(tmp_path, elsewhere):
    stored_by_0_1_0()
    for name in ("digits", "shared"):
        bundle.write(tmp_path / f"{name}.zip", [store.find_run(name)])
    elsewhere()
    for name in ("digits", "shared"):
        bundle.read(tmp_path / f"{name}.zip")
    digits = Run.stored(store.find_run("digits"))
    assert digits.result == 650 and len(digits.weights()) == 2


def test_the_first_format_is_read(tmp_path):
    assert bundle.read(FORMAT_1).runs
    run = Run.stored(store.find_run("digits"))
    assert (run.state, run.history["loss"]) == (ev.FINISHED, [1.0, 0.5])
    assert run.tags == ["paper"] and run.provenance.packages == {"keras": "3.15.1"}


def test_what_has_not_ended_is_not_written_and_no_file_is_replaced(whole, tmp_path):
    live = stored()
    with pytest.raises(bundle.BundleError, match="digits is RUNNING: export it when it has ended"):
        bundle.write(tmp_path / "a.zip", [live.record()])
    (tmp_path / "a.zip").write_text("mine")
    with pytest.raises(bundle.BundleError, match="exists: choose another name"):
        bundle.write(tmp_path / "a.zip", [whole.record()])
    with pytest.raises(bundle.BundleError, match=r"there is no folder .*none: create it first\."):
        bundle.write(tmp_path / "none" / "a.zip", [whole.record()])
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["a.zip"]


def remade(path, change):
    """The archive with other entries: `change` gets {name: content}, and the manifest as an object."""
    with zipfile.ZipFile(path) as source:
        content = {name: source.read(name) for name in source.namelist()}
    manifest = json.loads(content.pop(bundle.MANIFEST))
    change(content, manifest)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for name, data in content.items():
            target.writestr(name, data)
        target.writestr(bundle.MANIFEST, json.dumps(manifest))


def add(content, manifest, name, data=b"x"):
    content[name] = data
    manifest["files"][name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def replace(name, data):
    def change(content, manifest):
        add(content, manifest, next(each for each in content if each.endswith(name)), data)

    return change


def renamed(content, manifest, name):
    record = next(data for each, data in content.items() if each.endswith("run.json"))
    replace("run.json", json.dumps({**json.loads(record), "name": name}).encode())(content, manifest)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c, m: add(c, m, "runs/../../evil"), "a file that no run has"),
        (lambda c, m: add(c, m, "/etc/passwd"), "a file that no run has"),
        (lambda c, m: add(c, m, "runs/20261121-000001-aaaaaa/files/../../x"), "a file that no run has"),
        (lambda c, m: add(c, m, "runs/20261121-000001-aaaaaa/owner.json"), "a file that no run has"),
        (lambda c, m: add(c, m, "runs/20261121-000001-aaaaaa/control/stop"), "a file that no run has"),
        (lambda c, m: add(c, m, "runs/.hidden/run.json"), "a file that no run has"),
        (lambda c, m: c.update({"more": b""}), "its files are not those of its list"),
        (lambda c, m: c.popitem(), "its files are not those of its list"),
        (lambda c, m: m.update(format=2), "is of a newer ddl_magics (format 2): update this one"),
        (lambda c, m: m.update(format="1"), "is of a newer ddl_magics"),
        (lambda c, m: m.pop("files"), "ddl_magics.json cannot be read"),
        (lambda c, m: m.update(files=[]), "its files are not those of its list"),
        (lambda c, m: [f.update(size=f["size"] - 1) for f in m["files"].values()], "is not what its list says"),
        (lambda c, m: [f.update(size=-1) for f in m["files"].values()], "ddl_magics.json cannot be read"),
        (lambda c, m: [f.update(size=10**15) for f in m["files"].values()], "is larger than"),
        (lambda c, m: [f.update(size=10**9) for n, f in m["files"].items() if "run.json" in n], "run.json is too long"),
        (lambda c, m: [f.update(sha256="0" * 64) for f in m["files"].values()], "is not what its list says"),
        (replace("run.json", b"{}"), "is damaged, or has not ended"),
        (replace("run.json", b'{"id": "another"}'), "is damaged, or has not ended"),
        (lambda c, m: renamed(c, m, "x\x1b]0;title\x07"), "is damaged, or has not ended"),
        (lambda c, m: (c.clear(), m["files"].clear()), "has no run"),
    ],
)
def test_what_is_refused(whole, tmp_path, elsewhere, change, message):
    path = written(whole, tmp_path)
    remade(path, change)
    elsewhere()
    with pytest.raises(bundle.BundleError) as caught:
        bundle.read(path)
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert store.list_runs() == [] and not [*store.runs_folder().glob("*")], "nothing, not even a part"
    assert not (tmp_path / "evil").exists()


def test_an_archive_leads_nowhere_else(whole, tmp_path, elsewhere):
    """A stranger's may name a Livy of his, from which `%ddl attach` would fetch, files of this machine, and a server of
    his, to which `%ddl reproduce` would write.
    """
    events = [{**ev.make("file", 0, name="a.csv", size=9, sha256="0"), "seq": 8}, {**epoch(0), "seq": 10}]
    placed = {**ev.make("placed", 0, name="a.csv", path="/etc/passwd"), "seq": 9}
    lines = [json.dumps(event).encode() + b"\n" for event in (events[0], placed, events[1])]
    with open(whole.path / "events.jsonl", "ab") as file:
        file.writelines(lines)
    path = written(whole, tmp_path)
    assert b"/etc/passwd" not in zipfile.ZipFile(path).read(f"runs/{whole.path.name}/events.jsonl")
    record = json.loads((whole.path / "run.json").read_text())
    record |= {
        "place": {"livy": "http://stranger"},
        "cell_files": [{"name": "a.csv", "size": 9, "path": "/etc/passwd"}],
        "spec": {**record["spec"], "mlflow": "http://stranger", "tensorboard": "s3://stranger"},
    }

    def hostile(content, manifest):
        replace("run.json", json.dumps(record).encode())(content, manifest)
        replace("labels.json", b'{"title": "a\\u001b[2J", "labels": ["paper", "a\\nb"], "note": "\\u001b"}')(
            content, manifest
        )
        replace("events.jsonl", b"".join(lines).replace(b"placed", b"\\u0070laced") + b"damaged\n")(content, manifest)

    remade(path, hostile)
    elsewhere()
    bundle.read(path)
    run = store.find_run("digits")
    assert (run.title, run.labels, run.note) == ("", ("paper",), ""), "without control characters"
    assert (run.driver_address, run.cell_files) == ({}, [{"name": "a.csv", "size": 9, "path": None}])
    assert (run.spec["mlflow"], run.spec["tensorboard"]) == (None, None)
    assert [event["kind"] for event in Run.stored(run).events] == ["file", "epoch"]


def test_a_study_brings_no_pickle(tmp_path, elsewhere):
    """Optuna's CMA-ES unpickles attributes of trials where a search goes on."""
    optuna = pytest.importorskip("optuna")
    search = store.SearchFolder(store.searches_folder() / "20261121-000002-bbbbbb")
    search.path.mkdir(parents=True)
    spec = {"run": search.path.name, "name": "tuned", "trials": 2, "objective": "loss:min", "search": "cmaes"}
    record = {
        "format": 1,
        "created": 1.0,
        "spec": spec,
        "state": ev.LOST,
        "driver_address": {"livy": "http://stranger"},
    }
    (search.path / "search.json").write_text(json.dumps(record))
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(search.journal)))
    study = optuna.create_study(study_name=search.path.name, storage=storage)
    attributes = {"cma:optimizer:0": "80", "cma:generation": 3}
    study.add_trial(optuna.create_trial(value=1.0, params={}, distributions={}, system_attrs=attributes))
    for name, value in attributes.items():
        storage.set_trial_system_attr(study.ask()._trial_id, name, value)
    bundle.write(tmp_path / "tuned.zip", [], search.record())
    with zipfile.ZipFile(tmp_path / "tuned.zip") as passed_on:
        assert b"optimizer" not in passed_on.read(f"searches/{search.path.name}/study.journal")
    remade(tmp_path / "tuned.zip", replace("study.journal", search.journal.read_bytes()))
    remade(tmp_path / "tuned.zip", replace("search.json", json.dumps(record).encode()))
    elsewhere()
    bundle.read(tmp_path / "tuned.zip")
    found = store.find_search("tuned")
    trials = open_study(store.SearchFolder(found.folder).journal, RunSpec.from_record(found.spec)).get_trials()
    assert [trial.system_attrs for trial in trials] == [{"cma:generation": 3}, {}, {"cma:generation": 3}]
    assert trials[0].value == 1.0 and found.driver_address == {}


def test_other_methods_of_compression_are_refused(whole, tmp_path, elsewhere):
    """LZMA lets a file of some bytes ask for gigabytes of memory."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_LZMA) as made:
        made.writestr(bundle.MANIFEST, "{}")
    with pytest.raises(bundle.BundleError, match="is no archive of %ddl export"):
        bundle.read(tmp_path / "a.zip")
    # Not of the list alone.
    path = written(whole, tmp_path)
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(tmp_path / "b.zip", "w", zipfile.ZIP_DEFLATED) as made:
        for name in archive.namelist():
            method = zipfile.ZIP_LZMA if name.endswith("events.jsonl") else zipfile.ZIP_DEFLATED
            made.writestr(name, archive.read(name), method)
    elsewhere()
    with pytest.raises(bundle.BundleError, match="is no archive of %ddl export"):
        bundle.read(tmp_path / "b.zip")


def test_a_run_that_lives_by_its_record_is_refused(tmp_path, elsewhere, whole):
    path = written(whole, tmp_path)
    live = json.loads((whole.path / "run.json").read_text()) | {"state": "RUNNING"}
    remade(path, replace("run.json", json.dumps(live).encode()))
    elsewhere()
    with pytest.raises(bundle.BundleError, match="has not ended"):
        bundle.read(path)


def test_a_bomb_is_not_unpacked(whole, tmp_path, elsewhere, monkeypatch):
    path = written(whole, tmp_path)
    name = next(iter(zipfile.ZipFile(path).namelist()))

    def change(content, manifest):
        content[name] = bytes(50_000_000)  # the list says less

    remade(path, change)
    elsewhere()
    taken = []
    monkeypatch.setattr(bundle, "_CHUNK_BYTES", 10_000)
    monkeypatch.setattr(hashlib, "sha256", lambda: Counting(taken))
    with pytest.raises(bundle.BundleError, match="is not what its list says"):
        bundle.read(path)
    assert sum(taken) < 30_000


class Counting:
    def __init__(self, taken):
        self.taken = taken

    def update(self, data):
        self.taken.append(len(data))

    def hexdigest(self):
        return ""


@tried(20, 2000)
def test_whatever_the_file_is_the_answer_is_one_line(whole, tmp_path, elsewhere, count):
    good = written(whole, tmp_path).read_bytes()
    elsewhere()

    def read(change):
        position, data = change
        at = position % len(good)
        path = tmp_path / "bad.zip"
        path.write_bytes(good[:at] + data + good[at + len(data) :])
        try:
            bundle.read(path)
        except bundle.BundleError as error:
            assert "\n" not in str(error) and str(error).isprintable()
            assert store.list_runs() == []
        shutil.rmtree(store.runs_folder(), ignore_errors=True)

    each(st.tuples(st.integers(0, 10**6), st.binary(min_size=1, max_size=8)), count, read)


def test_the_command_line_exports_and_imports(whole, tmp_path, elsewhere, capsys):
    assert main(["export", "digits", str(tmp_path / "digits")]) == 0
    assert f"digits is in {tmp_path / 'digits.zip'}" in capsys.readouterr().out
    assert main(["export", "none", str(tmp_path / "none")]) == 1
    assert "there is no run none" in capsys.readouterr().err
    elsewhere()
    assert main(["import", str(tmp_path / "digits.zip")]) == 0
    assert "digits is here: ddl-magics show" in capsys.readouterr().out
    assert main(["runs", "tag:paper", "loss<0.6"]) == 0
    assert "digits" in capsys.readouterr().out
    assert main(["runs", "tag:"]) == 1
    assert capsys.readouterr().err.startswith("tag: needs a text")
    assert main(["import", str(tmp_path / "none.zip")]) == 1
    assert "cannot be imported: No such file" in capsys.readouterr().err


def test_what_was_imported_is_marked_and_an_archive_cannot_say_otherwise(whole, tmp_path, elsewhere):
    record = {**json.loads((whole.path / "run.json").read_text()), "imported": False}
    path = written(whole, tmp_path)
    remade(path, replace("run.json", json.dumps(record).encode()))
    assert not store.find_run("digits").imported
    elsewhere()
    bundle.read(path)
    record = store.find_run("digits")
    assert record.imported and not Run.stored(record).attachable
    assert "imported: it was trained elsewhere" in describe(Run.stored(record))
    with pytest.raises(UsageError, match=r"^digits was imported and cannot be attached"):
        find_stored(record, lambda address: None)


def test_a_result_and_variables_that_are_damaged_are_told_in_one_line(data_dir):
    artifact = ev.make("artifact", 0, name=VARIABLES, size=1, sha256="0")
    result = ev.make("result", 0, value=None, encoding="json", artifact="result.json")
    folder = stored(ev.FINISHED, [artifact, result, epoch(0)])
    run = Run.stored(folder.record())
    for data in (b"", b"{\xff", b"[" * 100_000):
        folder.file("result.json").write_bytes(data)
        folder.file(VARIABLES).write_bytes(data)
        for read in (lambda: run.result, lambda: run.variables):
            with pytest.raises(NotInRun, match=r"of digits cannot be read: .*[^\n]$"):
                read()
    with zipfile.ZipFile(folder.file(VARIABLES), "w") as archive:
        archive.writestr(INDEX, "{}")
    with pytest.raises(NotInRun, match="the variables of digits cannot be read"):
        run.variables  # noqa: B018


def test_a_disk_with_just_enough_room_is_enough(whole, tmp_path, elsewhere, monkeypatch):
    path = written(whole, tmp_path)
    with zipfile.ZipFile(path) as archive:
        size = sum(file["size"] for file in json.loads(archive.read(bundle.MANIFEST))["files"].values())
    elsewhere()
    free = [size - 1]
    monkeypatch.setattr(bundle.shutil, "disk_usage", lambda _: SimpleNamespace(free=free[0]))
    with pytest.raises(bundle.BundleError, match=r"the archive needs .*, and .* are free in "):
        bundle.read(path)
    assert not any(store.runs_folder().iterdir())
    free[0] = size
    assert len(bundle.read(path).runs) == 1


def test_a_link_among_the_files_of_a_run_is_left_out(whole, tmp_path):
    """It may lead to any file of this user."""
    (tmp_path / "secret.txt").write_text("secret")
    (whole.path / "files" / "link.txt").symlink_to(tmp_path / "secret.txt")
    (whole.path / "files" / "folder").mkdir()
    with zipfile.ZipFile(written(whole, tmp_path)) as archive:
        names = [name.rpartition("/")[2] for name in archive.namelist()]
    assert "model-0.keras" in names and "link.txt" not in names and "folder" not in names
