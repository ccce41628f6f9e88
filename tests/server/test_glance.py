"""The line of a row in the list: few points, from all of the run."""

import json

import pytest
from fake_cluster import steps

from ddl_magics.server.glance import SPARK_POINTS, glance


@pytest.mark.parametrize("reports", [10, 500, 2000, 6000, 20_000])
def test_a_sparkline_is_spread_over_the_whole_run(tmp_path, reports):
    """A loss that falls evenly is a straight line, whatever part of the file was read."""
    path = tmp_path / "events.jsonl"
    with path.open("w") as file:
        for seq in range(1, reports + 1):
            loss = 1 - seq / reports
            file.write(json.dumps({**steps(0, 0, step=seq, loss=loss), "seq": seq, "time": float(seq)}) + "\n")
    seen = glance(path)
    assert len(seen.spark) == min(reports, SPARK_POINTS)
    assert seen.loss == seen.spark[-1] == 0
    even = [seen.spark[0] * (1 - k / (len(seen.spark) - 1)) for k in range(len(seen.spark))]
    assert seen.spark == pytest.approx(even, abs=1 / SPARK_POINTS)
