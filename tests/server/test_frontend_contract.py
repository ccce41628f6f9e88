"""What the front end takes from Python is generated, and the settings keep within Python's limits."""

import json
import os
import re
import sys

import pytest
from support.paths import ROOT
from support.processes import completed

from ddl_magics.dashboard.series import POINTS


def test_the_generated_files_are_current():
    if not (ROOT / "node_modules").is_dir():
        pytest.skip("npm ci has not been run")
    command = ["node", "labextension/types.mjs", "--check"]
    completed(command, cwd=ROOT, env={**os.environ, "PYTHON": sys.executable})


def test_every_generated_name_is_imported():
    sources = ROOT / "labextension"
    generated = sources / "src/generated.ts"
    exported = set(re.findall(r"^export \w+ (\w+)", generated.read_text(), re.MULTILINE))
    imports = (
        names
        for path in sources.rglob("*.ts")
        for names in re.findall(r'^import [^"]*"[./\w]*/generated";', path.read_text(), re.MULTILINE)
    )
    assert exported and not exported - {word for names in imports for word in re.findall(r"\w+", names)}


def test_no_more_points_can_be_set_than_a_series_holds():
    settings = json.loads((ROOT / "labextension/schema/runs.json").read_text())["properties"]
    assert settings["maxPoints"]["maximum"] == settings["maxPoints"]["default"] == POINTS
