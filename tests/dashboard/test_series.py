"""The lines of the charts: bounded, and no step is lost."""

import math

import pytest

from ddl_magics.dashboard.series import Series


def test_few_points_are_kept_as_they_are():
    series = Series(limit=4)
    for x, y in ((1, 10.0), (2, None), (3, 30.0)):
        series.add(x, y)
    assert series.x == [1, 2, 3]
    assert series.y[0] == 10 and math.isnan(series.y[1]) and series.y[2] == 30
    assert series.counts == [1, 1, 1]
    assert series.generation == 0


def test_a_full_series_merges_pairs_and_weighs_them_by_their_counts():
    series = Series(limit=4)
    for x, y, count in ((1, 10.0, 1), (4, 40.0, 3), (5, 7.0, 1), (6, 9.0, 1), (7, 1.0, 1)):
        series.add(x, y, count)
    assert series.x == [4, 6, 7]
    assert series.y == [pytest.approx((10 + 3 * 40) / 4), 8.0, 1.0]
    assert series.counts == [4, 2, 1]
    assert series.generation == 1


def test_an_unknown_value_counts_and_has_no_weight():
    series = Series(limit=2)
    for x, y in ((1, 4.0), (2, None), (3, None)):
        series.add(x, y)
    assert series.y[0] == 4.0
    assert series.counts == [2, 1]


def test_a_map_keeps_the_newest_value():
    series = Series(limit=2, keep="last")
    for x in range(5):
        series.add(x, 100 + x)
    assert [y - x for x, y in zip(series.x, series.y, strict=True)] == [100] * len(series)


@pytest.mark.parametrize("count", [1, 7, 64])
@pytest.mark.parametrize("events", [299, 300, 301, 100_000])
def test_counts_are_conserved_whatever_the_length(events, count):
    series = Series()
    total = 0.0
    for i in range(events):
        series.add((i + 1) * count, float(i), count)
        total += i * count
    assert sum(series.counts) == events * count
    assert len(series) <= series.limit
    assert len(series) >= min(events, series.limit // 2)
    mean = sum(y * n for y, n in zip(series.y, series.counts, strict=True)) / sum(series.counts)
    assert mean == pytest.approx(total / (events * count))
    assert series.x == sorted(series.x) and series.x[-1] == events * count


def test_an_odd_limit_is_refused():
    with pytest.raises(ValueError, match="even"):
        Series(limit=3)
