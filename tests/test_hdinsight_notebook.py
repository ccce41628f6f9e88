"""notebooks/hdinsight.ipynb: papermill runs it in sparkmagic's PySpark kernel, through a gateway as HDInsight's."""

import base64
import os
import re
import subprocess
from pathlib import Path

import nbformat
import pytest
import sparkmagic_kernels

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = ROOT / "notebooks" / "hdinsight.ipynb"
CELL_SECONDS = 400

pytestmark = [pytest.mark.livy, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def executed(livy_gateway, tmp_path_factory):
    """(the executed notebook, its folder with the configuration and what the notebook wrote)"""
    folder = tmp_path_factory.mktemp("hdinsight")
    known = sparkmagic_kernels.configuration(
        folder / "sparkmagic", livy_gateway.url, livy_gateway.user, livy_gateway.password
    )
    bin_folder = sparkmagic_kernels.PYTHON.parent
    # The kernel's specification says `python` and no more; the certificate's authority is the tests' own.
    path = f"{bin_folder}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, **known, "PATH": path, "REQUESTS_CA_BUNDLE": str(livy_gateway.ca)}
    command = [bin_folder / "papermill", NOTEBOOK, folder / NOTEBOOK.name, "-k", "pysparkkernel", "--cwd", folder]
    command += ["--no-progress-bar", "--execution-timeout", str(CELL_SECONDS)]
    ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert ran.returncode == 0, ran.stdout
    return nbformat.read(folder / NOTEBOOK.name, as_version=4), folder


def printed(notebook, beginning):
    """What the cell that begins so has printed and shown, as text."""
    (cell,) = (cell for cell in notebook.cells if cell.source.startswith(beginning))
    return "".join(
        output.get("text", "") or output.get("data", {}).get("text/plain", "") + "\n" for output in cell.outputs
    )


def test_the_cell_trains_on_the_cluster_and_prints_its_progress(executed):
    text = printed(executed[0], "%%distributed")
    assert [line.split()[2] for line in text.splitlines() if line.startswith("town  epoch ")][-1] == "15/15"
    assert "FINISHED" in text


def test_check_names_the_gateway_and_finds_nothing_wrong(executed):
    text = printed(executed[0], "%ddl check")
    (line,) = (line for line in text.splitlines() if line.startswith("Livy "))
    assert re.search(r"-incubating at https://localhost:\d+/livy, with basic credentials$", line)
    assert "missing" not in text and "cannot be" not in text and "dynamic allocation" not in text


def test_history_model_and_weights_are_back_on_the_notebooks_machine(executed):
    notebook, folder = executed
    assert "FINISHED with 4481 weights" in printed(notebook, "%%local\ntown.wait()")
    assert "val_loss" in printed(notebook, "%%local\nimport pandas")
    assert (folder / "town.keras").stat().st_size > 10_000


def test_no_cell_fails_or_warns(executed):
    outputs = [output for cell in executed[0].cells for output in cell.get("outputs", ())]
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]


def test_the_password_is_in_the_configuration_alone(executed, livy_gateway, livy_server, jupyter_data_dir):
    """Neither in the notebook and what is stored of the run, nor in the logs of sparkmagic, Livy and its driver."""
    secrets = [livy_gateway.password.encode(), base64.b64encode(livy_gateway.password.encode())]
    _, folder = executed
    written = {
        path: path.read_bytes() for root in (folder, jupyter_data_dir) for path in root.rglob("*") if path.is_file()
    }
    names = {path.name for path in written}
    assert {NOTEBOOK.name, "events.jsonl", "run.json", "town.keras", "config.json"} <= names
    assert any(path.parent.name == "logs" for path in written), "sparkmagic's log is not where it was looked for"
    found = [path.name for path, data in written.items() if any(secret in data for secret in secrets)]
    assert found == ["config.json"]
    assert not any(secret in livy_server.log.encode() for secret in secrets)


def test_the_session_ends_with_its_kernel(executed, livy_server):
    assert '"total":0' in _sessions(livy_server)


def _sessions(server):
    import urllib.request

    with urllib.request.urlopen(f"{server.url}/sessions", timeout=10) as reply:
        return reply.read().decode().replace(" ", "")
