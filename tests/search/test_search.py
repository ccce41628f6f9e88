"""A search whose runs are played by the test: what is started when, what is pruned, tried again, stopped, continued."""

import dataclasses
import json
import math
import re
import threading
import time

import numpy as np
import optuna
import pytest
from IPython.core.error import UsageError
from support.fake_cluster import epoch, state
from support.refusals import refusal
from support.stored import kill_owner
from support.until import until

from ddl_magics import store
from ddl_magics.clusters import machine
from ddl_magics.clusters.base import Refused
from ddl_magics.errors import SearchFailed
from ddl_magics.options.parsing import parse
from ddl_magics.runtime import events as ev
from ddl_magics.search import Search, scheduler
from ddl_magics.search import study as studies
from ddl_magics.search.plan import make_plan
from ddl_magics.search.scores import Scores
from ddl_magics.search.text import SearchProgress
from ddl_magics.search.warm_start import with_earlier_trials

CELL = """
lr = ddl.suggest_float("lr", 1e-4, 1e-1, log=True)
units = ddl.suggest_int("units", 16, 256)
"""
GRID = """
units = ddl.suggest_int("units", 1, 3)
act = ddl.suggest_categorical("act", ["relu", None])
"""


class PlayedRun:
    """A run that does what the test says."""

    def __init__(self, spec, run):
        self.spec, self.id, self.name, self.state = spec, run, spec.name, ev.RUNNING
        self.stopped = None
        self._listeners, self._events, self._lock = [], [], threading.Lock()
        self._epoch = 0
        self.send(state(ev.RUNNING))

    def listen(self, listener):
        with self._lock:
            self._listeners.append(listener)
            listener(list(self._events))

    def send(self, *events):
        with self._lock:
            numbered = enumerate(events, len(self._events) + 1)
            new = [{**event, "run": self.id, "seq": seq, "attempt": 1} for seq, event in numbered]
            self._events += new
            for listener in self._listeners:
                listener(new)

    def begin(self, epochs):
        self.send(ev.make("fit", 0, fit=0, model="m", epochs=epochs, steps=1))

    def report(self, *values, **others):
        for value in values:
            self.send(epoch(self._epoch, score=value, **others))
            self._epoch += 1

    def end(self, name=ev.FINISHED, message="", **fields):
        self.state = name
        self.send(state(name, message, **fields))

    def fail(self, kind="error", message="ValueError: bad"):
        self.end(ev.FAILED, message, failure={"rank": 0, "host": "h", "kind": kind, "message": message})

    def request_stop(self, reason=""):
        self.stopped = reason

    def finish(self, *values):
        self.report(*values)
        self.end()


class Stage:
    """The launcher of a search: `runs` are those that it has started, in order."""

    def __init__(self, slots=3):
        self.slots, self.runs, self.attached, self.refuse = slots, [], {}, None
        self.users, self.replaced = False, []

    def room(self, workers):
        return self.slots // workers

    def start(self, spec):
        if self.refuse:
            raise UsageError(self.refuse)
        self.runs.append(PlayedRun(spec, f"run{len(self.runs)}"))
        return self.runs[-1]

    def attach(self, record):
        return self.attached.get(record.name)

    def give_back(self):
        pass

    def replace(self, executor):
        self.replaced.append(executor)
        return Refused("usage", "the session is yours") if self.users else "it was replaced by another"

    def started(self, number):
        """The runs, as soon as there are so many."""
        until(lambda: len(self.runs) >= number, 10)
        assert len(self.runs) == number
        return self.runs


def planned(line, cell=CELL, name="tuned"):
    objective = "" if "--objective" in line else "--objective score:max"
    spec = parse(f"--name {name} --seed 1 {objective} {line}")
    return make_plan(dataclasses.replace(spec, cell=cell, run=store.new_run_id()))


def start(plan, stage):
    record = {"created": time.time(), "spec": plan.spec.to_record(), "state": ev.RUNNING, "cluster": "stage"}
    return Search.start(plan, store.SearchFolder.create(record), stage)


@pytest.fixture(autouse=True)
def quick(data_dir, monkeypatch):
    monkeypatch.setattr(scheduler, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(scheduler, "VIEW_SECONDS", 0.0)


@pytest.fixture
def begin():
    """`begin(line)`: a search, which the test's end leaves, and its launcher."""
    searches = []

    def begin(line, slots=1, cell=CELL):
        stage = Stage(slots)
        searches.append(start(planned(line, cell), stage))
        return searches[-1], stage

    yield begin
    for search in searches:
        search.abandon()
        assert search.settled(10)


def states(search):
    return [row.state for row in search.view.rows]


def test_a_slot_that_is_free_takes_the_next_trial_at_once(begin):
    search, stage = begin("--trials 5 --prune no", slots=3)
    assert search.run(0) is stage.runs[0], "at once"
    first, second, third = stage.started(3)
    assert [run.name for run in stage.runs] == ["tuned_0", "tuned_1", "tuned_2"]
    second.finish(0.5)
    fourth = stage.started(4)[3]
    fourth.finish(0.9)
    fifth = stage.started(5)[4]
    for run, value in ((first, 0.1), (third, math.nan), (fifth, 0.3)):
        run.finish(value)
    search.wait(10)
    assert search.state == ev.FINISHED and len(stage.runs) == 5
    assert search.best.number == 3 and search.best.value == 0.9
    assert search.best.run is fourth
    frame = search.trials
    assert list(frame.columns) == [
        "trial",
        "state",
        "value",
        "lr",
        "units",
        "epochs",
        "seconds",
        "tries",
        "reason",
        "run",
    ]
    assert list(frame["state"]) == ["finished", "finished", "pruned", "finished", "finished"]
    assert frame["reason"][2] == "diverged: score is not a number"
    assert [trial.state.name for trial in search.study.trials].count("COMPLETE") == 4


def test_a_trial_is_an_ordinary_run_with_its_values(begin):
    _, stage = begin("--trials 9 --workers 2 --parallel 1 --timeout 1h", slots=4)
    (run,) = stage.started(1)
    spec = run.spec
    assert (spec.trial, spec.workers, spec.trials, spec.timeout, spec.seed) == (0, 2, None, None, 1)
    assert spec.parent == store.find_search("tuned").id
    assert 1e-4 <= float(spec.set["lr"]) <= 1e-1 and 16 <= int(spec.set["units"]) <= 256
    time.sleep(0.1)
    stage.started(1)


def test_asha_ends_the_worse_trials_and_says_why(begin):
    search, stage = begin("--trials 4")
    bad = being_pruned(stage, (0.9, 0.9, 0.9))
    assert bad.stopped == ": pruned after epoch 1: score 0.1 was not among the best third of the trials"
    bad.report(0.2)  # the step that it had begun
    bad.end(ev.STOPPED)
    late = stage.started(3)[2]
    late.begin(1)
    late.finish(0.2)  # in its last epoch: nothing would be saved
    assert stage.started(4)[2].stopped is None
    assert states(search)[:3] == ["finished", "pruned", "finished"]
    row = search.view.rows[1]
    assert row.reason == bad.stopped[2:] and row.epochs == 1 and row.value == 0.1
    assert row.reason in str(search), "no mouse uncovers the rest of it there"


def test_a_death_of_the_machine_is_tried_again_and_an_exception_is_not(begin):
    search, stage = begin("--trials 4 --prune no")
    stage.started(1)[0].finish(0.5)
    died = stage.started(2)[1]
    died.report(0.1)
    died.fail("signal", "killed by SIGKILL")
    again = stage.started(3)[2]
    assert again.name == "tuned_1_again" and again.spec.set == died.spec.set and again.spec.trial == 1
    assert (died.spec.attempts, again.spec.attempts) == (2, 1)
    again.finish(0.1, 0.4)
    raised = stage.started(4)[3]
    raised.fail()
    twice = stage.started(5)[4]
    assert twice.spec.trial == 3
    twice.end(ev.LOST, "gone")
    stage.started(6)[5].fail("lost", "gone again")
    search.wait(10)
    assert states(search) == ["finished", "finished", "failed", "failed"]
    rows = search.view.rows
    assert (rows[1].value, rows[1].tries, rows[1].epochs) == (0.4, 2, 2)
    assert rows[2].reason == "ValueError: bad" and rows[3].reason == "its run died 2 times: gone again"
    assert "tried 2 times" in str(search)


def die(run, executor, kind="signal"):
    run.send(ev.make("worker", 0, host="wn3", pid=1, device="", state="starting", executor=executor))
    run.fail(kind, "was killed by SIGKILL")


@pytest.mark.parametrize("users", [False, True])
def test_an_executor_on_which_trials_died_twice_is_replaced_or_named(begin, users):
    search, stage = begin("--trials 4 --search random --prune no", slots=2)
    stage.users = users
    die(stage.started(2)[0], "7")
    die(stage.runs[1], "7", "error")
    stage.started(4)
    assert not search.view.message and not stage.replaced, "one death, and one mistake of the cell"
    die(stage.runs[2], "8")
    die(stage.runs[3], "7")
    until(lambda: search.view.message, 10)
    said = "which Spark still uses (the session is yours): look for another process that takes its memory; a new"
    done = ", " + said if users else ": it was replaced by another"
    assert search.view.message.startswith(f"2 runs of trials died on executor 7 on wn3{done}")
    assert stage.replaced == ["7"]


def test_the_trial_whose_second_death_excludes_an_executor_has_another_run(begin):
    search, stage = begin("--trials 1 --search random --prune no")
    for number in (1, 2):
        die(stage.started(number)[-1], "7")
    stage.started(3)[2].finish(0.4)
    search.wait(10)
    assert states(search) == ["finished"] and search.view.rows[0].tries == 3


def test_values_that_kill_every_executor_end_a_trial(begin):
    search, stage = begin("--trials 2 --search random --prune no")
    for number, executor in enumerate("7788", 1):
        die(stage.started(number)[-1], executor)
        if number == 3:
            until(lambda: search.view.rows[0].state == "failed", 10)
    stage.started(5)[4].finish(0.4)
    search.wait(10)
    assert states(search) == ["failed", "finished"]


def being_pruned(stage, better=(0.9,)):
    """The run of the second trial, which is asked to stop beside a much better first one."""
    stage.started(1)[0].finish(*better)
    bad = stage.started(2)[1]
    bad.begin(3)
    bad.report(0.1)
    until(lambda: bad.stopped is not None, 10)
    return bad


def test_a_trial_that_dies_as_it_is_pruned_is_pruned(begin):
    search, stage = begin("--trials 2")
    bad = being_pruned(stage)
    bad.fail("signal", "killed by SIGKILL")
    assert states(search.wait(10)) == ["finished", "pruned"] and len(stage.runs) == 2


def test_a_mistake_in_the_cell_ends_the_search(begin):
    search, stage = begin("--trials 40")
    for number in range(3):
        stage.started(number + 1)[number].fail()
    with pytest.raises(SearchFailed, match="tuned: the first 3 trials failed: ValueError: bad"):
        search.wait(10)
    assert store.find_search("tuned").state == ev.FAILED


def test_a_wrong_metric_is_named(begin):
    search, stage = begin("--trials 1")
    run = stage.started(1)[0]
    printed = []
    progress = SearchProgress()
    search.listen(lambda view: printed.extend(progress.feed(view)))
    run.send(epoch(0, loss=1.0, scores=0.5))
    words = "no score so far; the trials report loss, scores. Did you mean scores?"
    until(lambda: printed, 10)
    assert [line.endswith(words) for line in printed] == [True]
    run.end()
    with pytest.raises(SearchFailed, match=r"the trial failed: it reported no score, but loss, scores\. Did you mean"):
        search.wait(10)


def test_stop(begin):
    search, stage = begin("--trials 9", slots=2)
    first, second = stage.started(2)
    first.report(0.5)
    search.request_stop()
    until(lambda: second.stopped == " with its search", 10)
    for run in (first, second):
        run.end(ev.STOPPED)
    assert search.wait(10).state == ev.STOPPED and len(stage.runs) == 2
    assert [row.reason for row in search.view.rows] == ["stopped with the search"] * 2
    with pytest.raises(LookupError, match=r"no trial of tuned has finished \(STOPPED\)"):
        _ = search.best


def test_a_stop_from_another_process_and_a_timeout(begin):
    search, stage = begin("--trials 9")
    Search.stored(store.find_search("tuned")).request_stop()
    until(lambda: stage.started(1)[0].stopped is not None, 10)
    stage.runs[0].end(ev.STOPPED)
    assert search.wait(10).state == ev.STOPPED

    search, stage = begin("--trials 9 --timeout 0.1s")
    until(lambda: stage.started(1)[0].stopped is not None, 10)
    stage.runs[0].end(ev.STOPPED)
    assert "--timeout is over after 0.1 s" in str(search.wait(10))


def test_one_trial_that_was_stopped_by_its_user(begin):
    search, stage = begin("--trials 2")
    stage.started(1)[0].report(0.5)
    stage.runs[0].end(ev.STOPPED)
    stage.started(2)[1].finish(0.4)
    assert [row.reason for row in search.wait(10).view.rows] == ["stopped on request", ""]


def test_the_grid_is_gone_through_once(begin):
    search, stage = begin("--trials 40 --search grid", slots=4, cell=GRID)
    for number in range(6):
        until(lambda number=number: len(stage.runs) > number, 10)
        stage.runs[number].finish(0.1)
    assert search.wait(10).state == ev.FINISHED and len(stage.runs) == 6
    assert {tuple(sorted(run.spec.set.items())) for run in stage.runs} == {
        (("act", act), ("units", units)) for act in ("relu", "None") for units in "123"
    }
    assert {row.params["act"] for row in search.view.rows} == {"relu", None}


@pytest.mark.parametrize("sampler", ["tpe", "random", "evolution", "cmaes"])
@pytest.mark.parametrize("pruner", ["asha", "median", "hyperband", "no"])
def test_every_sampler_with_every_pruner(begin, sampler, pruner):
    search, stage = begin(f"--trials 16 --search {sampler} --prune {pruner}", slots=2)
    done = 0
    while not search.settled(0.005):
        for run in stage.runs[done:]:
            run.begin(3)
            for _ in range(3):
                run.report(-abs(math.log(float(run.spec.set["lr"]) / 1e-2)))
            run.end(ev.FINISHED if run.stopped is None else ev.STOPPED)
            done += 1
    assert search.state == ev.FINISHED and len(stage.runs) == 16
    assert set(states(search)) <= {"finished", "pruned"} and search.best.value <= 0


def killed(search, stage):
    """What a killed kernel leaves: nobody's search in the store, and its record."""
    search.abandon()
    assert search.settled(10)
    kill_owner(search._folder)
    record = store.find_search("tuned")
    assert record.state == ev.LOST
    for run in stage.runs:
        path = store.runs_folder() / run.id
        if not path.exists():
            entry = {"id": run.id, "name": run.name, "created": 1.0, "spec": run.spec.to_record(), "cluster": ""}
            store.RunFolder.create({**entry, "state": run.state})
    return record


def test_a_search_whose_kernel_was_killed_continues_and_tells_nothing_twice(begin):
    search, stage = begin("--trials 6 --prune no", slots=3)
    finished, lives, lost = stage.started(3)
    finished.finish(0.7)
    ended = stage.started(4)[3]
    lives.report(0.3)
    until(lambda: search.view.rows[1].epochs == 1, 10)
    record = killed(search, stage)
    with open(search._folder.journal, "ab") as file:
        file.write(b'{"op_code": 4, "half')

    second = Stage(slots=3)
    follows = PlayedRun(lives.spec, lives.id)
    done = PlayedRun(ended.spec, ended.id)
    done.finish(0.8)  # while there was no kernel
    second.attached = {"tuned_1": follows, "tuned_3": done}
    continued = Search.resume(record, second)
    try:
        again = second.started(1)[0]
        assert again.spec.trial == 2 and again.spec.set == lost.spec.set, "its run is gone: the same values again"
        follows.report(0.3, 0.4)  # all from the beginning: the first has been told before
        follows.end()
        until(lambda: len(second.runs) > 1, 10)
        again.finish(0.2)
        until(lambda: len(second.runs) > 2, 10)
        for run in second.runs[1:]:
            run.finish(0.1)
        assert continued.wait(10).state == ev.FINISHED
        rows = continued.view.rows
        assert [row.value for row in rows] == [0.7, 0.4, 0.2, 0.8, 0.1, 0.1]
        assert [row.epochs for row in rows] == [1, 2, 1, 1, 1, 1]
        values = [tuple(row.params.values()) for row in rows]
        assert len(set(values)) == 6, "the sampler does not begin anew"
        assert len(second.runs) == 3
    finally:
        continued.abandon()


def test_a_trial_that_was_being_pruned_as_the_kernel_was_killed_is_not_trained_again(begin):
    search, stage = begin("--trials 3")
    being_pruned(stage)
    second = Stage(slots=1)
    continued = Search.resume(killed(search, stage), second)
    second.started(1)[0].finish(0.8)
    assert states(continued.wait(10)) == ["finished", "pruned", "finished"] and len(second.runs) == 1


def test_a_run_whose_last_event_was_not_stored_has_ended_all_the_same(begin):
    search, stage = begin("--trials 2 --prune no", slots=2)
    for run in stage.started(2):
        run.report(0.4)
    until(lambda: [row.epochs for row in search.view.rows] == [1, 1], 10)
    stage.runs[0].state, stage.runs[1].state = ev.FINISHED, ev.FAILED
    record = killed(search, stage)
    second = Stage(slots=2)
    for run in stage.runs:
        cut = second.attached[run.name] = PlayedRun(run.spec, run.id)
        cut.report(0.5)
        cut.state = run.state
    continued = Search.resume(record, second)
    second.started(1)[0].finish(0.7)
    rows = continued.wait(10).view.rows
    assert [(row.value, row.tries) for row in rows] == [(0.5, 1), (0.7, 2)]


def test_a_search_that_was_refused_continues_later(begin):
    search, stage = begin("--trials 3 --prune no")
    stage.refuse = "the session has ended"
    stage.started(1)[0].finish(0.5)
    with pytest.raises(SearchFailed, match="the session has ended"):
        search.wait(10)
    assert states(search) == states(Search.stored(store.find_search("tuned"))) == ["finished", "waiting"]
    second = Stage(slots=1)
    continued = Search.resume(store.find_search("tuned"), second)
    second.started(1)[0].finish(0.1)
    second.started(2)[1].finish(0.2)
    assert continued.wait(10).state == ev.FINISHED
    assert [row.value for row in continued.view.rows] == [0.5, 0.1, 0.2]


@pytest.mark.parametrize(
    ("installed", "search", "words"),
    [
        ({}, "tpe", "--trials needs Optuna on the notebook's machine: pip install "),
        ({"optuna": "4.9.0"}, "tpe", "--trials needs Optuna 5 or newer, and 4.9.0 is installed on the notebook's "),
        (
            {"optuna": "5.0.0"},
            "cmaes",
            "--search cmaes needs the package cmaes on the notebook's machine: pip ",
        ),
    ],
)
def test_what_is_missing_is_one_line(monkeypatch, installed, search, words):
    monkeypatch.setattr(machine, "installed", installed.get)
    message = refusal(planned, f"--trials 3 --search {search}")
    assert message.startswith(words) and message.endswith(", the extra search of this package.")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--search grid", "--search grid: lr has no step: give its call step=, or use suggest_categorical."),
        ("--search cmaes --set units=20", "--search cmaes needs two or more numeric parameters"),
        (
            "--objective a:max,b:min --prune asha",
            "--prune asha compares trials by one metric: with several objectives, leave it out.",
        ),
        (
            "--objective a:max,b:min --search cmaes",
            "--search cmaes has one objective; use --search evolution.",
        ),
        ("--warm-start x --search random", "--warm-start is for --search tpe and cmaes, which learn from earlier"),
    ],
)
def test_a_search_that_does_not_suit_its_parameters_is_refused_before_it_starts(options, says):
    with pytest.raises(UsageError, match=re.escape(says)):
        planned(f"--trials 3 {options}")


def test_the_same_seed_samples_the_same_values(begin):
    def values():
        search, stage = begin("--trials 14 --parallel 1 --prune no", slots=4)
        for number in range(14):
            run = stage.started(number + 1)[number]
            run.finish(float(run.spec.set["lr"]))
        search.wait(10)
        return [dict(run.spec.set) for run in stage.runs]

    first = values()
    assert values() == first and len({run["lr"] for run in first}) == 14


def test_a_value_that_is_not_a_number_ends_a_trial_early(begin):
    search, stage = begin("--trials 1")
    run = stage.started(1)[0]
    run.begin(3)
    run.report(None)
    until(lambda: run.stopped == ": pruned after epoch 1: score is not a number", 10)
    run.end(ev.STOPPED)
    assert states(search.wait(10)) == ["pruned"]
    with pytest.raises(LookupError, match="no trial of tuned has finished"):
        _ = search.best


def test_an_objective_that_comes_late_or_never(begin):
    """It is compared from its first value on, with other trials' first value."""
    search, stage = begin("--trials 3")
    good = stage.started(1)[0]
    good.begin(4)
    for number in range(4):
        good.send(epoch(number, loss=1.0, **({"score": 0.9} if number % 2 else {})))
    good.end()
    bad = stage.started(2)[1]
    bad.begin(4)
    bad.send(epoch(0, loss=1.0), epoch(1, loss=1.0, score=0.1))
    until(lambda: bad.stopped is not None, 10)
    assert bad.stopped.startswith(": pruned after epoch 2: score 0.1 was not ")
    bad.end(ev.STOPPED)
    after = stage.started(3)[2]
    after.begin(4)
    after.send(*(epoch(number, loss=1.0) for number in range(4)))
    after.send(ev.make("values", 0, metrics={"score": 0.95}, step=None))
    after.end()
    assert [(row.state, row.value) for row in search.wait(10).view.rows] == [
        ("finished", 0.9),
        ("pruned", 0.1),
        ("finished", 0.95),
    ]


def test_trials_that_all_fail_end_the_search_and_one_that_finished_does_not(begin):
    search, stage = begin("--trials 5 --prune no")
    stage.started(1)[0].finish(0.5)
    for number in range(1, 5):
        stage.started(number + 1)[number].fail()
    assert states(search.wait(10)) == ["finished"] + ["failed"] * 4 and search.state == ev.FINISHED


def test_the_options_of_the_best_trial_are_words_of_a_line(begin):
    search, stage = begin("--trials 1 --search grid", cell='act = ddl.suggest_categorical("act", ["leaky relu"])')
    stage.started(1)[0].finish(0.5)
    assert parse(search.wait(10).best.options).set == {"act": "leaky relu"}


def test_scores_of_repeated_epochs_and_calls():
    scores = Scores("score")

    def end_epoch(number, value, attempt):
        return scores.feed(ev.parse({**epoch(number, score=value), "attempt": attempt}))

    values = [end_epoch(number, value, 1) for number, value in enumerate((0.1, 0.2))]
    assert [(each.step, each.value, each.label) for each in values] == [(1, 0.1, "epoch 1"), (2, 0.2, "epoch 2")]
    assert end_epoch(1, 0.3, 2) is None and scores.values == [0.3], "as in the history"
    assert end_epoch(2, None, 2).diverged

    scores = Scores("score")

    def log(value, attempt, rank=0, step=None):
        event = ev.make("values", rank, metrics={"score": value}, step=step)
        return scores.feed(ev.parse({**event, "attempt": attempt}))

    assert [log(0.1, 1).step, log(0.2, 1).step] == [1, 2] and log(0.9, 1, rank=1) is None
    assert log(0.3, 2) is None and log(0.4, 2) is None and log(0.5, 2).label == "value 3", "the loop began anew"
    scores.feed(ev.parse({**ev.make("group", ev.JOB, members=[1]), "attempt": 2}))
    assert log(0.55, 2) is None and log(0.55, 2, rank=1).label == "value 4", "rank 1 is the chief"
    assert log(0.6, 2, rank=1, step=7).step == 5 and log(0.7, 2, rank=1, step=7) is None and scores.values == [0.7]


def test_a_damaged_line_of_a_study_is_told_in_one_line(begin):
    search, stage = begin("--trials 2 --prune no", slots=2)
    stage.started(2)
    killed(search, stage)
    journal = search._folder.journal
    lines = journal.read_bytes().splitlines(keepends=True)
    plan = make_plan(search.spec)
    for damage in (b"{half\n", b"7\n", b'{"op_code": 99}\n', b"[]\n"):
        journal.write_bytes(b"".join([lines[0], damage, *lines[1:]]))
        for read in (lambda: studies.open_study(journal, search.spec), lambda: studies.Study(journal, plan)):
            with pytest.raises(SearchFailed, match=r"journal is damaged \(.*\): the search cannot be") as caught:
                read()
            assert "\n" not in str(caught.value)


def test_a_study_of_another_form_is_told_in_one_line(begin):
    """An imported search may have one: without the study, of other objectives, with values that are no numbers."""
    search, stage = begin("--trials 2 --prune no", slots=2)
    stage.started(2)[0].finish(0.5)
    until(lambda: search.view.ended_trials == 1, 10)
    killed(search, stage)
    journal = search._folder.journal
    whole = journal.read_text()
    for a, b in [
        (search.id, "another"),
        ('"directions":[2]', '"directions":[2,2]'),
        ('"values":[0.5]', '"values":["x"]'),
        ('"values":[0.5]', '"values":[0.5,1.0]'),
        ('"param_name":"lr"', '"param_name":7'),
    ]:
        assert a in whole.replace(" ", ""), a
        journal.write_text(whole.replace(" ", "").replace(a, b))
        with pytest.raises(SearchFailed, match=r"journal is damaged \(.*\): the search cannot be") as caught:
            studies.open_study(journal, search.spec)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("sampler", ["tpe", "grid"])
def test_a_trial_whose_kernel_was_killed_while_it_was_asked_for_gets_its_other_values(tmp_path, sampler):
    cell = GRID if sampler == "grid" else CELL
    plan, journal = planned(f"--trials 3 --search {sampler} --prune no", cell), tmp_path / "study.journal"
    study = studies.Study(journal, plan)
    study.ask()
    lines, broken = journal.read_bytes().splitlines(keepends=True), []
    places = [number for number, line in enumerate(lines) if b'"param_name"' in line]
    for kept in (places[0], places[1]):  # none of its values is stored, or the first one
        journal.write_bytes(b"".join(lines[:kept]))
        (trial,) = studies.Study(journal, plan).trials
        assert trial.params.keys() == plan.space.keys()
        broken.append(trial.params)
    whole = study.trials[0].params
    first = next(iter(plan.space))
    assert broken[1][first] == whole[first], "what it had stays"
    assert sampler == "tpe" or broken == [whole, whole], "the point of the grid stays"


def test_damaged_searches_are_no_searches(begin):
    search, _ = begin("--trials 3")
    path = search._folder.path / "search.json"
    whole = json.loads(path.read_text())
    assert store.find_search("tuned").id == search.id
    for damage in (
        {"format": 2},
        {"state": "GONE"},
        {"created": "now"},
        {"spec": {**whole["spec"], "trials": "3"}},
        {"spec": {**whole["spec"], "objective": None}},
        {"spec": []},
        {"driver_address": 3},
    ):
        path.write_text(json.dumps({**whole, **damage}))
        assert store.list_searches() == [], damage
    path.write_text(json.dumps(whole))


def test_a_secret_of_the_session_is_not_known_when_a_search_continues(begin):
    search, stage = begin("--trials 3 --conf spark.my.password=x")
    with pytest.raises(UsageError, match=r"--conf spark\.my\.password is a secret, and was not stored"):
        Search.resume(killed(search, stage), Stage(slots=1))


def test_the_text(begin):
    search, stage = begin("--trials 4 --prune no --set units=20", slots=2)
    first = stage.started(2)[0]
    first.finish(0.25)
    until(lambda: search.view.ended_trials == 1, 10)
    stage.started(3)
    lines = str(search).splitlines()
    assert lines[0].startswith("tuned RUNNING  1 of 4 trials  tpe, no pruning, 2 at a time, 1 worker each  0:00, about")
    assert lines[1].startswith("best score 0.25  trial 0  lr=")
    assert lines[3].split() == ["trial", "state", "score", "lr", "epochs", "time"]
    assert lines[4].split()[:3] == ["0", "best", "0.25"] and lines[5].split()[:2] == ["1", "training"]
    assert lines[-1] == "1 finished, 0 pruned, 0 failed"
    assert search.best.options.startswith("--set lr=0.0")


def test_figures(begin):
    search, stage = begin("--trials 8 --prune no")
    for number in range(8):
        run = stage.started(number + 1)[number]
        run.finish(0.1, float(run.spec.set["lr"]))
    search.wait(10)
    for plot in studies.PLOTS:
        assert search.figure(plot).data, plot
    with pytest.raises(ValueError, match=r"there is no plot 'import'; there are history.*Did you mean importances\?"):
        search.figure("import")


def test_importances_of_pruned_trials_are_those_of_their_first_value():
    study = optuna.create_study(direction="maximize")
    ranges = {name: optuna.distributions.FloatDistribution(0, 1) for name in ("rate", "idle")}
    random = np.random.default_rng(0)
    for number in range(30):
        values = dict(zip(ranges, random.random(2), strict=True))
        first = float("nan") if number == 5 else values["rate"]
        trial = optuna.trial.create_trial(
            state=optuna.trial.TrialState.PRUNED if number else optuna.trial.TrialState.COMPLETE,
            value=0.5 if number else 0.9,
            params=values,
            distributions=ranges,
            intermediate_values={1: first} if number else {1: first, 9: 0.9},
        )
        study.add_trial(trial)
    (bars,) = studies.figure(study, "importances", ["score"]).data
    shares = dict(zip(bars.y, bars.x, strict=True))
    assert shares["rate"] > 0.9 > 0.1 > shares["idle"]


def test_one_trial_is_stopped_and_the_search_continues(begin):
    search, stage = begin("--trials 3 --prune no", slots=2)
    first, second = stage.started(2)
    first.report(0.5)
    search.stop_trial(0)
    until(lambda: first.stopped is not None, 10)
    first.end(ev.STOPPED)
    until(lambda: states(search)[0] == "pruned", 10)
    assert search.view.rows[0].reason == "stopped on request" and search.view.rows[0].curve == ((1, 0.5),)
    third = stage.started(3)[2]
    for trial in (0, 7):
        with pytest.raises(LookupError, match=f"trial {trial} of tuned does not run"):
            search.stop_trial(trial)
    second.finish(0.25)
    third.finish(0.75)
    search.wait(10)
    assert search.state == ev.FINISHED and search.best.number == 2


@pytest.fixture
def earlier(begin):
    """A search with ten finished trials, a pruned one and a failed one, named tuned."""
    search, stage = begin("--trials 12 --prune no")
    for number in range(10):
        stage.started(number + 1)[number].finish(0.25, 0.5 + number / 100)
    run = stage.started(11)[10]
    run.report(0.125)
    run.end(ev.STOPPED)
    stage.started(12)[11].fail()
    search.wait(10)
    return search


@pytest.mark.parametrize("kind", ["tpe", "cmaes"])
def test_a_search_learns_from_an_earlier_one(begin, earlier, kind):
    plan = with_earlier_trials(planned(f"--trials 2 --search {kind} --warm-start tuned", name="next"))
    assert plan.spec.warm_start == earlier.id and len(plan.earlier) == 11
    assert ("warm start", "11 trials of an earlier search") in list(plan.lines())
    stage = Stage(slots=1)
    search = start(plan, stage)
    for number in range(2):
        run = stage.started(number + 1)[number]
        assert run.name == f"next_{11 + number}" and run.spec.warm_start is None
        run.finish(0.1 * number)
    search.wait(10)
    assert [row.number for row in search.view.rows] == [11, 12] and search.best.number == 12
    assert len(search.study.trials) == 13 and search.study.best_value == 0.59
    assert [trial.intermediate_values for trial in search.study.trials[:11]] == [*[{}] * 10, {1: 0.125}]
    assert [row.number for row in Search.stored(store.find_search("next")).view.rows] == [11, 12]


def test_earlier_trials_that_do_not_fit_are_left_out(earlier):
    lr = sorted(row.params["lr"] for row in earlier.view.rows[:11])
    narrow = CELL.replace("1e-4", repr(lr[4]))
    assert len(with_earlier_trials(planned("--trials 2 --warm-start tuned", narrow)).earlier) == 7
    with pytest.raises(UsageError, match="cmaes learns from 10 finished trials or more"):
        with_earlier_trials(planned("--trials 2 --search cmaes --warm-start tuned", narrow))
    lower = CELL.replace("1e-1", repr(lr[5]))
    assert len(with_earlier_trials(planned("--trials 2 --warm-start tuned", lower)).earlier) == 6
    more = CELL + "ddl.suggest_int('more', 1, 2)"
    for line, cell, says in (
        ("--warm-start tunde", CELL, "--warm-start: there is no search tunde. Did you mean tuned?"),
        ("--warm-start tuned --objective score:min", CELL, "it optimized score:max, and this search score:min"),
        ("--warm-start tuned", more, "none of its 12 ended trials has a value of the"),
    ):
        with pytest.raises(UsageError, match=re.escape(says)):
            with_earlier_trials(planned(f"--trials 2 {line}", cell))


def test_several_objectives_have_a_front_of_trials_that_no_other_one_beats(begin):
    search, stage = begin("--trials 5 --objective score:max,size:min")
    assert (search.spec.search, search.spec.prune) == ("evolution", "no")
    for number, (score, size) in enumerate([(0.5, 10.0), (0.9, 99.0), (0.4, 50.0), (0.7, None)]):
        run = stage.started(number + 1)[number]
        run.report(score / 2, score)
        run.send(ev.make("values", 0, metrics={} if size is None else {"size": size}, step=None))
        run.end()
    run = stage.started(5)[4]
    run.send(ev.make("values", 0, metrics={"size": math.nan}, step=None))
    run.finish(0.5)
    search.wait(10)
    assert states(search) == ["finished", "finished", "finished", "failed", "pruned"]
    assert search.view.rows[3].reason.startswith("it reported no size, but score")
    assert search.view.rows[4].reason == "diverged: size is not a number"
    assert [row.number for row in search.view.front] == [0, 1] == list(search.front["trial"])
    assert [trial.number for trial in search.study.best_trials] == [0, 1], "as Optuna says"
    assert search.view.rows[1].curve == ((1, 0.45), (2, 0.9)) and search.view.rows[1].further_values == (99.0,)
    assert list(search.trials.columns[:5]) == ["trial", "state", "value", "size", "lr"]
    assert "2 trials that no other one beats in all objectives: tuned.front" in repr(search)
    with pytest.raises(LookupError, match="several objectives, and no single best trial"):
        _ = search.best
    assert Search.stored(store.find_search("tuned")).view.front == search.view.front
    for plot in [*studies.PLOTS, "front"]:
        assert search.figure(plot).data
    earlier = with_earlier_trials(planned("--trials 2 --search tpe --warm-start tuned --objective score:max,size:min"))
    assert [trial.values for trial in earlier.earlier[:2]] == [[0.5, 10.0], [0.9, 99.0]]
