"""What a stranger's model says of itself reaches neither pip nor YAML, and is told apart from a model of one's own."""

import json
import os
import zipfile

import pytest
import yaml
from support.stored import finished

from ddl_magics.clusters import scoring
from ddl_magics.errors import CannotExport, CannotServe
from ddl_magics.models import keras_version
from ddl_magics.runtime import lambda_layers
from ddl_magics.serving import deployment, environment, servable

NOT_VERSIONS = (
    "9/../model/evil",
    "9/../../../evil.zip",
    "9.0 --index-url=http://stranger",
    "9.0\n--extra-index-url http://stranger",
    "9.0\n",
    "9.0; evil",
    "9.0,!=3.1",
    "9.0+a/../evil",
    "@file:///tmp/evil",
    "٣.٤",
    "9",
    "",
    None,
    ["3.4.1"],
)


def keras_file(path, version):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", json.dumps({"keras_version": version}))
    return path


def an_export(folder, **changes):
    folder.mkdir(exist_ok=True)
    described = {"format": "keras", "model": "model.keras", "versions": {"keras": "3.4.1"}, "name": "digits", **changes}
    (folder / "ddl_magics.json").write_text(json.dumps(described))
    return folder


@pytest.mark.parametrize("version", NOT_VERSIONS)
def test_what_is_no_version_is_refused_before_pip_sees_it(tmp_path, version):
    with pytest.raises(CannotServe, match="cannot exist: its file is damaged, or made to do harm"):
        keras_version.saved_by(keras_file(tmp_path / "model.keras", version))
    if version is not None:  # of an export, one that is not known
        with pytest.raises(CannotServe, match="made to do harm"):
            servable.of_export(an_export(tmp_path / "export", versions={"keras": version}))


@pytest.mark.parametrize("version", ["3.4", "3.4.1", "3.14.0rc1", "3.5.0.dev2024083003", "2.15.0"])
def test_versions_are_taken(tmp_path, version):
    assert keras_version.saved_by(keras_file(tmp_path / "model.keras", version)) == version
    assert keras_version.checked(f"{version}+nv24.1") == version
    assert servable.of_export(an_export(tmp_path / "export", versions={"keras": version})).keras == version


def test_a_file_without_a_version_or_that_is_no_archive_says_none(tmp_path):
    file = tmp_path / "model.keras"
    file.write_bytes(b"no zip")
    assert keras_version.saved_by(file) is None
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("metadata.json", b'["' + b" " * 10**7 + b'"]')
    assert keras_version.saved_by(file) is None, "it is not read whole"


def test_pip_takes_wheels_of_the_index_alone(tmp_path, monkeypatch):
    commands = []
    monkeypatch.setattr(environment, "_run", lambda command, *_: commands.append(command))
    (folder := tmp_path / "serving").mkdir()
    monkeypatch.setattr(environment.shutil, "rmtree", lambda *_, **__: None)
    environment._make(folder, environment.requirements("9.9.9"), lambda _: None)
    venv, pip = commands
    assert venv[1:4] == ["-I", "-m", "venv"] and pip[1:4] == ["-I", "-m", "pip"], "no modules of the notebook's folder"
    options, _, packages = ((pip[: (end := pip.index("--"))]), "--", pip[end + 1 :])
    assert options[options.index("--only-binary") + 1] == ":all:"
    assert "keras==9.9.9" in packages and all(environment._PINNED.fullmatch(package) for package in packages)


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "keras\x1b[2J"},
        {"model": "../../home/model.keras"},
        {"model": "/etc/model.keras"},
        {"model": 1},
        {"versions": ["3.4"]},
        {"format": None},
    ],
)
def test_a_description_of_another_form_is_damaged(tmp_path, changes):
    with pytest.raises(CannotExport, match=r"ddl_magics.json is damaged: export the model again"):
        servable.of_export(an_export(tmp_path / "export", **changes))


@pytest.mark.parametrize("link", [True, False])
def test_an_export_with_a_link_or_a_pipe_is_not_copied(tmp_path, link):
    """A link to / would be a copy of the disk, and a pipe would be waited for."""
    folder, target = an_export(tmp_path / "export"), tmp_path / "target"
    (folder / "data").mkdir()
    (folder / "model.keras").write_bytes(b"model")
    target.mkdir()
    servable.of_export(folder).write("", target)
    assert (target / "model.keras").read_bytes() == b"model"
    (folder / "data" / "x").symlink_to("/usr/lib") if link else os.mkfifo(folder / "data" / "x")
    with pytest.raises(CannotExport, match=r"export has data/x, which is a link or no file: remove it first$"):
        servable.of_export(folder).write("", target)
    assert not (target / "data" / "x").exists()


def test_a_description_that_is_a_pipe_or_has_no_end_is_damaged(tmp_path, monkeypatch):
    file = an_export(tmp_path / "export") / "ddl_magics.json"
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(CannotExport, match="is damaged"):
        servable.of_export(tmp_path / "export")
    file.unlink()
    file.symlink_to("/dev/zero")
    with pytest.raises(CannotExport, match="is damaged"):
        servable.of_export(tmp_path / "export")
    monkeypatch.setattr(scoring, "MAX_DESCRIPTION_BYTES", 10)
    file.unlink()
    with pytest.raises(CannotExport, match="is damaged"):
        servable.of_export(an_export(tmp_path / "export"))


def test_the_config_of_a_model_is_read_as_far_as_it_may_be_long(tmp_path, monkeypatch):
    """Of one that is damaged, or a bomb, nothing is known: Keras' safe mode has the word."""
    layer = {"class_name": "Lambda", "config": {"function": {"class_name": "function", "config": ["f"]}}}
    with zipfile.ZipFile(tmp_path / "a.keras", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("config.json", json.dumps([layer, " " * 1000]))
    content = (tmp_path / "a.keras").read_bytes()
    assert lambda_layers.functions_in(content) == ([], ["['f']"]), "texts, whatever they are"
    at = content.index(b"config.json") + len("config.json")
    damaged = content[: at + 3] + b"\xff\xff\xff" + content[at + 6 :]
    assert lambda_layers.functions_in(damaged) == ([], []), "zlib's error"
    monkeypatch.setattr(lambda_layers, "MAX_CONFIG_BYTES", 500)
    assert lambda_layers.functions_in(content) == ([], [])


@pytest.mark.parametrize("text", ["[1, 2", '"3"', "[]", "[" * 100_000])
def test_a_description_that_is_no_object_is_damaged(tmp_path, text):
    (an_export(tmp_path / "export") / "ddl_magics.json").write_text(text)
    with pytest.raises(CannotExport, match="is damaged"):
        servable.of_export(tmp_path / "export")


def test_the_id_of_a_run_is_one_or_is_left_out(tmp_path):
    hostile = 'a"\n  labels: {evil: "yes"}\nx: "'
    assert servable.of_export(an_export(tmp_path / "export", run=hostile)).run == ""
    assert servable.of_export(an_export(tmp_path / "export", run="20261121-000001-aaaaaa")).run[:4] == "2026"


@pytest.mark.parametrize(("target", "file"), [("kserve", "inferenceservice.yaml"), ("azureml", "deployment.yaml")])
def test_texts_of_a_deployment_are_scalars(tmp_path, target, file):
    hostile = 'a"\n  labels: {evil: "yes"}\nevil: "\\x07 {name}'
    (folder := tmp_path / target).mkdir()
    deployment.write(target, folder, "yes", hostile, "3.4.1", lambda path: None)
    content = yaml.safe_load((folder / file).read_text())
    run = content["metadata"]["annotations"]["ddl-magics/run"] if target == "kserve" else content["tags"]["run"]
    assert run == hostile and "evil" not in content
    assert (content["metadata"]["name"] if target == "kserve" else content["endpoint_name"]) == "yes"


def test_a_model_that_no_run_of_this_machine_has_trained_is_said_to_be_from_elsewhere(data_dir, tmp_path):
    own = finished()
    assert servable.of_export(an_export(tmp_path / "export", run=own.path.name)).remark == ""
    elsewhere = "digits was trained elsewhere: no run of this machine has made it; use models of people you trust"
    assert servable.of_export(an_export(tmp_path / "export", run="20261121-999999-bbbbbb")).remark == elsewhere
    assert servable.of_export(an_export(tmp_path / "export", run="digits")).remark == elsewhere, "a name is no id"
    assert servable.of_export(an_export(tmp_path / "export")).remark == elsewhere
    own.update({"imported": True})
    assert servable.of_export(an_export(tmp_path / "export", run=own.path.name)).remark == elsewhere
