"""Studies of Optuna, damaged or a stranger's, by the thousand: shown, or refused in one line; nothing is unpickled."""

import contextlib
import json
import shutil

import pytest
from IPython.core.error import UsageError
from support import strangers
from support.invented_search import StoredSearch

from ddl_magics import store
from ddl_magics.errors import InOneLine
from ddl_magics.options.parsing import parse
from ddl_magics.runtime import events as ev
from ddl_magics.search import Search
from ddl_magics.search import study as studies
from ddl_magics.search.plan import make_plan
from ddl_magics.search.text import searches_table
from ddl_magics.search.warm_start import with_earlier_trials
from ddl_magics.server.search_views import SearchViews
from ddl_magics.store import files

CELL = 'lr = ddl.suggest_float("lr", 1e-4, 1e-1, log=True)\nunits = ddl.suggest_int("units", 16, 256)'


@pytest.fixture
def search(data_dir, monkeypatch):
    """The folder of a search with six trials: finished, pruned, failed, one with the state of CMA-ES."""
    optuna = pytest.importorskip("optuna")
    for name in ("synchronize", "synchronize_folder"):
        monkeypatch.setattr(files, name, lambda *_: None)
    found = StoredSearch(ended=4, runs=2, planned=6)
    found.show(4, state=ev.FINISHED)
    record = json.loads((found.folder.path / "search.json").read_text())
    found.folder.update({"spec": {**record["spec"], "cell": CELL, "search": "tpe", "prune": "asha"}})
    storage, study, ranges = found.study()
    states = optuna.trial.TrialState
    for number, state in enumerate((states.COMPLETE, states.COMPLETE, states.PRUNED, states.FAIL, states.COMPLETE)):
        trial = study.ask(ranges)
        trial.set_user_attr(studies.RUN, [found.run(number % 2).path.name])
        trial.report(0.5, 1)
        trial.report(0.6, 2)
        trial.set_user_attr(studies.REASON, "pruned after epoch 2")
        study.tell(trial, 0.6 if state == states.COMPLETE else None, state=state)
    storage.set_trial_system_attr(study.ask(ranges)._trial_id, "cma:optimizer:0", "80")
    return found.folder


def line_of(error):
    strangers.in_one_line(str(error), 900)
    return "refused"


def shown(record):
    found = Search.stored(record)
    try:
        strangers.for_a_terminal(str(found))
        found.trials, found.front, len(found.view.rows), repr(found.best)
        return "shown"
    except LookupError as error:
        return line_of(error)
    except (InOneLine, UsageError) as error:
        return line_of(error)


@strangers.tried(12, 2000)
def test_a_journal(search, data_dir, count):
    lines = [json.loads(line) for line in search.journal.read_bytes().splitlines()]
    whole = search.journal.read_bytes()
    spec = parse("--trials 2 --objective val_accuracy:max --warm-start tuned")

    def make(chance):
        return strangers.lines_file(lines, chance) if chance.randrange(4) else strangers.bytes_of(whole, chance)

    def read(data):
        search.journal.write_bytes(data)
        record = search.record()
        outcome = shown(record)
        plan = make_plan(type(spec).from_record({**spec.to_record(), "cell": CELL}))
        with contextlib.suppress(InOneLine, UsageError):
            with_earlier_trials(plan)
        try:  # as a search goes on
            own = studies.Study(search.journal, make_plan(type(spec).from_record(record.spec)))
            asked = own.ask()
            own.report(asked.number, 1, 0.5)
            own.complete(asked.number, [0.5])
        except (InOneLine, UsageError) as error:
            line_of(error)
        return outcome

    strangers.Watch("studies", data_dir).each(count, make, read)


@strangers.tried(10, 2000)
def test_the_records_of_a_search(search, data_dir, count):
    names = ("search.json", "view.json")
    whole = {name: json.loads((search.path / name).read_text()) for name in names}

    def make(chance):
        name = chance.choice(names)
        return {name: strangers.json_file(whole[name], chance)}

    def read(made):
        for name in names:
            (search.path / name).write_bytes(made.get(name) or json.dumps(whole[name]).encode())
        for line in searches_table(store.list_searches()):
            strangers.for_a_terminal(line)
        record = search.record()
        if record is None:
            return "no search"
        with contextlib.suppress(LookupError):
            json.dumps(SearchViews().update(record, ""))
        return shown(record)

    strangers.Watch("records of searches", data_dir).each(count, make, read)
    shutil.rmtree(search.path)
