"""A worker's exchanges beside its training: one at a time, and what it learned meanwhile is kept."""

import threading

import numpy as np
import pytest

from ddl_magics.runtime.parameter_server import report, update_rules
from ddl_magics.runtime.parameter_server.centre import Fit, Refusal
from ddl_magics.runtime.parameter_server.exchange import Exchanger, concurrent_staleness, overlap_staleness


class Server:
    """The server without sockets; `open` lets the exchanges through."""

    def __init__(self, text, centre, workers=2):
        self.rule = update_rules.get(text, workers)
        self.fit = Fit(self.rule, np.array(centre))
        self.open = threading.Event()
        self.open.set()
        self.commits = []

    def pull(self, fit, local_version=None):
        return (None if local_version == self.fit.version else self.fit.centre), self.fit.version

    def commit(self, fit, seq, delta, version, extra_staleness=0, want_centre=True):
        assert self.open.wait(10)
        self.commits.append((seq, delta.tolist(), version, extra_staleness))
        staleness = self.fit.commit(0, 1, seq, delta.copy(), version, extra_staleness)
        return (self.fit.centre if want_centre else None), self.fit.version, staleness

    def other_commits(self, *values):
        for value in values:
            self.fit.commit(1, 1, self.fit.version, np.array([value]), self.fit.version)


@pytest.fixture
def make():
    exchangers = []

    def make(text, centre):
        server = Server(text, centre)
        exchangers.append(Exchanger(server.rule, server, 0, 2))
        exchangers[-1].start(server.fit.centre, 0)
        return server, exchangers[-1]

    yield make
    for exchanger in exchangers:
        exchanger.close()


def exchange(exchanger, weight, batches, trained, **options):
    exchanger.send(np.array([weight]), batches, **options)
    return exchanger.collect(trained=trained)


def test_training_continues_while_a_commit_is_in_flight(make):
    server, exchanger = make("adag", [0.0])
    server.open.clear()
    exchanger.send(np.array([4.0]), 2)
    assert exchanger.in_flight and not exchanger.answer_arrived
    with pytest.raises(AssertionError, match="one commit at a time"):
        exchanger.send(np.array([5.0]), 2)
    server.other_commits(10.0)
    server.open.set()
    weights = 4.0 + 1.0  # a batch was trained meanwhile
    exchanged = exchanger.collect(trained=1)
    assert not exchanger.in_flight
    weights += exchanged.shift[0]
    assert weights == 12.0 + 1.0, "the new centre, 10 + 4 / 2, and what was learned since"
    assert exchanged.staleness == 1


def test_the_next_window_counts_from_the_new_centre_and_its_overlapped_batches_as_staler(make):
    server, exchanger = make("adag", [0.0])
    server.open.clear()
    exchanger.send(np.array([4.0]), 2)
    server.other_commits(10.0, 0.0, 0.0)
    server.open.set()
    assert exchanger.collect(trained=1).staleness == 3
    server.other_commits(1.0)
    exchanger.send(np.array([12.0 + 6.0]), 2)
    # One commit of another worker since that centre; one of two batches is staler by three: 1 + 3 / 2, rounded up.
    assert exchanger.collect(trained=0).staleness == 3
    assert server.commits[1] == (2, [3.0], 4, 2)


def test_a_batch_of_a_short_window_counts_as_much_as_any_other(make):
    server, exchanger = make("adag", [0.0])
    exchange(exchanger, 4.0, 1, 0)
    assert server.fit.centre.tolist() == [2.0], "4 / 2, not 4 / 1"
    exchange(exchanger, 2.0 + 4.0, 4, 0)
    assert server.fit.centre.tolist() == [3.0], "4 / 4, as a window of several steps in one is longer"


@pytest.mark.parametrize("workers", [2, 4, 8, 20, 64])
def test_concurrent_commits_count_together_as_one_window(workers):
    rule = update_rules.get("dynsgd", workers)
    fit = Fit(rule, np.zeros(1))
    for rank in range(workers):
        fit.commit(rank, 1, 0, np.ones(1), 0, concurrent_staleness(rule.lag))
    assert 0.8 < fit.centre[0] < 1.15


def test_the_first_commit_and_the_last_of_an_epoch_count_as_concurrent(make):
    server, exchanger = make("dynsgd", [0.0])
    exchange(exchanger, 2.0, 2, 0)
    assert server.fit.centre.tolist() == [1.0]
    exchange(exchanger, 1.0 + 3.0, 2, 0)
    assert server.fit.centre.tolist() == [4.0]
    assert exchange(exchanger, 4.0 + 2.0, 2, 0, ends_epoch=True).staleness == 0, (
        "it counts half, and no other commit came before it"
    )
    assert server.fit.centre.tolist() == [5.0]


def test_a_workers_own_commits_add_no_staleness(make):
    _server, exchanger = make("downpour", [0.0])
    for _ in range(3):
        exchanger.send(np.array([1.0]), 2)
        assert exchanger.collect(trained=2).staleness == 0


def test_an_elastic_worker_pulls_the_centre_right_before_its_commit(make):
    server, exchanger = make("aeasgd:alpha=0.25", [0.0])
    server.other_commits(4.0)
    exchanged = exchange(exchanger, 8.0, 2, 1)
    assert exchanged.shift.tolist() == [-1.0], "a quarter of 8 - 4"
    assert server.fit.centre.tolist() == [5.0]
    assert exchanged.staleness == 0


def test_the_next_epoch_starts_from_the_centre_of_the_last_ones_end(make):
    server, exchanger = make("downpour:scale=1", [0.0])
    exchange(exchanger, 1.0, 2, 1)
    server.other_commits(1.0)
    exchanger.start(server.fit.centre, server.fit.version)
    assert exchange(exchanger, 5.0, 2, 0).staleness == 0
    assert server.fit.centre.tolist() == [5.0]


def test_collect_raises_what_the_server_refuses(make):
    _server, exchanger = make("adag", [0.0])
    exchanger.send(np.array([1.0, 2.0]), 2)
    with pytest.raises(Refusal, match="rank 0's model has 2 weights"):
        exchanger.collect(trained=0)


def test_overlap_staleness_is_the_mean_over_the_batches_rounded_up():
    assert [overlap_staleness(4, behind, 6) for behind in range(5)] == [0, 2, 3, 5, 6]
    assert overlap_staleness(3, 2, 0) == 0


def test_a_report_has_the_histogram_of_its_commits():
    commits = report.CommitReport()
    assert commits.take() is None
    for staleness in (0, 0, 1, 3, 9):
        commits.add(staleness)
    fields = commits.take()
    assert fields.pop("seconds") >= 0
    assert fields == {"commits": 5, "staleness": 2.6, "staleness_max": 9, "histogram": [2, 1, 1, 0, 1]}
    assert commits.take() is None


def test_a_report_is_due_a_second_after_the_last_if_there_were_commits(monkeypatch):
    now = [10.0]
    monkeypatch.setattr(report.time, "monotonic", lambda: now[0])
    commits = report.CommitReport()
    commits.add(1)
    now[0] = 10.5
    assert not commits.due
    now[0] = 11.0
    assert commits.due and commits.take()["seconds"] == 1.0
    now[0] = 13.0
    assert not commits.due, "no commit"
    commits.add(0)
    assert commits.due
