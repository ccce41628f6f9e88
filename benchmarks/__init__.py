"""Benchmarks, each a command: `python -m benchmarks.NAME`, with NAME a file here or its short name."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).resolve().parent

#: README.md numbers the benchmarks: `python -m benchmarks.b1` runs training_throughput.py.
SHORT_NAMES = {
    "b1": "training_throughput",
    "b2": "allreduce",
    "b3": "parameter_server",
    "b4": "multi_host_step",
    "b5": "accuracy",
    "b6": "launch_time",
    "b7": "telemetry_cost",
    "b8": "data",
}


class _ShortNames(MetaPathFinder):
    """Loads benchmarks.b1 from the file that SHORT_NAMES names."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        package, _, short = name.rpartition(".")
        if package != __name__ or short not in SHORT_NAMES:
            return None
        return spec_from_file_location(name, FOLDER / f"{SHORT_NAMES[short]}.py")


sys.meta_path.append(_ShortNames())
# Benchmarks use helpers of the tests: the Spark cluster, the Livy rig, the browser.
sys.path.insert(0, str(FOLDER.parent / "tests"))
