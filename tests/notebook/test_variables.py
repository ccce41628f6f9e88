"""The variables of a cell, set in an IPython shell between two cells and where one waits for the run."""

import pickle

import pytest
from support import shells
from support.fake_cluster import FakeCluster, training
from support.until import until

from ddl_magics.runs import follower
from ddl_magics.runtime import events as ev
from ddl_magics.runtime.cell import names
from ddl_magics.runtime.variables import placing
from ddl_magics.runtime.variables.left import FILE, CellVariables


class InKernel(FakeCluster):
    """Executes the cell when it is launched; its events come as `visible` allows."""

    in_kernel = True

    def __init__(self):
        *events, end = training()
        self.end_state = end["state"]
        super().__init__([*events, ev.make("artifact", 0, name=FILE, size=1, sha256=""), end])
        self.visible = 3

    def launch(self, spec, namespace):
        captured = names.captured(spec.cell, namespace)
        placing.awaiting(spec.run, spec.cell, captured, namespace)
        there = pickle.loads(pickle.dumps(captured))
        left = CellVariables(spec.cell, set(there), there)
        exec(spec.cell, there)
        self.artifacts[FILE] = left.packed(there, (), finished=True)
        return super().launch(spec, namespace)

    def _call(self, function, request, namespace=None):
        if function == "place":
            folder = request["folder"]
            return {"ok": True, **vars(placing.place(request["run"], namespace, lambda name: f"{folder}/{name}"))}
        return super()._call(function, request, namespace)

    def finish(self):
        self.visible = len(self.script)


@pytest.fixture
def cluster(data_dir, tmp_path, monkeypatch):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setattr(follower, "IDLE_POLL_SECONDS", 0.02)
    return InKernel()


@pytest.fixture
def shell(cluster):
    with shells.loaded(cluster) as shell:
        shell.run_cell("results, note = [], 'mine'")
        yield shell


CELL = "results.append(1)\nhistory = {'loss': [0.5]}\nnote = 'the cell'\nlines = (line for line in '')"


def started(shell, options=""):
    shell.run_cell(f"%%distributed --name job --no-wait {options}\n{CELL}")
    return shell.user_ns["job"]


def test_they_come_before_the_next_cell_and_a_line_says_which(shell, cluster, capsys):
    run, results = started(shell), shell.user_ns["results"]
    shell.run_cell("note = 'later'")
    assert "history" not in shell.user_ns and results == []
    cluster.finish()
    until(lambda: run.settled(0.0))
    assert results == []  # no cell has been executed since
    text, error = shells.run(shell, "print(history, results, note)", capsys)
    assert error is None and "{'loss': [0.5]} [1] later" in text
    assert "job  in the notebook now: results, history\n" in text
    assert "job  not replaced, as a later cell has changed it: note; job.variables has" in text
    assert "job  not in the notebook: lines (a generator)\n" in text
    assert shell.user_ns["results"] is results
    assert shells.run(shell, "1", capsys)[0].count("job") == 0  # said once
    assert (run.variables["note"], run.variables["results"], sorted(run.variables)) == (
        "the cell", [1], ["history", "note", "results"]
    )  # fmt: skip
    text, error = shells.run(shell, "lines", capsys)
    assert isinstance(error, NameError) and "lines of job is not in the notebook: a generator." in text


def test_they_are_there_when_a_cell_has_waited(shell, cluster, capsys):
    cluster.finish()
    text, _ = shells.run(shell, f"%%distributed --name job --wait\n{CELL}", capsys)
    assert "in the notebook now" not in text and "not in the notebook: lines (a generator)" in text
    assert (shell.user_ns["history"], shell.user_ns["results"]) == ({"loss": [0.5]}, [1])
    cluster.visible = 3
    started(shell)
    cluster.finish()
    text, error = shells.run(shell, "job.wait(); print(results)", capsys)
    assert error is None and "[1, 1]" in text


def test_an_option_and_a_setting_switch_it_off(shell, cluster):
    cluster.finish()
    for setting, option in (("None", "--no-variables"), ("False", "")):
        shell.run_cell(f"%config Distributed.variables = {setting}")
        started(shell, option).wait()
        shell.run_cell("1")
        assert "history" not in shell.user_ns and shell.user_ns["results"] == []
