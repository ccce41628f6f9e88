"""What is published: the wheel and the sdist hold what they must, and the base install stays small."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import urllib.error
import urllib.request
import venv
import zipfile
import zlib
from pathlib import Path

import pytest
from support.paths import ROOT
from support.tensorboards import free_port
from support.until import until

import ddl_magics

WIDGET = "ddl_magics/dashboard/static/widget.js"
PANEL = "ddl_magics/labextension"
SERVER_CONFIG = "etc/jupyter/jupyter_server_config.d/ddl_magics.json"
LABEXTENSION = "share/jupyter/labextensions/ddl-magics"

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


def _panel():
    """Files of the built panel, below its folder."""
    folder = ROOT / PANEL
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_the_wheel_is_the_package_the_widget_and_the_panel(dist):
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        (scripts,) = (archive.read(n).decode() for n in archive.namelist() if n.endswith("/entry_points.txt"))
    assert "ddl-magics = ddl_magics.__main__:main" in scripts
    shared = {name for name in names if ".data/" in name}
    panel = {f"{LABEXTENSION}/{name}" for name in {*_panel(), "install.json"}}
    assert {name.partition(".data/data/")[2] for name in shared} == {SERVER_CONFIG, *panel}
    names -= shared
    assert "ddl_magics/py.typed" in names and not any(name.endswith(".orig") for name in names)
    assert names == _sources("ddl_magics") | {name for name in names if name.startswith(os.path.dirname(WIDGET))}
    assert WIDGET in names


def test_the_sdist_needs_no_node(dist):
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {WIDGET, "package.json", "LICENSE", "README.md", "CHANGELOG.md"} <= names
    assert {f"{PANEL}/{name}" for name in _panel()} <= names
    assert _sources("ddl_magics", "labextension", "tests") <= names
    assert not any(name.startswith(("node_modules", ".venv")) for name in names)


def test_the_wheel_of_the_sdist_holds_what_the_tree_has(dist):
    """So the tree's own wheel is the same: what the sdist leaves out, it would too."""
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        contents = {entry.filename: entry.CRC for entry in archive.infolist() if ".dist-info/" not in entry.filename}
    panel = f".data/data/{LABEXTENSION}/"
    for name, checksum in contents.items():
        if panel in name and not name.endswith("/install.json"):
            name = f"{PANEL}/{name.partition(panel)[2]}"
        if not name.startswith("ddl_magics-"):  # shared data that lies elsewhere in the tree
            assert zlib.crc32((ROOT / name).read_bytes()) == checksum, name


def _installed(dist, folder, *options):
    """The Python of an environment with the wheel, as `pip install` leaves it, but for files that only save time."""
    (wheel,) = dist.glob("*.whl")
    venv.create(folder)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile"]
    subprocess.run([*pip, *options, wheel], check=True)
    return python


@pytest.mark.slow  # what is required and what the import loads: test_package.py
def test_the_base_install_brings_no_engine(dist, tmp_path):
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
    subprocess.run([_installed(dist, tmp_path / "venv"), "-c", program], check=True, cwd=tmp_path)


@pytest.fixture(scope="module")
def lab(dist, tmp_path_factory):
    """Starts a module of an environment with the wheel, which gets all else from this one, with JupyterLab.

    Modules, as the command `jupyter` would start this environment's scripts.
    """
    installed = _installed(dist, tmp_path_factory.mktemp("venv"), "--no-deps")
    show = "import sysconfig; print(sysconfig.get_path('purelib'))"
    purelib = subprocess.run([installed, "-c", show], check=True, capture_output=True, text=True).stdout.strip()
    (Path(purelib) / "jupyterlab.pth").write_text(sysconfig.get_path("purelib"))
    home = tmp_path_factory.mktemp("home")
    foreign = ("JUPYTER", "PYTHON")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    environment |= {"HOME": str(home), "JUPYTER_TOKEN": "secret"}
    environment["JUPYTERLAB_DIR"] = str(Path(sys.prefix) / "share" / "jupyter" / "lab")

    def run(*words):
        return subprocess.Popen(
            [installed, "-m", *words],
            env=environment,
            cwd=home,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return run


def _listed(process):
    """What a command lists, without colours, in one line of words."""
    listed, _ = process.communicate(timeout=120)
    assert process.returncode == 0, listed
    return " ".join(re.sub(r"\x1b\[\d+m", "", listed).split())


def test_a_jupyterlab_finds_the_panel_without_a_further_step(lab):
    """And knows where it came from."""
    version = re.escape(ddl_magics.__version__)
    assert re.search(
        rf"ddl-magics v{version} enabled \S*OK\S* \(python, ddl_magics\)",
        _listed(lab("jupyterlab.labextensions", "list")),
    )


def test_a_jupyter_server_has_our_routes_without_a_further_step(lab):
    listed = _listed(lab("jupyter_server", "extension", "list"))
    assert "ddl_magics.server enabled" in listed and f"ddl_magics.server {ddl_magics.__version__} OK" in listed
    port = free_port()
    options = [f"--port={port}", "--ServerApp.port_retries=0", "--no-browser", "--allow-root"]
    server = lab("jupyter_server", *options)
    try:
        request = urllib.request.Request(f"http://localhost:{port}/ddl_magics/runs")
        request.add_header("Authorization", "token secret")
        until(lambda: _answers(request), 60)
    finally:
        server.kill()
        server.communicate()


def _answers(request):
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)["runs"] == []
    except urllib.error.HTTPError:
        raise  # the server is there, and our routes are not
    except OSError:
        return False
