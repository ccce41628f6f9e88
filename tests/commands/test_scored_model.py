"""Which model `%ddl predict` and `%ddl evaluate` mean; that they score with it is tested on every cluster."""

import json
from types import SimpleNamespace

import pytest
from IPython.core.error import UsageError
from support.stored import inputs_of

from ddl_magics.commands import scored_model
from ddl_magics.errors import CannotScore


class Runs:
    """A session with one run, `energy`."""

    def __init__(self, file):
        spec = SimpleNamespace(label="demand", weight=None, transform=None, sequence_length=None)
        events = [{"kind": "data", "inputs": ["heat"]}]
        self.energy = SimpleNamespace(
            id="1", name="energy", spec=spec, events=events, trained=lambda: SimpleNamespace(file=file)
        )

    def find(self, word):
        if word not in ("energy", "1"):
            raise UsageError(f"there is no run {word}.")
        return self.energy


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Runs(tmp_path / "of-the-run.keras")


def export(folder, file="model.keras"):
    folder.mkdir()
    (folder / file).write_bytes(b"weights")
    about = {"format": "keras" if file.endswith(".keras") else "onnx", "model": file, "versions": {}}
    (folder / "ddl_magics.json").write_text(json.dumps(about | {"inputs": inputs_of("load", "heat")}))
    return folder


def test_a_run_knows_its_columns(runs, tmp_path):
    model = scored_model.find("energy", runs)
    assert (model.key, model.file, model.label) == ("1", tmp_path / "of-the-run.keras", "demand")
    assert (model.features(()), model.features(("a", "b"))) == (["heat"], ["a", "b"])


def test_an_export_knows_its_columns_too_and_a_file_does_not(runs, tmp_path):
    model = scored_model.find(str(export(tmp_path / "v1")), runs)
    assert (model.file, model.label, model.features(())) == (
        tmp_path / "v1" / "model.keras",
        None,
        inputs_of("load", "heat"),
    )
    file = scored_model.find("v1/model.keras", runs)
    assert file.key == model.key, "the same bytes"
    with pytest.raises(CannotScore, match=r"v1/model\.keras does not know the columns .*--features a b"):
        file.features(())


def test_a_name_is_the_runs_before_it_is_a_folders(runs, tmp_path):
    export(tmp_path / "energy")
    export(tmp_path / "v1")
    assert scored_model.find("energy", runs).run is runs.energy
    assert scored_model.find("./energy", runs).run is None
    assert scored_model.find("v1", runs).file.parent.name == "v1"


def test_what_is_no_model_is_one_line(runs, tmp_path):
    export(tmp_path / "onnx", "model.onnx")
    (tmp_path / "empty").mkdir()
    for word, says in [
        ("empty", r"empty is no exported model: it has no ddl_magics\.json"),
        ("nowhere/v1", r"nowhere/v1 is no exported model"),
        ("onnx", "onnx has the format onnx: give an export in the format keras or mlflow"),
        ("nowhere/model.keras", r"nowhere/model\.keras cannot be read: No such file"),
    ]:
        with pytest.raises(CannotScore, match=says):
            scored_model.find(word, runs)
    with pytest.raises(UsageError, match="there is no run nowhere"):
        scored_model.find("nowhere", runs)
