"""Models of strangers by the thousand: `.keras` files, exports, registries, and the folders of servers.

pip and MLServer are not started: what they would get is looked at.
"""

import contextlib
import io
import json
import re
import shutil
import tempfile
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from IPython.core.error import UsageError
from support import strangers
from support.monitoring_logs import trained
from support.stored import inputs_of, stored

from ddl_magics import Registry, store
from ddl_magics.clusters.scoring import exported
from ddl_magics.commands import monitor, serve
from ddl_magics.commands.kernel import Kernel
from ddl_magics.errors import CannotServe, InOneLine
from ddl_magics.runs import Run
from ddl_magics.runtime import events as ev
from ddl_magics.runtime import lambda_layers
from ddl_magics.server import served as served_rows
from ddl_magics.serving import environment, launch, servable, servers
from ddl_magics.store import files, owner, trained_models

REFERENCE = trained(np.random.default_rng(6))
SAVED = {"keras_version": "3.15.1", "date_saved": "2026-11-21@10:00:00"}
LAMBDA = {"class_name": "__lambda__", "config": {"code": "4wAA", "defaults": None, "closure": None}}
LAYERS = [
    {"class_name": "InputLayer", "config": {"batch_shape": [None, 3], "dtype": "float32", "name": "x"}},
    {"class_name": "Dense", "config": {"name": "d", "units": 2, "activation": "linear"}},
    {"class_name": "Lambda", "config": {"name": "l", "function": LAMBDA, "output_shape": None}},
    {"class_name": "Lambda", "config": {"name": "m", "function": {"class_name": "function", "config": "f"}}},
]
CONFIG = {"module": "keras", "class_name": "Sequential", "config": {"name": "s", "layers": LAYERS}}
CONFIG["compile_config"] = {"optimizer": "adam", "loss": {"class_name": "function", "config": "g"}, "loss_type": "x"}


def description(format, model):
    return {
        "run": "20261121-999999-bbbbbb",
        "name": "digits",
        "metrics": {"loss": 0.5},
        "format": format,
        "model": model,
        "inputs": inputs_of("a"),
        "versions": {"python": "3.11", "ddl_magics": "1", "keras": "3.15.1", "tensorflow": "2.21.0"},
        "signature": {"inputs": [{"name": "", "dtype": "float32", "shape": [3]}], "outputs": []},
        "example": [[0.0, 0.0, 0.0]],
    }


class Boundary(CannotServe):
    """Here a server would start."""


class Machine:
    """Where pip and MLServer would be started: what they would get, and that nothing else comes."""

    def __init__(self, monkeypatch):
        monkeypatch.setattr(environment, "_run", self._pip)
        monkeypatch.setattr(launch, "_launch", self._mlserver)
        monkeypatch.delenv(environment.SETTING, raising=False)
        monkeypatch.setattr(servable, "find_spec", lambda name: None)  # a notebook without Keras and MLflow
        for name in ("synchronize", "synchronize_folder", "synchronize_tree"):
            monkeypatch.setattr(files, name, lambda *_: None)

    def _pip(self, command, *_):
        if command[-2:-1] == ["venv"]:
            Path(command[-1]).mkdir(parents=True, exist_ok=True)
            return
        packages = command[command.index("--") + 1 :]
        form = re.compile(r"[a-z-]+==[0-9][0-9a-z.]*")
        if not all(form.fullmatch(package) for package in packages):
            raise strangers.Broken(f"pip gets {packages!a}")

    def _mlserver(self, python, folder, detached):
        settings = json.loads((folder / "settings.json").read_text())
        if Path(settings["model"]).parent.parent != folder or not str(python).startswith(str(folder.parents[1])):
            raise strangers.Broken(f"MLServer gets {settings} of {python}")
        for path in folder.rglob("*"):
            if not path.is_dir() and (path.is_symlink() or not path.is_file()):
                raise strangers.Broken(f"{path} is a link, or no file")
        raise Boundary("here a server would start")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder for files of strangers, below one with a canary beside it; all temporary files are there, too."""
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    for name in ("data", "tmp", "theirs", "outside"):
        (tmp_path / name).mkdir()
    (tmp_path / "outside" / "mine.txt").write_text("mine")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.chdir(tmp_path / "outside")
    Machine(monkeypatch)
    before = strangers.tree(tmp_path / "outside")
    yield tmp_path / "theirs"
    assert strangers.tree(tmp_path / "outside") == before and not list(tmp_path.rglob(f"{strangers.CANARY}*"))


def served(kernel, model, to=None):
    """ "a server starts", "refused"; of a deployment "deployed"."""
    out = io.StringIO()
    arguments = {"name": None, "port": None, "detached": False, "log": None, "log_inputs": None, "log_sample": None}
    try:
        with contextlib.redirect_stdout(out):
            text = str(serve.serve(kernel, model, **arguments, to=to, stop=None))
        strangers.for_a_terminal(text)
        return "deployed"
    except Boundary:
        return "server"
    except (InOneLine, UsageError) as error:
        if isinstance(error.__context__, Boundary):
            return "server"
        strangers.in_one_line(str(error), 900)
        return "refused"
    finally:
        for line in out.getvalue().splitlines():
            strangers.in_one_line(line, 900)


class Session:
    """Of a notebook with no runs."""

    def find(self, name):
        record = store.find_run(name)
        if record is None:
            raise UsageError(f"there is no run {name}")
        return Run.stored(record)


KERNEL = Kernel(Session())


def keras_file(chance):
    entries = {"metadata.json": SAVED, "config.json": CONFIG}
    whole = {name: json.dumps(value).encode() for name, value in entries.items()}
    whole["model.weights.h5"] = b"\x89HDF\r\n\x1a\n" + bytes(100)
    victim = chance.choice([*entries, None])
    if victim is not None:
        whole[victim] = strangers.json_file(entries[victim], chance)
    if victim is not None and chance.randrange(2):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, data in whole.items():
                archive.writestr(name, data)
        return buffer.getvalue()
    return strangers.zip_file(whole, chance)


@strangers.tried(25, 2000)
def test_a_keras_file_of_an_imported_run(place, tmp_path, count):
    folder = stored(ev.FINISHED, [ev.make("artifact", 0, name="model-0.keras", size=1, sha256="0")], name="digits")
    folder.update({"imported": True})
    file = folder.file("model-0.keras")

    def read(data):
        file.write_bytes(data)
        codes, functions = lambda_layers.functions_in(str(file))
        assert lambda_layers.functions_in(data) == (codes, functions)
        assert all(isinstance(text, str) for text in (*codes, *functions))
        assert trained_models.python_of(data) is None and trained_models.trust(file) is None
        return served(KERNEL, "digits")

    strangers.Watch(".keras files", tmp_path / "data", tmp_path / "tmp").each(count, keras_file, read)


def an_export(chance):
    """The folder of an export: {name: content}, or the target of a link."""
    format, model = chance.choice(
        [
            ("keras", "model.keras"),
            ("mlflow", "data/model.keras"),
            ("saved_model", "a.pb"),
            ("onnx", "m.onnx"),
        ]
    )
    about = description(format, model)
    found = {
        "ddl_magics.json": strangers.json_file(about, chance, of=3),
        "reference.json": strangers.json_file(REFERENCE, chance, of=3),
        model: b"PK\3\4" + bytes(50),
        "MLmodel": b"flavors: {}\n",
        "requirements.txt": f"-r {strangers.CANARY}.txt\n".encode(),
    }
    kind = chance.randrange(6)
    if kind == 0:
        found[chance.choice(["link", "data/link", model, "ddl_magics.json"])] = chance.choice(
            ["..", ".", "/usr/lib", "../outside/mine.txt", "/proc/self", "/dev/zero", "nowhere", "loop/loop"]
        )
    elif kind == 1:
        found[chance.choice(["pipe", "data/pipe", model])] = "fifo"
    elif kind == 2:
        found[chance.choice(strangers.TEXTS)[:200].lstrip("/.").replace("..", "") or "x"] = b"x"
    elif kind == 3:
        del found[chance.choice([*found])]
    return found


@strangers.tried(20, 2000)
def test_an_export(place, tmp_path, count):
    folder, deployed = place / "export", place / "deployed"

    def read(made):
        strangers.unpack(made, folder)
        try:
            outcomes = [served(KERNEL, str(folder))]
            for target in ("kserve", "azureml"):
                outcomes.append(served(KERNEL, str(folder), to=(target, str(deployed))))
                if deployed.exists():
                    well_formed(deployed)
                    shutil.rmtree(deployed)
            with contextlib.suppress(InOneLine):
                file, _ = exported(folder)
                assert file.is_relative_to(folder)
            try:
                reference, run = monitor._reference(str(folder), Session())
                assert run is None and reference["features"] is not None
            except UsageError as error:
                strangers.in_one_line(str(error), 900)
            return "/".join(outcomes)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    watch = strangers.Watch("exports", tmp_path / "data", tmp_path / "tmp", folder, deployed, place)
    watch.each(count, an_export, read)


def well_formed(deployed):
    for path in deployed.rglob("*"):
        if path.is_symlink() or not (path.is_dir() or path.is_file()):
            raise strangers.Broken(f"{path} is a link, or no file")
    keys = {"apiVersion", "kind", "metadata", "spec", "$schema", "name", "auth_mode", "endpoint_name", "model", "tags"}
    for path in deployed.glob("*.yaml"):
        content = yaml.safe_load(path.read_text())
        if not {*content} <= keys | {"instance_type", "instance_count"}:
            raise strangers.Broken(f"{path.name} has {[*content]}")


def a_registry(chance):
    about = json.dumps(description("keras", "model.keras")).encode()
    found = {}
    for version in (1, 2):
        found |= {f"digits/{version}/ddl_magics.json": about, f"digits/{version}/model.keras": b"x"}
        found[f"digits/.claims/{version}"] = b""
    found |= {"digits/aliases/champion.0.1": b"", "digits/aliases/champion.1.2": b"", "other/1/ddl_magics.json": about}
    names = ["digits/{}", "digits/.claims/{}", "digits/aliases/{}", "digits/aliases/champion.{}.2", "{}"]
    names += ["digits/aliases/champion.2.{}", "digits/aliases/{}.0.1"]
    numbers = ["²", "٣", "0", "00", "01", "9" * 200, "-1", "1e3", "3.part", ".3.part", "1 ", "champion", "2.2.2"]
    for _ in range(chance.choice((1, 1, 3))):
        name = chance.choice(names).format(chance.choice([*numbers, *strangers.TEXTS])[:200]).replace("..", "")
        found[name.lstrip("/")] = chance.choice(
            [b"x", b"", b"\0" * 100, "..", "/usr/lib", "nowhere", "fifo", f"{name}/ddl_magics.json"]
        )
    if chance.randrange(3) == 0:
        del found[chance.choice([*found])]
    if chance.randrange(4) == 0:
        found["digits/2/ddl_magics.json"] = strangers.json_file(description("keras", "model.keras"), chance)
    return found


@strangers.tried(12, 2000)
def test_a_registry(place, tmp_path, count):
    folder = place / "registry"

    def read(made):
        strangers.unpack(made, folder)
        registry = Registry(folder)
        try:
            outcomes = []
            for which in ("", "champion", "2", "01", "nothing"):
                outcomes.append(served(KERNEL, f"{folder}/digits@{which}"))
            for name in registry.names():
                strangers.in_one_line(name)
                try:
                    registry.versions(name), registry.aliases(name)
                except InOneLine as error:
                    strangers.in_one_line(str(error), 900)
            try:
                number = registry.add("digits", lambda empty: (empty / "model.keras").write_bytes(b"x"), "newest")
                assert registry.version("digits", "newest") == number
            except InOneLine as error:
                strangers.in_one_line(str(error), 900)
                outcomes.append("not added")
            return "/".join(sorted({*outcomes}))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    strangers.Watch("registries", tmp_path / "data", tmp_path / "tmp", place).each(count, a_registry, read)


SETTINGS = {"name": "digits", "version": "1", "model": "/m", "http_port": 18080, "grpc_port": 18081, "detached": False}
SETTINGS |= {"parent": 1, "log": None, "log_inputs": True, "log_sample": 1.0, "python": "/p", "created": 1.0}
STATUS = {"time": 5.0, "version": "1", "rate": 2.0, "requests": 40, "errors": 1, "recent_errors": 0, "dropped": 0}
STATUS |= {"rates": [1.0, 2.0], "latency": {"p50": 0.001, "p95": 0.002, "p99": None}}
SIGNATURE = {"inputs": [["x", "float32", [3]]], "outputs": [["y", "float32", [2]]]}


def a_server(chance):
    here = dict(owner.this_process())
    whole = {"settings.json": SETTINGS, "status.json": STATUS, "owner.json": here, "signature.json": SIGNATURE}
    whole["state.json"] = {"pid": here["pid"], "listening": True}
    found = {name: json.dumps(value).encode() for name, value in whole.items()}
    for name in chance.sample(sorted(whole), chance.choice((1, 1, 2, 3))):
        found[name] = strangers.json_file(whole[name], chance)
    if chance.randrange(3) == 0:
        process = {"pid": chance.choice([-1, 0, 1, "-1", 2**70, 0.5]), "start": chance.choice([None, "", "x", 5])}
        found["owner.json"] = json.dumps({**here, **process}).encode()
    lines = ["\x1b[2JValueError: \x1b]0;title\x07", "[Errno 2]", "no error", chance.choice(strangers.TEXTS)]
    found["output.txt"] = "\n".join(lines).encode(errors="surrogatepass") * chance.choice((1, 3))
    return found


@strangers.tried(30, 3000)
def test_the_folder_of_a_server(place, tmp_path, monkeypatch, count):
    killed = []
    monkeypatch.setattr(servers, "os", SimpleNamespace(kill=lambda *arguments: killed.append(arguments)))
    monkeypatch.setattr(servers, "STOP_SECONDS", 0.0)
    own = servers.servers_folder() / "digits"

    def read(made):
        strangers.unpack(made, own)
        try:
            found = servers.list_served()
            json.dumps(served_rows.servers(), allow_nan=False)
            strangers.for_a_terminal(str(serve.serving(KERNEL)))
            for server in found:
                strangers.in_one_line(servers.describe(server), 1500)
                repr(server)
                with contextlib.suppress(CannotServe):
                    strangers.for_a_terminal(server.how_to_call())
                with contextlib.suppress(CannotServe):
                    strangers.in_one_line(server.stop())
            if any(pid != owner.this_process()["pid"] for pid, _ in killed):
                raise strangers.Broken(f"it kills {killed}")
            return "listed" if found else "left out"
        finally:
            killed.clear()
            shutil.rmtree(own, ignore_errors=True)

    strangers.Watch("folders of servers", tmp_path / "data").each(count, a_server, read)
