"""Where the repository is, and its environments; also for processes that tests start."""

import importlib.util
import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"

#: A notebook's machine, with sparkmagic and without TensorFlow and Spark: `make livy-env` builds it.
NOTEBOOK_PYTHON = ROOT / ".venv-notebook" / "bin" / "python"
#: Keras 2 of TensorFlow 2.13: `make keras2-env` builds it.
KERAS2_PYTHON = ROOT / ".venv-keras2" / "bin" / "python"


def environment(**more: str) -> dict[str, str]:
    """This process's environment for another one that imports the package and the tests' helpers."""
    given = filter(None, [os.environ.get("PYTHONPATH")])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(TESTS), *given]), **more}


def script(name: str):
    """A module of scripts/."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


#: What `make serve-env` builds.
SERVE_PYTHON = ROOT / ".venv-serve" / "bin" / "python"
