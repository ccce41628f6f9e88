"""What ranks make together is complete for all that are left, or for none. Ranks and their driver are threads."""

import queue
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from support import rings

from ddl_magics.runtime.collectives.announcement import CLOSED, STEP, Announcement, PeerLost
from ddl_magics.runtime.driver.group import Group
from ddl_magics.runtime.rank.regrouping import Regrouped, Regrouping
from ddl_magics.runtime.transport import messages

DEAD = PeerLost(2, CLOSED)


class Driver:
    """Answers ranks that wait for a group, as an attempt does."""

    def __init__(self, ranks):
        self._group, self._lock = Group(1), threading.Lock()
        self._group.begin(ranks)
        self.inboxes = {rank: queue.SimpleQueue() for rank in ranks}

    def leave(self, rank):
        self._group.leave(rank)

    def channel(self, rank):
        return SimpleNamespace(send_json=lambda kind, value: self._take(rank, kind, value))

    def _take(self, rank, kind, value):
        with self._lock:
            if kind == messages.REGROUP:
                self._group.wait(rank, joins=value["joins"], welcomes=value["welcomes"])
                members = self._group.formed()
                self._send(messages.GROUP, members, {"group": self._group.number, "ranks": members})
            else:
                addresses = self._group.meet(rank, value["group"], tuple(value["address"]))
                members = self._group.members if addresses else None
                self._send(messages.PEERS, members, {"group": value["group"], "addresses": addresses})

    def _send(self, kind, members, value):
        for member in members or ():
            self.inboxes[member].put((kind, value))


class Peers:
    """Of a rank among three, until one is lost."""

    def __init__(self, ring):
        self.ring, self.feed = ring, None

    @property
    def collective(self):
        return self.ring


@pytest.fixture
def ranks():
    """(Regrouping, Peers) of ranks 0 and 1, whose peer 2 is dead."""
    driver = Driver([0, 1, 2])
    driver.leave(2)
    config = SimpleNamespace(rank=0, workers=3, host="127.0.0.1", credentials=rings.CREDENTIALS)
    with rings.ThreadRing(3) as ring:
        made = []
        for rank in (0, 1):
            of_rank = SimpleNamespace(**{**vars(config), "rank": rank})
            regrouping = Regrouping(of_rank, driver.channel(rank), driver.inboxes[rank])
            regrouping.active = True
            made.append((regrouping, Peers(ring.ranks[rank])))
        yield made
        for _, peers in made:
            peers.ring.close("the test is over")


def lost():
    raise DEAD


def summed(peers, number):
    """The sum of a number over the ranks."""
    flat = np.array([number], np.float64)
    peers.collective.allreduce(flat, Announcement(STEP))
    return [flat]


def first_lost(peers, number):
    """What calls `summed`, but has lost a rank when it is called first."""
    losses = [lost]
    return lambda: losses.pop()() if losses else summed(peers, number)


def test_what_nobody_has_is_made_again_by_those_who_are_left(ranks):
    def run(rank):
        regrouping, peers = ranks[rank]
        result = regrouping.complete(peers, first_lost(peers, 1.0 + rank), repeats=True)
        assert peers.feed is None, "it was of other ranks"
        return result[0].tolist(), peers.ring.size, regrouping.members, regrouping.count

    closed = []
    ranks[1][1].feed = SimpleNamespace(close=closed.append)
    assert rings.together([lambda: run(0), lambda: run(1)]) == [([3.0], 2, [0, 1], 1)] * 2
    assert len(closed) == 1


def test_a_step_that_nobody_has_is_begun_again(ranks):
    def run(rank):
        regrouping, peers = ranks[rank]
        with pytest.raises(Regrouped):
            regrouping.complete(peers, lost, repeats=False)
        return regrouping.count, regrouping.changes

    assert rings.together([lambda: run(0), lambda: run(1)]) == [(0, 1), (0, 1)]


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_rank_that_is_ahead_gives_its_result_to_one_that_is_behind(ranks, ahead):
    sums = [np.array([[1.5, 2.5]], np.float32), np.array([], np.int64), np.array([7], np.int64)]

    def run(rank):
        regrouping, peers = ranks[rank]
        has_it = rank == ahead
        result = regrouping.complete(peers, (lambda: sums) if has_it else lost, repeats=False)
        following = first_lost(peers, 1.0) if has_it else lambda: summed(peers, 1.0)
        return [array.tolist() for array in result], regrouping.complete(peers, following, repeats=True)[0].tolist()

    assert rings.together([lambda: run(0), lambda: run(1)]) == [([[[1.5, 2.5]], [], [7]], [2.0])] * 2


@pytest.mark.parametrize("error, active", [(PeerLost(2, "its cell has ended"), True), (DEAD, False)])
def test_a_rank_that_says_why_it_leaves_and_one_outside_of_a_fit_end_the_others(ranks, error, active):
    regrouping, peers = ranks[0]
    regrouping.active = active

    def make():
        raise error

    with pytest.raises(PeerLost) as raised:
        regrouping.complete(peers, make, repeats=True)
    assert raised.value is error and regrouping.changes == 0
