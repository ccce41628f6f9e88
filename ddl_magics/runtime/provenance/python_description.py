"""A Python as a worker has it: its version, its place, and which packages it has. None of them is imported.

Travels to executors by value (`data/by_value.py`).
"""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Dict, Sequence

#: What a worker uses -> the distributions that it may come from.
MODULES = {
    "tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "intel-tensorflow", "tf-nightly"),
    "keras": ("keras",),
    "numpy": ("numpy",),
    "pyarrow": ("pyarrow",),
}


def describe() -> Dict[str, Any]:
    """{"version", "path", "folder", "environment", "packages"} of this process.

    folder: where it works, which is a container's own. environment: "a virtualenv", "a conda environment" or "".
    packages: module -> version, or None for one that it lacks.
    """
    environment = "a virtualenv" if sys.prefix != sys.base_prefix else ""
    if os.path.isdir(os.path.join(sys.prefix, "conda-meta")):
        environment = "a conda environment"
    return {
        "version": platform.python_version(),
        "path": os.path.normpath(sys.executable),
        "folder": os.getcwd(),
        "environment": environment,
        "packages": {module: found(module, distributions) for module, distributions in MODULES.items()},
    }


def found(module: str, distributions: Sequence[str]) -> str | None:
    """The version of a module that can be imported; None for one that cannot."""
    try:
        if importlib.util.find_spec(module) is None:
            return None
    except ValueError:  # it is imported, and has no spec
        pass
    for name in distributions:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "of unknown version"
