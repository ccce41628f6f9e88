"""Searches with made-up trials, for the tests of their views: what a view asks of them, and what the store has."""

import math
import random
import time
from dataclasses import replace

import pytest

from ddl_magics import store
from ddl_magics.options.parsing import parse
from ddl_magics.runtime import events as ev
from ddl_magics.runtime.cell.suggestions import Choices, FloatRange, IntRange
from ddl_magics.search.stored_view import StoredView
from ddl_magics.search.study import distribution
from ddl_magics.search.view import SearchView, TrialRow
from support.stored import finished, stored

SPACE = {
    "lr": FloatRange("lr", 1e-4, 1e-1, log=True),
    "units": IntRange("units", 16, 256),
    "act": Choices("act", ("relu", "gelu", None)),
}
EPOCHS = 9


class InventedSearch:
    """`view` is what its live view shows; `asked` is what the reader has asked for."""

    id = "invented"

    def __init__(self, view):
        self.view, self.asked = view, []

    def listen(self, listener):
        self.show = listener
        listener(self.view)

    def request_stop(self):
        self.asked.append("stop")

    def stop_trial(self, trial):
        self.asked.append(trial)
        if trial == 99:
            raise LookupError


def trial(number, training=False):
    """Every third trial is pruned after its third epoch; trial 4 is the best of the first hundred."""
    chance = random.Random(number)
    lr, units = 10 ** chance.uniform(-4, -1), chance.randint(16, 256)
    end = 0.97 - 0.05 * abs(math.log10(lr) + 2.3)
    epochs = 3 if number % 3 == 1 or training else EPOCHS
    curve = tuple((epoch, end - (end - 0.3) * math.exp(-0.6 * epoch)) for epoch in range(1, epochs + 1))
    state = "training" if training else "finished" if epochs == EPOCHS else "pruned"
    reason = f"pruned after epoch 3: val_accuracy {curve[-1][1]:.4g} was not among the best third of the trials"
    return TrialRow(
        number,
        state,
        curve[-1][1],
        {"lr": lr, "units": units, "act": ("relu", "gelu", None)[number % 3]},
        epochs,
        5.0 * epochs,
        reason if state == "pruned" else "",
        f"run{number}",
        begun=time.time() - 5 * epochs,
        curve=curve,
    )


def search_view(ended, training=0, planned=40, state=ev.RUNNING):
    """The view of a search with so many trials that have ended, and that train."""
    rows = tuple(trial(number, training=number >= ended) for number in range(ended + training))
    about = "tpe, asha, 4 at a time, 1 worker each"
    return SearchView("invented", "tuned", state, "", "val_accuracy", "max", planned, 372.0, about, rows, SPACE)


class StoredSearch:
    """A search in the store, as a kernel leaves it that is this process; `folder` is its folder."""

    def __init__(self, ended, training=0, name="tuned", planned=40, runs=50):
        """runs: the first so many trials have a run in the store."""
        self.id = store.new_run_id()
        line = f"--trials {planned} --objective val_accuracy:max --parallel 4 --name {name}"
        spec = {**parse(line).to_record(), "run": self.id, "cell": "lr = ddl.suggest_float('lr', 1e-4, 1e-1)"}
        self._created = time.time() - 372
        record = {"created": self._created, "spec": spec, "cluster": "this machine", "state": ev.RUNNING}
        self.folder = store.SearchFolder.create({**record, "notebook": "a.ipynb"})
        self._name, self._planned = name, planned
        self._stored = StoredView(self.folder)
        self._runs, self._most = {}, runs
        self.show(ended, training)

    def show(self, ended, training=0, state=ev.RUNNING):
        """So many trials have ended, and train; of each there is a run."""
        view = search_view(ended, training, self._planned, state)
        rows = [replace(row, run=self._run(row), begun=self._created) for row in view.rows]
        self._stored._next_write = 0.0
        self._stored.show(replace(view, id=self.id, name=self._name, rows=tuple(rows)))
        if state in ev.TERMINAL:
            self.folder.update({"state": state, "ended": time.time()})

    def run(self, trial):
        """The folder of the run of a trial."""
        return self._runs[trial]

    def study(self):
        """(Optuna's storage, a new study, its distributions), for its journal; the test is skipped without Optuna."""
        optuna = pytest.importorskip("optuna")
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        backend = optuna.storages.journal.JournalFileBackend(str(self.folder.journal))
        storage = optuna.storages.JournalStorage(backend)
        study = optuna.create_study(study_name=self.id, storage=storage, direction="maximize")
        return storage, study, {name: distribution(parameter) for name, parameter in SPACE.items()}

    def _run(self, row):
        if row.number >= self._most:
            return f"run{row.number}"
        about = {"name": f"{self._name}_{row.number}", "parent": self.id, "trial": row.number, "set": row.values}
        if row.number not in self._runs:
            self._runs[row.number] = stored(ev.RUNNING, **about) if row.state == "training" else finished(**about)
            self._runs[row.number].update({"progress": {"epoch": row.epochs, "metrics": {"val_accuracy": row.value}}})
        return self._runs[row.number].path.name
