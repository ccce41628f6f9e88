"""Which ranks are slow, by their buckets of steps."""

import pytest
from support.fake_cluster import steps

from ddl_magics.runtime import events
from ddl_magics.runtime.driver.slow_ranks import SLOW_SECONDS, SLOWER, SlowRanks


def bucket(rank, compute, seconds=4.0, rows=640, count=10, fit=0):
    """A second of each step's time is that of others."""
    return events.parse(
        dict(steps(rank, 0, count=count, rows=rows, seconds=seconds), compute=compute, fit=fit, run="r", attempt=1)
    )


def trained(seconds, *computes, ranks=None, **fields):
    """What is said of each rank in a training of so many seconds; computes: of each rank's buckets of 4 s."""
    ranks, said = ranks or SlowRanks(), {}
    for _ in range(int(seconds / 4)):
        for rank, compute in enumerate(computes):
            times = ranks.step(bucket(rank, compute, **fields))
            if times is not None:
                said[rank] = round(times, 6)
    return said


@pytest.mark.parametrize(
    "computes, slow",
    [
        ((2.0, 2.0, 3.2), {2: 1.6}),
        ((2.0, 2.0, 2.9), {}),
        ((2.0, 3.2), {1: 1.6}),
        ((1.0, 2.0, 3.2), {2: 1.6}),
        ((2.0, 2.0, 3.2, 3.2), {}),
        ((0.1, 0.1, 0.3), {}),
        ((2.0,), {}),
        ((0.0, 0.0, 3.0), {}),
    ],
    ids=["slow", "hardly", "of two", "median", "half of them", "costs nothing", "alone", "no time"],
)
def test_a_rank_is_slow_against_the_median(computes, slow):
    assert trained(SLOW_SECONDS + 8, *computes) == slow


def test_it_takes_a_minute():
    assert trained(SLOW_SECONDS - 4, 2.0, 2.0, 4.0) == {}
    assert trained(SLOW_SECONDS + 4, 2.0, 2.0, 4.0) == {2: 2.0}


def test_a_minute_begins_anew_after_steps_as_fast_as_those_of_others():
    ranks = SlowRanks()
    for _ in range(3):
        assert trained(40, 2.0, 2.0, 4.0, ranks=ranks) == trained(28, 2.0, 2.0, 2.0, ranks=ranks) == {}


def test_one_long_pause_is_not_a_minute():
    ranks = SlowRanks()
    trained(40, 2.0, 2.0, 2.0, ranks=ranks)
    assert ranks.step(bucket(2, 300.0, seconds=300.0)) is None
    assert trained(40, 2.0, 2.0, 2.0, ranks=ranks) == {}


def test_a_rank_with_more_rows_may_take_longer():
    ranks = SlowRanks()
    for _ in range(20):
        for rank, (compute, rows) in enumerate([(1.5, 480), (1.5, 480), (3.0, 960)]):
            assert ranks.step(bucket(rank, compute, rows=rows)) is None
    assert trained(80, 1.5, 1.5, 3.0, rows=0) == {2: 2.0}, "without rows, steps are compared"


def test_only_ranks_in_the_same_fit_that_have_not_ended_are_compared():
    ranks = SlowRanks()
    for _ in range(20):
        said = [ranks.step(bucket(0, 1.0)), ranks.step(bucket(1, 3.0, fit=1)), ranks.step(bucket(2, 1.0))]
        assert said == [None] * 3
    ranks.forget(0)
    ranks.forget(2)
    assert [ranks.step(bucket(1, 9.0)) for _ in range(20)] == [None] * 20


def test_many_short_fits_are_a_minute_together():
    ranks, said = SlowRanks(), {}
    for fit in range(10):
        said |= trained(8, 2.0, 2.0, 4.0, ranks=ranks, fit=fit)
    assert said == {2: 2.0} and SLOWER < 2.0
