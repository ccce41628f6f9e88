"""All-reduces during the backward pass: in order, with the guarantees of a collective."""

import threading

import numpy as np
import pytest
from support.rings import WAIT_SECONDS, ThreadRing

from ddl_magics.runtime.collectives import buckets
from ddl_magics.runtime.collectives.announcement import EPOCH, STEP
from ddl_magics.runtime.collectives.collective import Announcement, Diverged, PeerLost

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


def submit(under_way, rank, data, step=0):
    """Submits an all-reduce of each row of `data`."""
    for row in data:
        under_way.submit(lambda row=row: rank.allreduce(row, Announcement(STEP, step=step, weight=rank.rank)))


def test_buckets_are_summed_while_the_rank_computes(ring):
    given = np.random.default_rng(0).integers(0, 100, (20, 3, 4, 1000)).astype(np.float32)
    expected = given.sum(axis=1)

    def train(rank):
        under_way = buckets.Buckets(rank)
        for step in range(20):
            submit(under_way, rank, given[step][rank.rank], step)
            assert [[announcement.weight for announcement in each] for each in under_way.wait()] == [[0, 1, 2]] * 4
            assert sum(under_way.timings) == pytest.approx(under_way.waited)
        return rank.allreduce(np.zeros(1), Announcement(EPOCH))  # the collective is free again

    outcomes = ring.each(train)
    assert all(isinstance(outcome, list) for outcome in outcomes), outcomes
    for rank in range(3):
        np.testing.assert_array_equal(given[:, rank], expected)


def test_a_bucket_is_summed_before_the_next_is_submitted(ring):
    """Otherwise nothing would overlap."""

    def train(rank):
        under_way, done = buckets.Buckets(rank), threading.Event()

        def work():
            announcements = rank.allreduce(np.zeros(10), Announcement(STEP))
            done.set()
            return announcements

        under_way.submit(work)
        early = done.wait(WAIT_SECONDS)
        submit(under_way, rank, np.zeros((1, 10)))
        return early, len(under_way.wait())

    assert ring.each(train) == [(True, 2)] * 3


def test_a_rank_in_another_step_is_named_on_all_ranks(ring):
    def train(rank):
        under_way = buckets.Buckets(rank)
        submit(under_way, rank, np.zeros((3, 10)), step=rank.rank == 1)
        try:
            return under_way.wait()
        finally:
            rank.close("it diverged")

    outcomes = ring.each(train)
    assert all(isinstance(outcome, Diverged) for outcome in outcomes), outcomes
    assert all(1 in (outcome.rank, outcome.other_rank) for outcome in outcomes)


def test_a_rank_that_leaves_is_named_and_no_thread_stays(ring):
    def train(rank):
        if rank.rank == 2:
            rank.close("it has had enough")
            return None
        under_way = buckets.Buckets(rank)
        submit(under_way, rank, np.zeros((3, 100_000)))
        with pytest.raises(PeerLost) as first:
            under_way.wait()
        submit(under_way, rank, np.zeros((3, 10)), step=1)
        with pytest.raises(PeerLost) as again:
            under_way.wait()
        assert str(first.value) == str(again.value)
        rank.close("a peer is lost")
        return first.value

    outcomes = ring.each(train)
    assert [(lost.rank, lost.reason) for lost in outcomes[:2]] == [(2, "it has had enough")] * 2
    assert not [thread for thread in threading.enumerate() if thread.name == "all-reduce"]


def test_closing_the_collective_ends_a_wait(ring):
    def train(rank):
        if rank.rank:
            return None
        under_way = buckets.Buckets(rank)
        submit(under_way, rank, np.zeros((2, 10)))
        threading.Timer(0.2, rank.close, ["it was stopped"]).start()
        return under_way.wait()

    lost = ring.each(train)[0]
    assert isinstance(lost, PeerLost)
    assert (lost.rank, lost.reason) == (0, "it was stopped")


def test_a_failure_ends_the_step_and_no_later_bucket_starts():
    with ThreadRing(1) as ring:
        under_way, begun = buckets.Buckets(ring.ranks[0]), []
        under_way.submit(lambda: 1 / 0)
        under_way.submit(lambda: begun.append(1))
        with pytest.raises(ZeroDivisionError):
            under_way.wait()
        assert not begun
        under_way.submit(lambda: ["next step"])
        assert under_way.wait() == [["next step"]]


def test_a_step_without_buckets_has_no_announcements():
    with ThreadRing(1) as ring:
        assert buckets.Buckets(ring.ranks[0]).wait() == []
