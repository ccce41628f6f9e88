"""Searches in a kernel, from the magic to the store, on a cluster that replays events."""

import dataclasses
import json

import pytest
from IPython.core.error import UsageError
from support import shells
from support.fake_cluster import FakeCluster, epoch, state, training
from support.refusals import refusal
from support.stored import kill_owner
from support.until import until

from ddl_magics import __main__ as command_line
from ddl_magics import store
from ddl_magics.clusters import local_spark
from ddl_magics.clusters.base import Ready, Refused
from ddl_magics.options.parsing import parse
from ddl_magics.runs import follower
from ddl_magics.runtime import events as ev
from ddl_magics.search import scheduler
from ddl_magics.search.launcher import Launcher
from ddl_magics.store import cleaning

LINE = "--trials 3 --objective accuracy:max --name tuned --parallel 2 --prune no"
CELL = "units = ddl.suggest_int('units', 1, 100)"


@pytest.fixture(autouse=True)
def quick(data_dir, monkeypatch):
    monkeypatch.setattr(follower, "TURN_SECONDS", 0.01)
    monkeypatch.setattr(follower, "IDLE_POLL_SECONDS", 0.02)
    monkeypatch.setattr(scheduler, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(scheduler, "VIEW_SECONDS", 0.0)


@pytest.fixture
def shell():
    with shells.loaded(None) as shell:
        yield shell


def use(shell, cluster):
    shells.session(shell).cluster = cluster
    return shells.session(shell)


def test_a_cell_that_waits_prints_its_trials(shell, capsys):
    cluster = FakeCluster(slots=2)
    use(shell, cluster)
    shell.run_cell(f"%%distributed {LINE}\n{CELL}").raise_error()
    printed = capsys.readouterr().out.splitlines()
    tuned = shell.user_ns["tuned"]
    assert tuned.state == ev.FINISHED and len(cluster.launched) == 3
    assert sum(" finished: accuracy 0.6" in line for line in printed) == 3
    assert any(line.startswith("tuned FINISHED  3 of 3 trials  tpe, no pruning, ") for line in printed)
    specs = list(cluster.launched.values())
    assert [spec.name for spec in specs] == ["tuned_0", "tuned_1", "tuned_2"]
    assert {spec.strategy for spec in specs} == {"single"}
    assert tuned.best.run.result == {"answer": 42}
    shell.run_cell("%ddl show tuned").raise_error()
    assert "best accuracy 0.6" in capsys.readouterr().out
    shell.run_cell("%ddl stop tuned").raise_error()
    assert "has ended already: FINISHED" in capsys.readouterr().out
    assert command_line.main(["show", "tuned"]) == 0
    assert "best accuracy 0.6" in capsys.readouterr().out
    assert command_line.main(["stop", "--json", "tuned"]) == 1
    assert json.loads(capsys.readouterr().out)["outcome"] == "ended"
    for list_them in (lambda: shell.run_cell("%ddl runs").raise_error(), lambda: command_line.main(["runs"])):
        list_them()
        last = capsys.readouterr().out.splitlines()[-1].split()
        assert last[:6] == ["tuned", "FINISHED", "tpe", "1", "3", "accuracy:max"]

    shell.run_cell("%%distributed --name tuned\nx = 1").raise_error()
    capsys.readouterr()
    shell.run_cell("%ddl show tuned").raise_error()
    assert capsys.readouterr().out.startswith("tuned FINISHED") and store.find_search("tuned") is None, "the newest"


PLAN = """
cluster    this machine: 2 workers for each trial; an embedded Spark is started
search     6 trials, grid: every combination once; ranges of floats need a step
pruning    asha: asynchronous successive halving: after 1, 3, 9, ... epochs only the best third of the trials continues
objective  the highest val_accuracy after a trial's last epoch
parameter  units: 16 to 64, in steps of 16
parameter  act: relu, None
parameter  rate = 0.5, as --set says
at once    1 trial
strategy   allreduce: synchronous
variables  none
memory     about 1.2 GB for each trial of
start      nothing was started: leave --dry-run out
""".strip().splitlines()


def test_a_dry_run_says_what_a_search_would_do(shell, capsys, monkeypatch):
    monkeypatch.setattr(local_spark, "existing_session", lambda namespace: None)  # that of other tests
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    monkeypatch.setattr("ddl_magics.clusters.machine.memory", lambda: 2_000_000_000)
    monkeypatch.setattr("ddl_magics.clusters.machine.free_disk", lambda: 2_000_000_000)
    cell = (
        "ddl.suggest_int('units', 16, 64, step=16), ddl.suggest_categorical('act', ['relu', None])\n"
        "ddl.suggest_float('rate', 0.0, 0.9, default=0.1)"
    )
    line = "--trials 6 --search grid --objective val_accuracy:max --workers 2 --set rate=0.5 --dry-run"
    shell.run_cell(f"%%distributed {line}\n{cell}").raise_error()
    printed = capsys.readouterr().out.splitlines()
    printed = [line for line in printed if not line.startswith("settings ")]  # those of other tests in this process
    printed = [line for line in printed if "small models" not in line]  # which a kernel is told once
    assert len(printed) == len(PLAN) and all(map(str.startswith, printed, PLAN)), printed
    shell.run_cell(f"%%distributed {line} --parallel 3\n{cell}").raise_error()
    assert "at once    3 trials" in capsys.readouterr().out, "as it is asked for"
    assert store.list_searches() == store.list_runs() == []

    shell.run_cell("%%distributed --set units=32 --set act=relu --dry-run\n" + cell).raise_error()
    printed = capsys.readouterr().out
    values = ("units = 32", "act = relu", "rate = 0.1, its default")
    assert all(f"\nparameter  {value}\n" in printed for value in values)


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("--trials 3 --objective loss:min --set units=0", "--set units=0 is out of range: it is from 1 to 100."),
        ("--trials 3 --objective loss:min --set unit=1", "the cell has no parameter unit. Did you mean units?"),
        ("--trials 3 --objective loss:min --set units=1", "which leaves --trials nothing to search for."),
        ("--set units=1.5", "--set units must be a whole number, not '1.5'."),
        ("--set lr=1", "--set lr: the cell has no parameter lr. It has units."),
        ("", "line 2: units has no value: write --set units=VALUE"),
    ],
)
def test_what_is_refused_is_refused_by_a_dry_run_too(shell, capsys, line, refused):
    use(shell, FakeCluster())
    message = refusal(shell.run_cell_magic, "distributed", line, CELL)
    assert refused in message
    shell.run_cell_magic("distributed", f"{line} --dry-run", CELL)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("refused") and last.endswith(message)
    assert store.list_searches() == store.list_runs() == []


def test_a_parameter_that_a_cell_has_not_is_named_with_what_declares_one(shell):
    use(shell, FakeCluster())
    message = refusal(shell.run_cell_magic, "distributed", "--set lr=1", "model.fit(x)")
    assert message.endswith("the cell has no parameter lr. Write lr = ddl.suggest_float('lr', LOW, HIGH) in it.")


def test_no_more_trials_run_at_once_than_fit_into_this_machines_memory():
    def room(master, most):
        cluster = FakeCluster(slots=9)
        cluster.status = lambda: Ready(9, 9, {"master": master})
        return Launcher(cluster, None, None, most).room(2)

    assert (room("local[9]", 3), room("local[9]", None), room("yarn", 3)) == (3, 4, 4)


def test_the_files_of_trials_are_kept_apart(shell, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    events = list(training())
    events.insert(-1, ev.make("file", 0, name="out/best.txt", size=4, sha256=""))
    use(shell, FakeCluster(events, artifacts={"files/out/best.txt": b"best"}))
    shell.run_cell(f"%%distributed {LINE} --wait\n{CELL}").raise_error()
    for number in range(3):
        shell.user_ns["tuned"].run(number).wait(10)
        assert (tmp_path / f"tuned_{number}" / "out" / "best.txt").read_text() == "best"
    assert not (tmp_path / "out").exists()


def test_the_first_refusal_is_the_cells_error_and_leaves_nothing(shell):
    cluster = FakeCluster()
    cluster.refuse = Refused("slots", "too many")
    use(shell, cluster)
    with pytest.raises(UsageError, match="too many"):
        shell.run_cell_magic("distributed", LINE, CELL)
    assert store.list_searches() == [] and store.list_runs() == [] and "tuned" not in shell.user_ns
    with pytest.raises(UsageError, match="--trials needs something to search for"):
        shell.run_cell_magic("distributed", LINE, "x = 1")
    shell.user_ns["tuned"] = 1
    with pytest.raises(UsageError, match="--name tuned would replace your variable"):
        shell.run_cell_magic("distributed", LINE, CELL)


def test_the_end_of_the_kernel_leaves_a_search_that_can_be_attached(shell, capsys):
    cluster = FakeCluster([*list(training())[:5], epoch(0, accuracy=0.5)], slots=2)
    session = use(shell, cluster)
    search = session.search(_spec(LINE), {})
    until(lambda: sum(row.epochs == 1 for row in search.view.rows) == 2, 10)
    session.close()
    assert search.settled(10) and {row.state for row in search.view.rows} <= {"training", "waiting"}
    for folder in (search._folder, *(store.RunFolder(record.folder) for record in store.list_runs())):
        kill_owner(folder)
    assert store.find_search("tuned").state == ev.LOST
    assert command_line.main(["stop", "tuned"]) == 1
    assert "tuned is LOST: its kernel is gone" in capsys.readouterr().out
    told = [(trial.state.name, trial.intermediate_values) for trial in search.study.trials]
    assert told == [("RUNNING", {1: 0.5})] * 2, "nothing has been told as the kernel ended"

    session.searches.clear()
    use(shell, FakeCluster([*list(training())[:-1], state(ev.FINISHED)], slots=2))
    shell.run_cell("%ddl attach tuned").raise_error()
    continued = shell.user_ns["tuned"].wait(20)
    assert [row.value for row in continued.view.rows] == [0.6] * 3
    assert [row.epochs for row in continued.view.rows] == [2] * 3
    assert {record.spec["trial"] for record in store.list_runs()} == {0, 1, 2} and len(store.list_runs()) == 5
    with pytest.raises(UsageError, match="tuned has ended: FINISHED"):
        shell.run_line_magic("ddl", "attach tuned")


def test_a_search_that_was_imported_is_not_attached(shell):
    """Its cell is a stranger's, and would run here."""
    cluster = FakeCluster([*list(training())[:5], epoch(0, accuracy=0.5)], slots=2)
    session = use(shell, cluster)
    search = session.search(_spec(LINE), {})
    session.close()
    assert search.settled(10)
    kill_owner(search._folder)
    search._folder.update({"imported": True, "state": ev.FAILED})
    session.searches.clear()
    again = use(shell, FakeCluster(slots=2))
    with pytest.raises(UsageError, match=r"^tuned was imported and cannot be attached, as its cell may be"):
        shell.run_line_magic("ddl", "attach tuned")
    assert not again.searches and len(store.list_runs()) == 2, "no trial was started"


def test_cleaning_keeps_the_trials_of_a_search_that_lives(shell, monkeypatch):
    monkeypatch.setattr(cleaning, "RECENT_SECONDS", 0.0)
    session = use(shell, FakeCluster(slots=1))
    search = session.search(_spec(LINE), {})
    search.wait(20)
    until(lambda: all(run.settled(1) for run in session.runs.values()), 10)
    search._folder.update({"state": ev.RUNNING})
    assert cleaning.clean(cleaning.Policy(keep=0.0)) == []
    search._folder.update({"state": ev.FINISHED})
    assert len(cleaning.clean(cleaning.Policy(keep=0.0))) == 3
    assert store.list_searches() == []


def _spec(line):
    return dataclasses.replace(parse(line), cell=CELL)
