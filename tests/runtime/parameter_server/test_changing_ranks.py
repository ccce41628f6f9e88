"""Ranks that come and go: whom an epoch's end waits for, and what it tells them. The parts without a connection."""

import numpy as np
import pytest

from ddl_magics.runtime.parameter_server import update_rules
from ddl_magics.runtime.parameter_server.centre import Arrival, Fit
from ddl_magics.runtime.parameter_server.members import Members


@pytest.fixture
def members():
    members = Members(size=2, attempt=1, join_seconds=0.0, max_size=4)
    members.fit_begins()
    for rank in range(2):
        members.connected(rank, 1, object())
    return members


def test_a_rank_that_comes_later_is_awaited_once_it_has_begun_a_fit(members):
    assert members.refusal(3, 1) is None and members.refusal(4, 1) == "there is no rank 4"
    channel = object()
    members.connected(3, 1, channel)
    assert members.awaited() == {0, 1}
    members.begins(3)
    assert members.awaited() == {0, 1, 3}
    members.disconnected(3, channel, has_left=False)
    members.connected(3, 1, object())  # its connection was broken
    assert members.awaited() == {0, 1, 3}
    members.connected(3, 2, object())  # another one has its number
    assert members.awaited() == {0, 1}


def test_rank_0_is_awaited_while_it_is_started_again(members):
    members.connected(0, 2, object())
    assert members.awaited() == {0, 1}


@pytest.fixture
def fit():
    return Fit(update_rules.get("adag", 2, 0.1), np.zeros(2, np.float32), [0, 1])


def arrival(mean=0.0, stop=False, trained=True, steps=0):
    return Arrival(np.array([mean]), np.array([mean]), stop, trained, steps)


def test_who_has_no_share_does_not_count_in_the_means(fit):
    fit.arrive(0, 0, arrival(1.0, steps=24))
    fit.arrive(0, 1, arrival(3.0, steps=24))
    fit.arrive(0, 3, arrival(9.0, trained=False, steps=5))
    end = fit.epoch_end(0, {0, 1, 3})
    assert (end.sums.tolist(), end.means.tolist(), end.ranks, end.steps) == ([13.0], [2.0], [0, 1, 3], 24)
    assert (fit.epoch, fit.ranks, fit.steps, fit.is_over) == (1, [0, 1, 3], 24, False)


def test_a_rank_that_is_in_a_later_epoch_is_not_waited_for(fit):
    """It has begun when another server had ended the epoch, and this one not."""
    fit.arrive(1, 3, arrival())
    fit.arrive(0, 0, arrival())
    assert fit.epoch_end(0, {0, 1, 3}) is None
    fit.arrive(0, 1, arrival())
    assert fit.epoch_end(0, {0, 1, 3}) is not None


def test_a_fit_that_was_stopped_is_over(fit):
    for rank in range(2):
        fit.arrive(0, rank, arrival(stop=rank == 1))
    assert fit.epoch_end(0, {0, 1}).stop and fit.is_over
