"""`make demo`: the quickstart notebook runs from beginning to end in a real kernel, and shows what it does."""

import os
import subprocess
import sys

import nbformat
import pytest
from support.paths import ROOT
from support.processes import wait_until_gone

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def test_the_demo_shows_progress_and_nothing_else_and_reads_held_out_digits():
    """No warnings of Spark, TensorFlow or the kernel, which a reader would take for their own fault."""
    command = [sys.executable, ROOT / "scripts" / "demo.py"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    ran = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert ran.returncode == 0, ran.stdout
    assert "digits  " in ran.stdout and "FINISHED" in ran.stdout and "WARN" not in ran.stdout.upper()
    assert "build/quickstart.ipynb" in ran.stdout
    cells = nbformat.read(ROOT / "build" / "quickstart.ipynb", as_version=4).cells
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    assert not [output.text for output in outputs if output.get("name") == "stderr"]
    text = "".join(output.get("text", "") for output in cells[-1].outputs)
    assert "held-out digits are read correctly" in text
    assert not wait_until_gone()
