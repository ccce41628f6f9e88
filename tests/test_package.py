"""The package as a whole: one version, a runtime that is a closed world, a base install that brings no engine."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import ddl_magics

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "ddl_magics"
RUNTIME = PACKAGE / "runtime"

#: What the runtime may import besides the standard library: it comes with Spark or TensorFlow, or the cell has it too.
THERE_ANYWAY = {"numpy", "keras", "tensorflow", "pyspark", "py4j", "tf_keras"}

#: Processes of the runtime that must start fast and stay small: TensorFlow is the ranks' business.
WITHOUT_TENSORFLOW = ("driver", "supervisor", "worker", "parameter_server")

#: Arrows point down only, magics -> run -> clusters -> runtime: what a part must not know.
ABOVE = {
    "clusters": {"magics", "run", "follower", "config", "store", "dashboard"},
    "dashboard": {"magics", "run", "follower", "config", "store", "clusters"},
    "store": {"magics", "run", "follower", "config", "clusters", "dashboard"},
    "run": {"magics", "config"},
}


def _modules(folder):
    return [pytest.param(path, id=str(path.relative_to(PACKAGE))) for path in sorted(folder.rglob("*.py"))]


def _imports(path):
    """(dotted name of what is imported, whether written as a relative import)."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, False
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            for alias in node.names:
                yield ".".join([*base, *filter(None, [node.module]), alias.name]), node.level > 0


def _loaded_by(module):
    """Top-level names of the modules that a fresh Python has loaded after importing `module`."""
    program = f"import sys, {module}; print(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("path", _modules(RUNTIME))
def test_the_runtime_imports_nothing_that_a_cluster_may_lack(path):
    for name, relative in _imports(path):
        if relative:
            assert name.startswith("ddl_magics.runtime"), f"{name} stands above the runtime, which is shipped alone"
        else:
            assert name.split(".")[0] in {*sys.stdlib_module_names, *THERE_ANYWAY}, f"{name} is not on every cluster"


@pytest.mark.parametrize("module", WITHOUT_TENSORFLOW)
def test_only_ranks_load_tensorflow(module):
    loaded = _loaded_by(f"ddl_magics.runtime.{module}")
    assert not {"tensorflow", "keras"} & loaded


@pytest.mark.parametrize("path", _modules(PACKAGE))
def test_imports_point_down(path):
    part = path.relative_to(PACKAGE).with_suffix("").parts[0]
    ours = [name.split(".")[1:] for name, _ in _imports(path) if name.startswith("ddl_magics.")]
    assert not {module[0] for module in ours} & ABOVE.get(part, set())
    if part not in ("runtime", "clusters"):
        # What a run says, what can be read from it, how it ends, and what --strategy, --rule, --compression can be.
        pure = (["events"], ["histories"], ["verdict"], ["strategies"], ["rule"], ["rules"], ["compression"])
        assert not [module for module in ours if module[0] == "runtime" and module[1:2] not in pure]


def test_the_runtime_is_python_38():
    """Syntax and library of HDInsight's Python; `vermin` knows both."""
    vermin = [Path(sys.executable).parent / "vermin", "--violations", "--no-tips", "--eval-annotations"]
    checked = subprocess.run([*vermin, "-t=3.8-", RUNTIME], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_one_version():
    package_json = json.loads((ROOT / "package.json").read_text())
    lock = json.loads((ROOT / "package-lock.json").read_text())
    assert ddl_magics.__version__ == package_json["version"] == lock["version"]
    assert f"## [{ddl_magics.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_importing_the_package_brings_no_engine():
    """With a remote cluster there is neither TensorFlow nor pyspark on the notebook's machine."""
    assert not {"tensorflow", "keras", "pyspark", "py4j", "sparkmagic"} & _loaded_by("ddl_magics")


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.name)
def test_notebooks_are_committed_without_output(path):
    for cell in json.loads(path.read_text())["cells"]:
        assert not cell.get("outputs") and not cell.get("execution_count")
