"""notebooks/hdinsight.ipynb: papermill runs it in sparkmagic's PySpark kernel, through a gateway as HDInsight's."""

import base64
import os
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest
from livy.client import Client, Session
from support import sparkmagic_kernels
from support.paths import ROOT

NOTEBOOK = ROOT / "notebooks" / "hdinsight.ipynb"
CELL_SECONDS = 400

#: A statement that writes the secret of the session's run to a file: what it printed would be logged.
PEEK = """exec('''
import gc
for held in gc.get_objects():
    if type(held).__module__.startswith("ddl_runtime_") and type(held).__name__ == "Credentials":
        open({file!r}, "wb").write(held.secret)
''')"""

pytestmark = [pytest.mark.livy, pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Executed:
    """The executed notebook; the folder with the configuration and what it wrote; the secret of its run; Livy's own
    log of its session.
    """

    notebook: nbformat.NotebookNode
    folder: Path
    secret: bytes
    log: str


@pytest.fixture(scope="module")
def executed(livy_gateway, livy_server, tmp_path_factory):
    folder, file = tmp_path_factory.mktemp("hdinsight"), tmp_path_factory.mktemp("secret") / "secret"
    known = sparkmagic_kernels.configuration(
        folder / "sparkmagic", livy_gateway.url, livy_gateway.user, livy_gateway.password
    )
    bin_folder = sparkmagic_kernels.PYTHON.parent
    # The kernel's specification says `python` and no more; the certificate's authority is the tests' own.
    path = f"{bin_folder}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, **known, "PATH": path, "REQUESTS_CA_BUNDLE": str(livy_gateway.ca)}
    command = [bin_folder / "papermill", NOTEBOOK, folder / NOTEBOOK.name, "-k", "pysparkkernel", "--cwd", folder]
    command += ["--no-progress-bar", "--execution-timeout", str(CELL_SECONDS)]
    with open(folder / "papermill.log", "wb") as said:
        running = subprocess.Popen(command, env=environment, stdout=said, stderr=subprocess.STDOUT)
    try:
        log = peek(Client(livy_server.url), running, file)
        assert running.wait(CELL_SECONDS) == 0, (folder / "papermill.log").read_text()
    finally:
        running.kill()
        running.wait()
    return Executed(nbformat.read(folder / NOTEBOOK.name, as_version=4), folder, file.read_bytes(), log)


def peek(client, running, file):
    """While the notebook is running, have the secret of its run written to `file`. Returns the session's log."""
    while running.poll() is None:
        for known in client.get("/sessions").json["sessions"]:
            if known["state"] == "idle":
                session = Session(client, known["id"])
                assert session.run(PEEK.format(file=str(file)))["status"] == "ok"
                if file.exists():
                    return client.get(f"{session.path}/log?size=1000").text
        time.sleep(0.5)
    raise AssertionError("the notebook has ended before its run was seen")


def printed(notebook, beginning):
    """What the cell that begins so has printed and shown, as text."""
    (cell,) = (cell for cell in notebook.cells if cell.source.startswith(beginning))
    return "".join(
        output.get("text", "") or output.get("data", {}).get("text/plain", "") + "\n" for output in cell.outputs
    )


@pytest.mark.slow
def test_the_cell_trains_on_the_cluster_and_prints_its_progress(executed):
    text = printed(executed.notebook, "%%distributed")
    assert [line.split()[2] for line in text.splitlines() if line.startswith("town  epoch ")][-1] == "15/15"
    assert "FINISHED" in text


@pytest.mark.slow
def test_check_names_the_gateway_and_finds_nothing_wrong(executed):
    text = printed(executed.notebook, "%ddl check")
    (line,) = (line for line in text.splitlines() if line.startswith("Livy "))
    assert re.search(r"-incubating at https://localhost:\d+/livy, with basic credentials$", line)
    assert "missing" not in text and "cannot be" not in text and "dynamic allocation" not in text


@pytest.mark.slow
def test_history_model_and_weights_are_back_on_the_notebooks_machine(executed):
    notebook, folder = executed.notebook, executed.folder
    assert "FINISHED with 4481 weights" in printed(notebook, "%%local\ntown.wait()")
    assert "val_loss" in printed(notebook, "%%local\nimport pandas")
    assert (folder / "town.keras").stat().st_size > 10_000


@pytest.mark.slow
def test_no_cell_fails_or_warns(executed):
    outputs = [output for cell in executed.notebook.cells for output in cell.get("outputs", ())]
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]


@pytest.mark.slow
def test_no_secret_is_in_notebook_store_and_logs(executed, livy_gateway, livy_server, jupyter_data_dir):
    """But for the configuration, where the user has put the password."""
    password, cookie = livy_gateway.password.encode(), livy_gateway.cookie.encode()
    plain = [password, livy_gateway.user.encode() + b":" + password, cookie, executed.secret]
    secrets = [*plain, *map(base64.b64encode, plain), executed.secret.hex().encode()]
    assert len(executed.secret) == 32

    # What each place must hold shows that it is the right one, and that what is there is found.
    places = {
        "notebook": (contents(executed.folder / NOTEBOOK.name), b"demand"),
        "store": (contents(jupyter_data_dir), b"demand"),
        "sparkmagic": (contents(executed.folder / "sparkmagic" / "logs"), b"LivySession"),
        "files beside it": (contents(executed.folder), b"demand"),
        "Livy": (contents(livy_server.state / "logs"), b"InteractiveSession"),
        "session": ({"log": executed.log.encode()}, b"spark"),
        "gateway": ({"log": livy_gateway.log.encode()}, b"/livy/sessions"),
    }
    for place, (files, word) in places.items():
        assert found([word], files), place
        assert found(secrets, files) == [], place


def contents(root):
    """What is in a file, or in those of a folder, by name; the user's own configuration is left out."""
    files = [root] if root.is_file() else [path for path in root.rglob("*") if path.is_file()]
    return {str(path): path.read_bytes() for path in files if path.name != "config.json"}


def found(words, files):
    """The files that hold one of the words."""
    return [name for name, data in files.items() if any(word in data for word in words)]


@pytest.mark.slow
def test_the_session_ends_with_its_kernel(executed, livy_server):
    assert Client(livy_server.url).get("/sessions").json["total"] == 0
