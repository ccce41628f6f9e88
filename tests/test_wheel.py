"""What is published: the wheel and the sdist hold what they must, and the base install stays small."""

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
WIDGET = "ddl_magics/dashboard/static/widget.js"
SERVER_CONFIG = "etc/jupyter/jupyter_server_config.d/ddl_magics.json"

pytestmark = pytest.mark.timeout(600)  # pip reaches its index


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """Folder with the sdist of this tree, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--outdir", folder, ROOT], check=True)
    return folder


def _sources(*folders):
    """Files that git holds or would hold."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *folders]
    listed = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True)
    return set(listed.stdout.split())


def test_the_wheel_is_the_package_and_the_built_widget(dist):
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    shared = {name for name in names if ".data/" in name}
    assert {name.partition(".data/data/")[2] for name in shared} == {SERVER_CONFIG}
    names -= shared
    assert names == _sources("ddl_magics") | {name for name in names if name.startswith(os.path.dirname(WIDGET))}
    assert WIDGET in names


def test_the_sdist_needs_no_node(dist):
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {WIDGET, "package.json", "LICENSE", "README.md", "CHANGELOG.md"} <= names
    assert _sources("ddl_magics", "labextension", "tests") <= names
    assert not any(name.startswith(("node_modules", ".venv")) for name in names)


def test_the_base_install_brings_no_engine(dist, tmp_path):
    (wheel,) = dist.glob("*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", wheel], check=True)
    assert (tmp_path / "venv" / SERVER_CONFIG).exists(), "Jupyter Server loads our extension without a further step"
    program = (
        "from importlib import metadata, util\n"
        "engines = ('tensorflow', 'keras', 'pyspark', 'sparkmagic', 'jupyter_server')\n"
        "assert not [name for name in engines if util.find_spec(name)]\n"
        "import ddl_magics, ddl_magics.server\n"
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\n"
        "shell.run_line_magic('load_ext', 'ddl_magics')\n"
        "assert 'distributed' in shell.magics_manager.magics['cell']\n"
        "assert metadata.version('ddl_magics') == ddl_magics.__version__\n"
    )
    subprocess.run([python, "-c", program], check=True, cwd=tmp_path)
