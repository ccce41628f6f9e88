"""`%ddl scale` in a kernel, on a cluster that replays events."""

import pytest
from IPython.core.error import UsageError
from support.fake_cluster import FakeCluster, training
from support.shells import session

from ddl_magics import store
from ddl_magics.clusters.base import Refused
from ddl_magics.errors import RunInterrupted
from ddl_magics.scaling import ScalingReport, measuring


class TwoSlots(FakeCluster):
    def check(self, spec, namespace):
        return Refused("slots", "4 workers do not fit into 2 slots") if spec.workers > 2 else None


@pytest.fixture
def measured(shell):
    """The shell, after a run of the cell."""
    session(shell).cluster = TwoSlots(training(3))
    shell.run_cell("%%distributed --name digits --seed 3\nmodel.fit(x, y, epochs=9)").raise_error()
    return shell


def runs(shell):
    launched = session(shell).cluster.launched.values()
    return [(spec.workers, spec.seed, spec.epochs) for spec in launched if spec.parent]


def test_a_run_is_measured_with_several_numbers_of_workers(measured, capsys):
    measured.run_cell("report = %ddl scale digits --workers 1,2,4 --seeds 2 --epochs 3").raise_error()
    report = measured.user_ns["report"]
    assert isinstance(report, ScalingReport) and measured.user_ns["digits_scaling"] is report
    assert runs(measured) == [(2, 3, 3), (1, 3, 3), (2, 4, 3), (1, 4, 3)]
    printed = capsys.readouterr().out
    assert "allreduce with 4 workers left out: 4 workers do not fit into 2 slots" in printed
    assert "1/4  allreduce, 2 workers, seed 3: " in printed and "speed-up" in printed
    assert [(row.workers, row.runs) for row in report.rows] == [(1, 2), (2, 2)]
    assert "digits_allreduce_2" not in measured.user_ns
    record = store.find_run("digits_allreduce_2_seed1")
    assert record.spec["parent"] == measured.user_ns["digits"].id and "model.fit" in record.spec["cell"]

    measured.run_cell("%ddl scale digits --workers 1,2 --epochs 3").raise_error()
    assert "2 runs were measured before; --again measures anew" in capsys.readouterr().out and len(runs(measured)) == 4
    measured.run_cell("%ddl scale digits --workers 1 --epochs 3 --again").raise_error()
    assert len(runs(measured)) == 5


def test_an_interrupt_keeps_what_has_been_measured(measured, monkeypatch, capsys):
    class Interrupted(measuring.ScalingRuns):
        def _measure(self, spec, position):
            if spec.workers == 1:
                settled = type(session(measured).newest).settled

                def interrupt(run, seconds):
                    monkeypatch.setattr(type(run), "settled", settled)
                    raise KeyboardInterrupt

                monkeypatch.setattr(type(session(measured).newest), "settled", interrupt)
            return super()._measure(spec, position)

    monkeypatch.setattr("ddl_magics.commands.scale.ScalingRuns", Interrupted)
    with pytest.raises(RunInterrupted, match=r"digits_allreduce_1 stops; 1 of 2 runs measured. The same line again"):
        measured.run_line_magic("ddl", "scale digits --workers 1,2")
    assert [row.workers for row in measured.user_ns["digits_scaling"].rows] == [2]
    assert "samples/s" in capsys.readouterr().out


def test_what_cannot_be_measured_is_one_line(measured, capsys):
    with pytest.raises(UsageError, match="4 workers do not fit"):
        measured.run_line_magic("ddl", "scale digits --workers 4")
    with pytest.raises(UsageError, match=r"there is no run digit\. Did you mean digits\?"):
        measured.run_line_magic("ddl", "scale digit --workers 2")
    measured.user_ns["digits_scaling"] = 1
    with pytest.raises(UsageError, match="your variable digits_scaling would be replaced"):
        measured.run_line_magic("ddl", "scale digits --workers 2")
