"""n workers learn what one process learns: equality/cases.py against plain Keras in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import launch
import numpy as np
import pytest

HERE = Path(__file__).parent / "equality"
#: The cell: a user's code of many kinds. unusual.py imports from cases.py what is above it in the cell.
CASES = (HERE / "cases.py").read_text() + (HERE / "unusual.py").read_text().replace("from cases import", "pass  #")

#: What every mechanism needs at least once; the rest runs with `make test-slow`.
ALWAYS = (
    "sgd_momentum",
    "adamw_clipnorm",
    "accumulation",
    "callbacks",
    "weighted",
    "two_by_two",
    "embedding",
    "own_step",
    "pipeline",
    "rich_metrics",
    "two_fits",
    "summed_loss",
    "adversaries",
    "masked_sequences",
)
MORE = (
    "adam",
    "global_clipnorm",
    "moving_average",
    "schedule",
    "lstm",
    "sequence",
    "regularised",
    "multi_step_execution",
    "generator",
    "endless_pipeline",
    "weighted_pipeline",
    "eager",
    "added_loss",
    "own_loss",
    "list_of_outputs",
    "precise_metrics",
    "callbacks_of_all_kinds",
    "convolutions",
    "trained_twice",
    "built_by_its_data",
)
#: Adam turns rounding of tiny gradients into visible weights in float32: its weights are compared in float64 only.
SGD_ONLY = frozenset(ALWAYS + MORE) - {"adam", "adamw_clipnorm", "lstm", "adversaries"}

FLOAT64, FLOAT32_HISTORY, FLOAT32_WEIGHTS = 1e-9, 1e-3, 1e-4


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """reference(names, dtype): results of plain Keras."""
    known = {}

    def get(names, dtype):
        if (names, dtype) not in known:
            folder = tmp_path_factory.mktemp("reference")
            cell, out = folder / "cell.py", folder / "results.json"
            cell.write_text(CASES)
            command = [sys.executable, HERE / "reference.py", cell, dtype, out, *names]
            subprocess.run(command, check=True, cwd=out.parent, timeout=300, capture_output=True)
            known[names, dtype] = json.loads(out.read_text())
        return known[names, dtype]

    return get


def distributed(spark, names, dtype, workers, prologue="", seconds=400):
    cell = f"{prologue}{CASES}\nrun_cases({list(names)!r}, {dtype!r}, ddl)"
    ended = launch.run_cell(spark, cell, workers=workers, seconds=seconds)
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
        if dtype == "float64" or name in SGD_ONLY:
            gap = distance(ours["weights"], theirs["weights"])
            if not gap <= weight_bound:
                found.append(f"{name}: weights differ by {gap:.2g}")
    return found


def assert_ranks_equal(ended, names, workers):
    for name in names:
        digests = {e["metrics"][name] for e in ended.of_kind("values") if name in e["metrics"]}
        count = sum(name in e["metrics"] for e in ended.of_kind("values"))
        assert count == workers and len(digests) == 1, name


def check(spark_cluster, reference, names, dtype, workers):
    ended = distributed(spark_cluster(workers), names, dtype, workers)
    assert differences(ended.result, reference(names, dtype), names, dtype) == []
    assert_ranks_equal(ended, names, workers)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("workers", [2, 4])
def test_float64(spark_cluster, reference, workers):
    check(spark_cluster, reference, ALWAYS, "float64", workers)


@pytest.mark.timeout(600)
def test_float32(spark_cluster, reference):
    check(spark_cluster, reference, ALWAYS, "float32", 2)


@pytest.mark.timeout(300)
def test_the_comparison_can_fail(spark_cluster, reference):
    """Negative control: the same test with the sum over ranks left out."""
    names = ("sgd_momentum", "pipeline")
    silence = (
        "import sys\n"
        "_gradients = next(m for n, m in sys.modules.items() if 'ddl_runtime' in n and n.endswith('.gradients'))\n"
        "_gradients.GradientExchange.__call__ = lambda self, gradients, share, sums: gradients\n"
    )
    ended = distributed(spark_cluster(2), names, "float64", 2, prologue=silence)
    assert len(differences(ended.result, reference(names, "float64"), names, "float64")) >= 2
    with pytest.raises(AssertionError):
        assert_ranks_equal(ended, names, 2)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_full_matrix(spark_cluster, reference, workers, dtype):
    check(spark_cluster, reference, ALWAYS + MORE, dtype, workers)
