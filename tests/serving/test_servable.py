"""In which format a run's model is exported, and with which settings it is served; no server is started."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from ddl_magics.errors import CannotExport, CannotServe
from ddl_magics.serving import environment, launch, servable
from ddl_magics.serving.servable import ServableModel

pytestmark = pytest.mark.usefixtures("data_dir")


@pytest.mark.parametrize(
    ("installed", "lambdas", "asked", "written"),
    [
        ((), False, "", "keras"),
        (("keras",), False, "", "keras"),
        (("mlflow",), False, "", "keras"),
        (("keras", "mlflow"), False, "", "mlflow"),
        (("keras", "mlflow"), False, "saved_model", "saved_model"),
        (("keras", "mlflow"), True, "", "saved_model"),
        (("keras", "mlflow"), True, "mlflow", "MLflow does not load Lambda layers elsewhere"),
        ((), True, "", "is served as a graph, which needs Keras"),
    ],
)
def test_the_format_is_one_that_the_model_and_this_machine_have(
    monkeypatch, tmp_path, installed, lambdas, asked, written
):
    done = []
    monkeypatch.setattr(servable, "find_spec", lambda name: SimpleNamespace() if name in installed else None)
    monkeypatch.setattr(servable, "functions_in", lambda file, compiled: (["f"], []) if lambdas else ([], []))
    monkeypatch.setattr(servable.keras_version, "saved_by", lambda file: "3.15.1")
    monkeypatch.setattr(servable, "write", lambda trained, folder, format: done.append(format))
    model = servable.of_trained("digits", "20261121-999999-bbbbbb", SimpleNamespace(file=tmp_path / "m.keras"))
    assert (model.name, model.run, model.keras) == ("digits", "20261121-999999-bbbbbb", None if lambdas else "3.15.1")
    if " " not in written:
        model.write(asked, tmp_path)
        assert done == [written]
    else:
        with pytest.raises(CannotExport, match=written):
            model.write(asked, tmp_path)


class Boundary(Exception):
    """Here a server would start."""


@pytest.fixture
def settings(monkeypatch):
    """What a server would be started with, by name."""
    started = {}

    def start(python, folder, detached):
        started[folder.name] = json.loads((folder / "settings.json").read_text())
        raise Boundary

    monkeypatch.setattr(launch, "_launch", start)
    monkeypatch.setattr(environment, "python", lambda keras, report: "python")
    return started


def test_a_server_gets_the_model_s_name_and_what_was_asked_for(settings):
    said = []
    model = ServableModel("digits", lambda format, folder: (folder / "m").write_text(format or "any"), run="")
    every = launch.Options(detached=True, log="log", log_inputs=False, log_sample=0.25)
    for name, options in (("", launch.Options()), ("other", every)):
        with pytest.raises(Boundary):
            model.serve(name, options, said.append)
    plain, asked = settings["digits"], settings["other"]
    assert plain["name"] == "digits" and asked["name"] == "other"
    logs = [{name: one[name] for name in ("detached", "log_inputs", "log_sample")} for one in (plain, asked)]
    assert logs[0] == {"detached": False, "log_inputs": True, "log_sample": 1.0} and plain["log"] is None
    assert logs[1] == {"detached": True, "log_inputs": False, "log_sample": 0.25} and asked["log"].endswith("/log")
    assert plain["version"] == "1" and said.count("starting MLServer for version 1 of digits") == 1
    assert sum("was trained elsewhere" in line for line in said) == 2


def run(code, said):
    environment._run([sys.executable, "-c", code], 0.0, said.append)


def test_the_error_of_pip_is_told_also_where_its_lines_come_in_parts(monkeypatch):
    monkeypatch.setattr(environment, "MAKE_SECONDS", float("inf"))
    said = []
    run("print('Collecting a\\nCollecting b\\nInstalling collected packages: a, b')", said)
    assert len(said) == 1 and said[0].endswith(" s: installing 2 packages")
    parts = "import sys, time\nfor part in ('ERR', 'OR: no b\\n', 'later\\n'):\n"
    parts += "    print(part, end='', flush=True); time.sleep(0.05)\n"
    with pytest.raises(CannotServe, match=r"environment cannot be made: ERROR: no b$"):
        run(parts + "sys.exit(1)", said)
    with pytest.raises(CannotServe, match=r"cannot be made: 3$"):
        run("import sys; sys.exit(3)", said)
    monkeypatch.setattr(environment, "MAKE_SECONDS", 60.0)
    with pytest.raises(CannotServe, match="was not made within 1 minutes"):
        run("import time; time.sleep(60)", said)


def test_an_environment_that_could_not_be_made_is_not_there(monkeypatch, tmp_path):
    def fail(command, began, report):
        raise CannotServe("no room")

    monkeypatch.setattr(environment, "_run", fail)
    with pytest.raises(CannotServe, match="no room"):
        environment._make(tmp_path / "env", ["keras==3.15.1"], print)
    assert not (tmp_path / "env").exists()


def test_who_waits_gets_the_status_of_the_newest_server(monkeypatch):
    monkeypatch.setattr(launch, "_children", [])
    assert launch.wait(print) == 0
    launch._children.append(subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"]))
    assert launch.wait(print) == 3
