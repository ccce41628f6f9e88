"""The job's running values and the ranks' own, from the ranks' steps."""

import math

import pytest

from ddl_magics.dashboard.charts import charts
from ddl_magics.dashboard.history import MAX_RANK_LINES, SPREAD, History
from ddl_magics.runtime import events as ev


def steps(rank, loss, epoch=0, step=0, count=5, rows=20, **more):
    fields = {"seconds": 0.1, "compute": 0.1, "wait": 0.0, "metrics": {"loss": loss}}
    return {**ev.make("steps", rank, fit=0, epoch=epoch, step=step, count=count, rows=rows, **fields), **more}


def fit(**more):
    return ev.make("fit", 0, fit=0, model="m", epochs=3, steps=10, **more)


def fed(ranks, *events):
    history = History(ranks)
    history.feed(events)
    return history


def last(history, key):
    return history.series[key].y[-1]


def test_the_job_is_the_mean_of_its_ranks_weighted_by_rows():
    history = fed(2, fit(), steps(1, 4.0, rows=10), steps(0, 1.0, rows=30))
    assert last(history, "metric:loss") == history.latest["loss"] == pytest.approx((30 * 1.0 + 10 * 4.0) / 40)


def test_a_damaged_number_has_no_mean():
    history = fed(2, fit(), steps(1, 10**300, rows=10), steps(0, 10**300, rows=2**53))
    assert math.isnan(last(history, "metric:loss"))


def test_rows_count_from_the_begin_of_the_epoch():
    events = [steps(1, 9.0, rows=1000), steps(0, 9.0), steps(1, 4.0, epoch=1, rows=10), steps(0, 1.0, epoch=1, rows=10)]
    history = fed(2, fit(), *events, steps(1, 4.0, epoch=1, step=5, rows=20), steps(0, 1.0, epoch=1, step=5, rows=20))
    assert last(history, "metric:loss") == pytest.approx(2.5)


def test_a_rank_that_begins_the_epoch_anew_counts_its_rows_anew():
    history = fed(2, fit(), steps(1, 4.0, rows=900), steps(1, 4.0, rows=10), steps(0, 1.0, rows=10))
    assert last(history, "metric:loss") == pytest.approx(2.5)


def test_a_rank_in_the_next_epoch_has_no_part_in_the_one_before():
    history = fed(2, fit(), steps(0, 9.0), steps(1, 0.5, epoch=1), steps(0, 1.0, step=5))
    assert last(history, "metric:loss") == 1.0


def test_the_loss_of_a_job_is_unknown_where_that_of_a_rank_is():
    history = fed(2, fit(), steps(1, None), steps(0, 1.0))
    assert history.series["metric:loss"].y[-1] != history.series["metric:loss"].y[-1]
    assert last(history, "low:loss") == last(history, "high:loss") == 1.0


def test_each_rank_has_a_line_and_all_a_band():
    history = fed(3, fit(), steps(1, 4.0), steps(2, 7.0), steps(0, 1.0))
    assert [last(history, f"{rank}:loss") for rank in range(3)] == [1.0, 4.0, 7.0]
    assert [last(history, f"{which}:loss") for which in SPREAD] == [1.0, 4.0, 7.0]


def test_of_many_ranks_there_is_the_band_alone():
    ranks = MAX_RANK_LINES + 1
    history = fed(ranks, fit(), *(steps(rank, float(rank)) for rank in reversed(range(ranks))))
    assert "0:loss" not in history.series
    assert [last(history, f"{which}:loss") for which in SPREAD] == [0.0, ranks // 2, ranks - 1]


def test_a_single_rank_has_no_band():
    assert "low:loss" not in fed(1, fit(), steps(0, 1.0)).series


def test_models_of_an_ensemble_are_not_averaged():
    history = fed(2, fit(models=2), steps(1, 4.0), steps(0, 1.0))
    assert last(history, "metric:loss") == 1.0 and last(history, "high:loss") == 4.0


def test_the_figure_has_the_band_behind_the_lines():
    history = fed(2, fit(), steps(1, 4.0), steps(0, 1.0))
    loss = next(chart for chart in charts(history) if chart.title == "loss")
    assert [(line.name, line.style) for line in loss.lines[:3]] == [
        ("lowest rank", "ranks"), ("highest rank", "ranks"), ("loss", "train"),
    ]  # fmt: skip
