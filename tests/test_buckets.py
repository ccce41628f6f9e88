"""All-reduces beside the computation: in their order, with the guarantees of a collective."""

import threading

import numpy as np
import pytest
from rings import ThreadRing

from ddl_magics.runtime import buckets, parts
from ddl_magics.runtime.collective import Diverged, Part, PeerLost

KILO = 1 << 10


@pytest.mark.parametrize(
    ("sizes", "planned"),
    [
        ([], []),
        ([1], [[0]]),
        ([100 * KILO] * 7, [[0, 1, 2, 3, 4, 5], [6]]),
        ([2000 * KILO, 1, 2000 * KILO], [[0], [1, 2]]),
        ([10_000 * KILO] * 16, [[i, i + 1] for i in range(0, 16, 2)]),
    ],
)
def test_gradients_are_put_into_buckets(sizes, planned):
    assert buckets.plan(sizes) == planned


@pytest.fixture(params=["tcp", "hosts of two", "shared memory"])
def ring(request):
    with ThreadRing(3, request.param) as ring:
        yield ring


def submit(beside, rank, data, step=0, order=None):
    """All rows of `data`, in the order given."""
    for number in order or range(len(data)):
        beside.submit(
            number, lambda number=number: rank.allreduce(data[number], Part(parts.STEP, step=step, weight=rank.rank))
        )


def test_buckets_are_summed_whatever_the_order_of_their_submission(ring):
    random = np.random.default_rng(0)
    orders = {0: [0, 1, 2, 3], 1: [3, 2, 1, 0], 2: [2, 0, 3, 1]}

    def train(rank):
        beside = buckets.Buckets(rank)
        waited = []
        for step in range(20):
            data = given[step][rank.rank]
            submit(beside, rank, data, step, orders[rank.rank])
            told = beside.wait()
            assert [[part.weight for part in each] for each in told] == [[0, 1, 2]] * 4
            waited.append(beside.waited)
            assert sum(beside.spent) == pytest.approx(beside.waited)
        rank.allreduce(np.zeros(1), Part(parts.EPOCH))  # the collective is free again
        beside.close()
        return waited

    given = random.integers(0, 100, (20, 3, 4, 1000)).astype(np.float32)
    expected = given.sum(axis=1)
    outcomes = ring.each(train)
    assert all(isinstance(outcome, list) for outcome in outcomes), outcomes
    for rank in range(3):
        np.testing.assert_array_equal(given[:, rank], expected)


def test_a_rank_that_is_in_another_step_is_named_everywhere(ring):
    def train(rank):
        beside = buckets.Buckets(rank)
        submit(beside, rank, np.zeros((3, 10)), step=rank.rank == 1)
        try:
            return beside.wait()
        finally:
            rank.close("it diverged")
            beside.close()

    outcomes = ring.each(train)
    assert all(isinstance(outcome, Diverged) for outcome in outcomes), outcomes
    assert all(1 in (outcome.rank, outcome.other) for outcome in outcomes)


def test_a_rank_that_leaves_is_named_and_no_thread_stays(ring):
    before = threading.active_count()

    def train(rank):
        if rank.rank == 2:
            rank.close("it has had enough")
            return None
        beside = buckets.Buckets(rank)
        submit(beside, rank, np.zeros((3, 100_000)))
        with pytest.raises(PeerLost) as first:
            beside.wait()
        submit(beside, rank, np.zeros((3, 10)), step=1)
        with pytest.raises(PeerLost) as again:
            beside.wait()
        assert str(first.value) == str(again.value)
        rank.close("a peer is lost")
        beside.close()
        return first.value

    outcomes = ring.each(train)
    assert [(lost.rank, lost.reason) for lost in outcomes[:2]] == [(2, "it has had enough")] * 2
    assert threading.active_count() == before


def test_closing_the_collective_ends_a_wait(ring):
    def train(rank):
        if rank.rank:
            return None
        beside = buckets.Buckets(rank)
        submit(beside, rank, np.zeros((2, 10)))
        threading.Timer(0.2, rank.close, ["it was told to"]).start()
        try:
            return beside.wait()
        finally:
            beside.close()

    lost = ring.each(train)[0]
    assert isinstance(lost, PeerLost)
    assert (lost.rank, lost.reason) == (0, "it was told to")


def test_a_bucket_that_is_missing_is_told(ring):
    beside = buckets.Buckets(ring.ranks[0])
    beside.submit(1, list)
    with pytest.raises(RuntimeError, match="bucket 1 was submitted, and number 0 was not"):
        beside.wait()
    beside.submit(0, lambda: ["next step"])
    assert beside.wait() == [["next step"]]
    beside.close()


def test_what_fails_ends_the_step_and_later_buckets_are_not_begun():
    with ThreadRing(1) as ring:
        beside, begun = buckets.Buckets(ring.ranks[0]), []
        beside.submit(0, lambda: 1 / 0)
        beside.submit(1, lambda: begun.append(1))
        with pytest.raises(ZeroDivisionError):
            beside.wait()
        assert not begun
        beside.close()
