"""What n workers learn beside what one process learns: runs equality/*.py on both, and says where they differ."""

import fcntl
import json
import re
import subprocess
import sys

import numpy as np

from support import launch
from support.paths import TESTS

HERE = TESTS / "equality"
FILES = ("cases", "unusual", "loops", "coupled", "gathering", "normalized", "noisy", "lengths", "keras2")
FILES += ("python_state", "sharded")


def _in_cell(text):
    """Without the imports of what is above it in the cell."""
    return re.sub(r"^from (cases|unusual|loops|coupled|normalized|lengths) import", "pass  #", text, flags=re.MULTILINE)


_TEXTS = {name: (HERE / f"{name}.py").read_text() for name in FILES}
#: The text of a cell: a user's code of many kinds.
CASES = "\n".join(map(_in_cell, _TEXTS.values()))
#: Another one, whose cases are put together from choices.
FUZZ = f"{CASES}\n{_in_cell((HERE / 'fuzz.py').read_text())}"

#: That of a cell whose cases are seeds, and their results accuracies.
DIGITS = (HERE / "digits.py").read_text()

#: Adam turns rounding of tiny gradients into visible weights in float32: its weights are compared in float64 only.
NOT_SGD = frozenset(
    {"adam", "four_steps_and_a_remainder", "adamw_clipnorm", "lstm", "adversaries", "legacy_adam_clipped"}
)

FLOAT64, FLOAT32_HISTORY, FLOAT32_WEIGHTS = 1e-9, 1e-3, 1e-4

#: What every mechanism needs at least once, beside what test_four_workers.py has; the rest runs with `make test-slow`.
ALWAYS = ("sgd_momentum", "accumulation", "callbacks", "embedding", "own_step", "pipeline", "rich_metrics")
ALWAYS += ("two_fits", "four_steps_and_a_remainder", "losses_of_all_kinds", "added_sum_beside_a_contrast")
ALWAYS += ("own_contrast", "own_step_of_sums", "outputs_of_own_slices", "own_optimizers")
ALWAYS += ("one_weight_eagerly", "mean_of_the_kept", "warming_up_eagerly", "metrics_in_python")


def _cases(*names):
    """The cases of files: their functions of a type of numbers."""
    return tuple(
        case for name in names for case in re.findall(r"^def ([a-z]\w*)\(dtype\):", _TEXTS[name], re.MULTILINE)
    )


#: The rest of them.
MORE = tuple(case for case in _cases("cases", "unusual", "coupled", "gathering", "python_state") if case not in ALWAYS)

#: Models that learn what one process learns with --sync-noise.
NOISY = _cases("noisy")

#: Optimizers with states of all kinds.
SHARDED = _cases("sharded")

#: Models whose axes are as long as the longest row of a batch.
LENGTHS = _cases("lengths")

#: Loops that a cell writes itself, instead of `fit`.
MORE_LOOPS = ("single_batches", "tape_of_a_sum", "adversaries_in_single_batches", "tapes_of_adversaries")
MORE_LOOPS += ("own_step_in_single_batches", "tape_eagerly", "tape_of_a_masked_loss")
LOOPS = tuple(case for case in _cases("loops") if case not in MORE_LOOPS)

#: Cases whose gradients are exchanged in different ways.
OVER_HOSTS = ("sgd_momentum", "adamw_clipnorm", "accumulation", "weighted")
OVER_HOSTS += ("embedding", "own_step", "pipeline", "adversaries")

#: The negative control: code before the cell that leaves the sum over ranks out.
SILENCE = (
    "import sys\n"
    "_exchange = next(m for n, m in sys.modules.items() if 'ddl_runtime' in n and n.endswith('.gradients.exchange'))\n"
    "_exchange.GradientExchange.__call__ = lambda self, gradients, share: gradients\n"
)

#: Code before a cell that has gradients exchanged as those that lie on a GPU.
AS_ON_GPU = (
    "import sys\n"
    "_flat = next(m for n, m in sys.modules.items() if 'ddl_runtime' in n and n.endswith('.flat_exchange'))\n"
    "_flat.ALWAYS = True\n"
)

#: The same for gradients that are too large for one buffer, as all are then.
IN_PARTS = (
    "import sys\n"
    "_exchange = next(m for n, m in sys.modules.items() if 'ddl_runtime' in n and n.endswith('.gradients.exchange'))\n"
    "_exchange.SECTION_BYTES = 64\n"
)


class Reference:
    """What `run_cases` of a cell gives in plain Keras, in processes of their own: each case once, for all tests.

    folder: where the results are kept, also for other processes of `pytest -n`.
    """

    def __init__(self, folder, source=CASES, python=sys.executable):
        folder.mkdir(exist_ok=True)
        self._folder, self._source, self._python = folder, source, python

    def __call__(self, names, dtype):
        with open(self._folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return self._results(names, dtype)

    def _results(self, names, dtype):
        file = self._folder / f"{dtype}.json"
        known = json.loads(file.read_text()) if file.exists() else {}
        if missing := [name for name in names if name not in known]:
            cell, out = self._folder / "cell.py", self._folder / "results.json"
            cell.write_text(self._source)
            command = [self._python, HERE / "reference.py", cell, dtype, out, *missing]
            done = subprocess.run(command, cwd=self._folder, timeout=300, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr[-3000:]
            known.update(json.loads(out.read_text()))
            file.write_text(json.dumps(known))
        return {name: known[name] for name in names}


class Learned:
    """What `workers` workers have learned from cases, of a type of numbers.

    Args:
        ended: the run (`launch.Ended`).
        results: of rank 0.
        label: begins the names under which each rank has logged its digests.
    """

    def __init__(self, ended, results, dtype, workers, label=""):
        self.ended, self.results = ended, results
        self._dtype, self._workers, self._label = dtype, workers, label

    def differences(self, reference):
        """From what plain Keras learns, by more than the bounds: a list of words, empty when all is equal."""
        return differences(self.results, reference(tuple(self.results), self._dtype), self.results, self._dtype)

    def assert_ranks_equal(self):
        """To the bit."""
        for name in self.results:
            key = self._label + name
            digests = self.ended.logged(key)
            assert len(digests) == self._workers and len(set(digests)) == 1, key


def learn(spark, names, dtype, workers, prologue="", seconds=400, **spec):
    """Run cases on the cluster, after some code: `Learned`."""
    return learn_parts(spark, {"": (names, dtype)}, workers, prologue, seconds, **spec)[""]


def learn_parts(spark, parts, workers, prologue="", seconds=400, **spec):
    """Several lists of cases in one run, as a launch takes as long as some cases: {label: `Learned`}.

    All are of one dtype: the weights that Keras draws depend on the first one of a process.

    parts: {label: (names of cases, dtype)}, or with code that comes before them: (names, dtype, code).
    """
    lines = [prologue + CASES, "_results = {}"]
    for label, (names, dtype, *before) in parts.items():
        lines += [*before, f"_results[{label!r}] = run_cases({list(names)!r}, {dtype!r}, ddl, {label!r})"]
    cell = "\n".join([*lines, "_results"])
    ended = launch.finished(spark, cell, workers=workers, seconds=seconds, **spec)
    results = ended.result
    return {label: Learned(ended, results[label], dtype, workers, label) for label, (_, dtype, *_) in parts.items()}


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
        assert set(ours["history"]) == set(theirs["history"]), (name, list(ours["history"]), list(theirs["history"]))
        for key, values in theirs["history"].items():
            gap = distance(ours["history"][key], values)
            if not gap <= history_bound:
                found.append(f"{name}: history {key} differs by {gap:.2g}")
        if dtype == "float64" or name not in NOT_SGD:
            gap = distance(ours["weights"], theirs["weights"])
            if not gap <= weight_bound:
                found.append(f"{name}: weights differ by {gap:.2g}")
    return found


def assert_equal(found, expected):
    """Assert that a cell's {"history", "weights"} is another's but for rounding of float64."""
    for name, values in expected["history"].items():
        np.testing.assert_allclose(found["history"][name], values, rtol=1e-9, err_msg=name)
    for ours, theirs in zip(found["weights"], expected["weights"], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def check(learned, reference):
    """Assert that n workers learned what one process does, all ranks to the bit alike."""
    found = learned.differences(reference)
    assert not found, found
    learned.assert_ranks_equal()
