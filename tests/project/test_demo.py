"""`make demo`: the quickstart notebook runs from beginning to end in a real kernel, and shows what it does."""

import os
import subprocess
import sys

import nbformat
import pytest
from support.paths import ROOT
from support.processes import wait_until_gone

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def demo():
    """(what the demo printed, the notebook that it wrote)"""
    ran = subprocess.run(
        [sys.executable, ROOT / "scripts" / "demo.py"],
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout
    return ran.stdout, nbformat.read(ROOT / "build" / "quickstart.ipynb", as_version=4)


def _printed(cell):
    return "".join(output.get("text", "") for output in cell.outputs)


def test_it_shows_progress_and_says_where_to_look(demo):
    shown, _ = demo
    assert "digits  " in shown and "FINISHED" in shown
    assert "build/quickstart.ipynb" in shown


def test_it_shows_nothing_but_what_it_is_about(demo):
    """No warnings of Spark, TensorFlow or the kernel, which a reader would take for their own fault."""
    shown, notebook = demo
    stderr = [o.text for cell in notebook.cells for o in cell.get("outputs", ()) if o.get("name") == "stderr"]
    assert not stderr
    assert "WARN" not in shown.upper()


def test_the_notebook_reads_held_out_digits(demo):
    _, notebook = demo
    assert "held-out digits are read correctly" in _printed(notebook.cells[-1])


def test_nothing_is_left_running(demo):
    assert not wait_until_gone()
