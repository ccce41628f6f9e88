"""Whole notebooks by chance: what their cells show is what plain cells show, or the training cell is refused before."""

import json
import os
import subprocess
import sys
from collections import Counter
from math import inf

import pytest
from support import shells
from support.comparison import FLOAT64, distance
from support.paths import TESTS, environment

from ddl_magics.clusters.embedded import EmbeddedCluster
from ddl_magics.runtime import events as ev

sys.path.insert(0, str(TESTS / "equality"))
import notebook_fuzz

NOTEBOOKS, DAILY = 200, 4

#: Sets back what notebooks have set in this process.
RESET = """
import keras, numpy as np, os, random, tensorflow as tf, warnings
warnings.simplefilter("ignore")
random.seed(); np.random.set_bit_generator(np.random.MT19937()); tf.random.set_seed(None)
from keras.src.backend.common import global_state
keras.config.set_floatx("float32"); keras.config.set_epsilon(1e-7); tf.config.run_functions_eagerly(False)
keras.utils.clear_session(); global_state.set_global_attribute("global_random_seed", None)
keras.saving.get_custom_objects().clear(); os.environ.pop("RATE", None)
"""


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """`plain(cells)`: what a plain process of its own shows."""
    folder = tmp_path_factory.mktemp("plain")
    command = [sys.executable, notebook_fuzz.__file__]
    with subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-3, text=True, env=environment()) as process:

        def shown(cells):
            path = folder / "result.json"
            path.unlink(missing_ok=True)
            request = {"cells": cells, "folder": str(tmp_path_factory.mktemp("notebook")), "result": str(path)}
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            while process.stdout.readline() not in ("done\n", ""):
                pass
            return json.loads(path.read_text())

        yield shown
        process.stdin.close()


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch, shells.loaded(None) as shell:
        patch.setenv("JUPYTER_DATA_DIR", str(tmp_path_factory.mktemp("data")))
        patch.setenv("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))
        patch.setattr(sys, "path", [*sys.path])
        shells.session(shell).cluster = EmbeddedCluster(lambda: shell.user_ns)
        first = dict(shell.user_ns)

        def run(spark, cells, workers, folder):
            """(what the last cell shows, None), or (None, the line with which a training cell is refused).

            AssertionError where another cell fails, or a training cell after it has trained.
            """
            shell.user_ns.clear()
            shell.user_ns.update(first, spark=spark)
            shell.run_cell(RESET).raise_error()
            patch.chdir(folder)
            try:
                return shown(cells, workers)
            finally:
                shell.run_cell(RESET).raise_error()

        def shown(cells, workers):
            for kind, source in cells:
                line = f"%%distributed --workers {workers} --wait --name fuzzed\n" if kind == "train" else ""
                result = shell.run_cell(line + source)
                error = result.error_before_exec or result.error_in_exec
                if error is not None:
                    assert kind == "train", f"{source}: {error}"
                    return None, str(error)
                run = shell.user_ns.get("fuzzed")
                if kind == "train" and run.state != ev.FINISHED:
                    epochs = [event for event in run.events if event["kind"] == "epoch"]
                    assert not epochs, f"it fails after it has trained: {run.reason}"
                    return None, run.reason
            return shell.user_ns[notebook_fuzz.SHOWN], None

        yield run


def gap(ours, theirs):
    """The largest difference of values that JSON has; infinite where their forms differ."""
    if isinstance(theirs, dict):
        return max((gap(ours[key], theirs[key]) for key in theirs), default=0) if ours.keys() == theirs.keys() else inf
    if isinstance(theirs, list) and isinstance(ours, list):
        return max(map(gap, ours, theirs), default=0) if len(ours) == len(theirs) else inf
    return inf if isinstance(theirs, list) or isinstance(ours, list) else distance(ours, theirs)


def judged(choices, expected, shown, refused):
    """(verdict, words): "equal", "refused", or what is wrong."""
    if refused is not None:
        return ("refused" if "\n" not in refused else "wrong"), f"{choices}: {refused}"
    if shown.keys() != expected.keys():
        return "wrong", f"{choices}: shows {sorted(shown)}, plain {sorted(expected)}"
    gaps = {name: gap(shown[name], expected[name]) for name in expected}
    name = max(gaps, key=gaps.get)
    return ("equal" if gaps[name] <= FLOAT64 else "wrong"), f"{choices}: {name} differs by {gaps[name]:.2g}"


def check(numbers, workers, plain, shell, spark, tmp_path):
    verdicts = {}
    for number in numbers:
        choices, cells = notebook_fuzz.notebook(number)
        expected = plain(cells)
        assert "error" not in expected, f"{number} {choices}: fails in plain Keras: {expected}"
        for count in workers:
            folder = tmp_path / f"{number}-{count}"
            folder.mkdir()
            try:
                verdicts[number, count] = judged(choices, expected, *shell(spark, cells, count, folder))
            except AssertionError as error:
                verdicts[number, count] = "wrong", f"{choices}: {error}"
            print(number, count, *verdicts[number, count], flush=True)
    counts = Counter(verdict for verdict, _ in verdicts.values())
    print(counts)
    failed = {number: words for number, (verdict, words) in verdicts.items() if verdict not in ("equal", "refused")}
    assert not failed, "\n".join(f"{number} {words}" for number, words in failed.items())
    refused = [words for verdict, words in verdicts.values() if verdict == "refused"]
    assert len(refused) <= 0.05 * len(verdicts), refused


@pytest.mark.timeout(240)
def test_notebooks(plain, shell, spark_cluster, tmp_path):
    check(range(DAILY), (2,), plain, shell, spark_cluster(2), tmp_path)


@pytest.mark.slow
@pytest.mark.executors(3)
@pytest.mark.timeout(7200)
def test_200_notebooks(plain, shell, spark_cluster, tmp_path):
    first = int(os.environ.get("FIRST_NOTEBOOK", DAILY))
    check(range(first, first + NOTEBOOKS), (2, 3), plain, shell, spark_cluster(3), tmp_path)
