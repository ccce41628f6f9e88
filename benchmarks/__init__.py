"""Benchmarks, each a command: `python -m benchmarks.NAME`. They use what the tests have: the Livy rig, the browser."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
