"""The conda package is built from the recipe and its tests are run, with a channel of what is installed here."""

import json
import sys
import sysconfig

import pytest
from support.paths import ROOT, environment
from support.processes import completed

import ddl_magics

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
RELEASE_PYTHON = ROOT / ".venv-release" / "bin" / "python"


def test_the_recipe_builds_and_its_package_passes_its_tests(tmp_path):
    if not RELEASE_PYTHON.exists():
        pytest.skip("no tools of a release: make release-env")
    (tmp_path / "conda").mkdir()
    recipe = tmp_path / "conda" / "recipe.yaml"
    recipe.write_text((ROOT / "conda" / "recipe.yaml").read_text())
    completed([sys.executable, "-m", "build", "--sdist", "--outdir", tmp_path / "dist", ROOT])
    command = [RELEASE_PYTHON, "-m", "support.conda_channel", recipe, tmp_path, sysconfig.get_path("purelib")]
    built = json.loads(completed(command, env=environment(), cwd=tmp_path).stdout.splitlines()[-1])
    assert (built["name"], built["version"], built["noarch"]) == ("ddl_magics", ddl_magics.__version__, "python")
    assert "site-packages/ddl_magics/dashboard/static/widget.js" in built["files"]
    assert "share/jupyter/labextensions/ddl-magics/package.json" in built["files"]
    assert "etc/jupyter/jupyter_server_config.d/ddl_magics.json" in built["files"]
    assert "plotly >=5.20" in built["depends"]
