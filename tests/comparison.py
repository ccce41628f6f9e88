"""What n workers learn beside what one process learns: runs equality/*.py on both, and says where they differ."""

import json
import re
import subprocess
import sys
from pathlib import Path

import launch
import numpy as np

HERE = Path(__file__).parent / "equality"
#: The text of a cell: a user's code of many kinds.
CASES = "\n".join(
    # Each imports what is above it in the cell.
    re.sub(r"^from (cases|unusual) import", "pass  #", (HERE / name).read_text(), flags=re.MULTILINE)
    for name in ("cases.py", "unusual.py", "normalized.py", "keras2.py")
)

#: That of a cell whose cases are seeds, and their results accuracies.
DIGITS = (HERE / "digits.py").read_text()

#: Adam turns rounding of tiny gradients into visible weights in float32: its weights are compared in float64 only.
NOT_SGD = frozenset(
    {"adam", "four_steps_and_a_remainder", "adamw_clipnorm", "lstm", "adversaries", "legacy_adam_clipped"}
)

FLOAT64, FLOAT32_HISTORY, FLOAT32_WEIGHTS = 1e-9, 1e-3, 1e-4

#: The negative control: code before the cell that leaves the sum over ranks out.
SILENCE = (
    "import sys\n"
    "_gradients = next(m for n, m in sys.modules.items() if 'ddl_runtime' in n and n.endswith('.gradients'))\n"
    "_gradients.GradientExchange.__call__ = lambda self, gradients, share, sums: gradients\n"
)


class Reference:
    """What `run_cases` of a cell gives in plain Keras, in processes of their own: each case once, for all tests."""

    def __init__(self, folder, source=CASES, python=sys.executable):
        self._folder, self._source, self._python = folder, source, python
        self._known = {"float32": {}, "float64": {}}

    def __call__(self, names, dtype):
        known = self._known[dtype]
        if missing := [name for name in names if name not in known]:
            cell, out = self._folder / "cell.py", self._folder / "results.json"
            cell.write_text(self._source)
            command = [self._python, HERE / "reference.py", cell, dtype, out, *missing]
            done = subprocess.run(command, cwd=self._folder, timeout=300, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr[-3000:]
            known.update(json.loads(out.read_text()))
        return {name: known[name] for name in names}


def distributed(spark, names, dtype, workers, prologue="", seconds=400, **spec):
    cell = f"{prologue}{CASES}\nrun_cases({list(names)!r}, {dtype!r}, ddl)"
    ended = launch.run_cell(spark, cell, workers=workers, seconds=seconds, **spec)
    assert ended.state == "FINISHED", (ended.message, ended.failure and ended.failure["traceback"])
    return ended


def distance(ours, theirs):
    """Largest difference, relative where values are above one."""
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    assert ours.shape == theirs.shape
    return float(np.max(np.abs(ours - theirs) / np.maximum(1.0, np.abs(theirs)), initial=0.0))


def differences(results, expected, names, dtype):
    """What differs by more than the bounds: a list of words, empty when all is equal."""
    history_bound, weight_bound = (FLOAT64, FLOAT64) if dtype == "float64" else (FLOAT32_HISTORY, FLOAT32_WEIGHTS)
    found = []
    for name in names:
        ours, theirs = results[name], expected[name]
        assert set(ours["history"]) == set(theirs["history"])
        for key, values in theirs["history"].items():
            gap = distance(ours["history"][key], values)
            if not gap <= history_bound:
                found.append(f"{name}: history {key} differs by {gap:.2g}")
        if dtype == "float64" or name not in NOT_SGD:
            gap = distance(ours["weights"], theirs["weights"])
            if not gap <= weight_bound:
                found.append(f"{name}: weights differ by {gap:.2g}")
    return found


def assert_ranks_equal(ended, names, workers):
    for name in names:
        digests = {e["metrics"][name] for e in ended.of_kind("values") if name in e["metrics"]}
        count = sum(name in e["metrics"] for e in ended.of_kind("values"))
        assert count == workers and len(digests) == 1, name


def check(spark, reference, names, dtype, workers, **spec):
    """Assert that `workers` workers learn from the cases `names` what one process does, all ranks to the bit alike."""
    ended = distributed(spark, names, dtype, workers, **spec)
    found = differences(ended.result, reference(names, dtype), names, dtype)
    assert not found, found
    assert_ranks_equal(ended, names, workers)
