"""The sparkline of a run: few points, spread over the whole run."""

import json

import pytest
from support.fake_cluster import epoch, steps

from ddl_magics.runtime.events import make
from ddl_magics.server.summary import SPARKLINE_POINTS, summarize


@pytest.mark.parametrize("reports", [10, 500, 2000, 6000, 20_000])
def test_a_sparkline_is_spread_over_the_whole_run(tmp_path, reports):
    """A loss that falls linearly gives a straight line, whichever parts of the file were read."""
    path = tmp_path / "events.jsonl"
    with path.open("w") as file:
        for seq in range(1, reports + 1):
            loss = 1 - seq / reports
            file.write(json.dumps({**steps(0, 0, step=seq, loss=loss), "seq": seq, "time": float(seq)}) + "\n")
    summary = summarize(path)
    assert len(summary.sparkline) == min(reports, SPARKLINE_POINTS)
    assert summary.loss == summary.sparkline[-1] == 0
    even = [summary.sparkline[0] * (1 - k / (len(summary.sparkline) - 1)) for k in range(len(summary.sparkline))]
    assert summary.sparkline == pytest.approx(even, abs=1 / SPARKLINE_POINTS)


def test_the_loss_is_that_of_the_chief_of_the_time(tmp_path):
    path = tmp_path / "events.jsonl"
    group = make("group", -1, members=[1, 2])
    reports = [steps(1, 0, loss=0.9), steps(0, 0, loss=0.8), group, steps(2, 0, loss=0.7), steps(1, 0, loss=0.6)]
    path.write_text("".join(json.dumps({**each, "seq": 1}) + "\n" for each in reports))
    assert summarize(path).sparkline == (0.8, 0.6)


def test_a_loss_that_no_float_can_hold_is_none(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_text("".join(json.dumps({**epoch(0, loss=loss), "seq": 1}) + "\n" for loss in (0.5, 10**400)))
    assert summarize(path).loss == 0.5
