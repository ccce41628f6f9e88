"""The parameter server as it runs: a process of its own, clients over real sockets, in threads and in processes."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from support.attacks import Tap
from support.parameter_servers import CREDENTIALS, MODULE, RUN
from support.processes import has_ended
from support.until import until

from ddl_magics.runtime.parameter_server import protocol
from ddl_magics.runtime.parameter_server import shards as parameter_shards
from ddl_magics.runtime.parameter_server.client import Client, NonFinite, RankLost, RequestRefused
from ddl_magics.runtime.transport import memory_file, wire
from ddl_magics.runtime.transport.credentials import Credentials


@pytest.fixture
def pool():
    with ThreadPoolExecutor(8) as pool:
        yield pool


@pytest.fixture(params=["memory", "connection"])
def way(request, monkeypatch):
    """How vectors travel: through memory, as server and clients are on one host, or over the connection."""
    if request.param == "connection":
        monkeypatch.setattr(memory_file, "host_id", lambda: "another host")
    return request.param


def values(array):
    return array.tolist()


def test_commits_are_merged_and_versioned(way, start):
    server = start(2)
    zero, one = server.client(0), server.client(1)
    centre, version = zero.begin(0, np.array([1, 2, 3], np.float32), np.float32, 3)
    assert (values(centre), centre.dtype, version) == ([1, 2, 3], np.float32, 0)
    assert values(one.begin(0, None, np.float32, 3)[0]) == [1, 2, 3]

    centre, version, staleness = zero.commit(0, 0, np.array([1, 0, 0], np.float32), 0)
    assert (values(centre), version, staleness) == ([2, 2, 3], 1, 0)
    centre, version, staleness = one.commit(0, 0, np.array([0, 1, 0], np.float32), 0)
    assert (values(centre), version, staleness) == ([2, 3, 3], 2, 1)
    centre, version, staleness = one.commit(0, 1, np.array([0, 1, 0], np.float32), version)
    assert (values(centre), version, staleness) == ([2, 4, 3], 3, 0)
    centre, version = zero.pull(0)
    assert (values(centre), version) == ([2, 4, 3], 3)


def test_an_unchanged_centre_is_not_sent_again(way, start):
    zero, one = start(2).begun(2, 2)
    assert zero.pull(0, local_version=0) == (None, 0)
    one.commit(0, 0, np.ones(2), 0)
    centre, version = zero.pull(0, local_version=0)
    assert (values(centre), version) == ([1, 1], 1)
    assert one.commit(0, 1, np.ones(2), version, extra_staleness=2, want_centre=False) == (None, 2, 2)


def test_a_repeated_commit_is_merged_once(way, start):
    server = start(1)
    (client,) = server.begun(1, 2)
    client.commit(0, 0, np.ones(2), 0)
    centre, version, staleness = client.commit(0, 0, np.ones(2), 0)
    assert (values(centre), version, staleness) == ([1, 1], 1, 0)
    again = server.client(0, attempt=2)  # a new attempt counts from 0 again
    again.begin(0, None, np.float64, 2)
    assert values(again.commit(0, 0, np.ones(2), 1)[0]) == [2, 2]


def test_a_commit_survives_a_broken_connection(way, start):
    (client,) = start(1).begun(1, 2)
    client.commit(0, 0, np.ones(2), 0)
    wire.hang_up(client._channel.socket)
    assert values(client.commit(0, 0, np.ones(2), 0)[0]) == [1, 1]
    assert values(client.commit(0, 1, np.ones(2), 1)[0]) == [2, 2]


class Cutting(Tap):
    """A relay before a server that cuts each connection after some bytes in either direction."""

    def __init__(self, port, lengths):
        self._lengths, self.cuts = iter(lengths), 0
        super().__init__(("127.0.0.1", port))

    def _begin(self):
        left = [next(self._lengths, 1 << 60)]
        return left, left

    def _relay(self, source, sink, left):
        with contextlib.suppress(OSError):
            while data := source.recv(min(1 << 14, max(1, left[0]))):
                left[0] -= len(data)
                sink.sendall(data)
                if left[0] <= 0:
                    self.cuts += 1
                    break
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


def test_commits_over_connections_that_break_anywhere_are_neither_lost_nor_merged_twice(way, start, pool):
    """n commits of ones make n, however often a connection ends: in a header, in a vector, in an answer."""
    server, commits = start(2), 60
    size, least, most = {"connection": (5000, 2000, 200_000), "memory": (100, 500, 3500)}[way]
    ways = [Cutting(server.port, np.random.default_rng(rank).integers(least, most, 60)) for rank in range(2)]

    def work(rank):
        client = Client(ways[rank].address, CREDENTIALS, rank, 1, 20)
        _, version = repeat(lambda: client.begin(0, np.zeros(size) if rank == 0 else None, np.float64, size))
        for seq in range(commits):
            _, version, _ = repeat(lambda: client.commit(0, seq, np.ones(size), version))  # noqa: B023 - called now
        client._channel.close(0)

    def repeat(request):
        """As often as it takes: a client itself repeats once."""
        for _ in range(20):
            with contextlib.suppress(wire.ConnectionLost):
                return request()
        raise AssertionError("no connection carries a commit")

    for done in [pool.submit(work, rank) for rank in range(2)]:
        done.result(60)
    for way in ways:
        way.close()
    assert min(way.cuts for way in ways) > 20, "else the test shows nothing"
    centre, version = server.client(0, attempt=2).pull(0)
    assert (set(values(centre)), version) == ({2.0 * commits}, 2 * commits)


def test_large_numbers_do_not_count_as_infinite(start):
    client = start(1).client(0)
    large = np.full(4, 3e38, np.float32)
    assert values(client.begin(0, large, np.float32, 4)[0]) == values(large)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_non_finite_update_is_refused_and_named(way, start, bad):
    zero, one = start(2).begun(2, 3)
    with pytest.raises(NonFinite, match="rank 1's update 4 is not finite") as caught:
        one.commit(0, 4, np.array([0, bad, 1]), 0)
    assert caught.value.rank == 1
    assert values(zero.pull(0)[0]) == [0, 0, 0]
    assert zero.pull(0)[1] == 0
    assert values(one.commit(0, 5, np.ones(3), 0)[0]) == [1, 1, 1]


def test_non_finite_initial_weights_are_refused(start):
    with pytest.raises(NonFinite, match="rank 0's initial weights"):
        start(1).client(0).begin(0, np.array([np.nan]), np.float64, 1)


def test_an_epoch_ends_when_all_ranks_have_passed_it(way, start, pool):
    clients = start(3).begun(3, 2)

    def end(rank, epoch, stop=False):
        return clients[rank].epoch_end(0, epoch, np.array([1.0, rank]), np.array([float(rank)]), stop)

    first = [pool.submit(end, rank, 0) for rank in (0, 1)]
    time.sleep(0.3)
    assert not any(future.done() for future in first)
    clients[2].commit(0, 0, np.array([3.0, 4.0]), 0)
    last = end(2, 0, stop=True)
    for sums, means, centre, version, stop in [last, *(future.result(10) for future in first)]:
        assert (values(sums), values(means), values(centre), version, stop) == ([3, 3], [1], [3, 4], 1, True)
    again = list(pool.map(lambda rank: end(rank, 1), range(3)))
    assert [stop for *_, stop in again] == [False] * 3


def test_an_epoch_end_may_have_nothing_to_sum(start):
    (client,) = start(1).begun(1)
    sums, means, *_ = client.epoch_end(0, 0, np.empty(0), np.empty(0), False)
    assert (sums.size, means.size) == (0, 0)


def test_epoch_ends_of_different_models_are_refused(start, pool):
    zero, one = start(2).begun(2)
    waiting = pool.submit(zero.epoch_end, 0, 0, np.zeros(2), np.zeros(0), False)
    time.sleep(0.2)
    with pytest.raises(RequestRefused, match="rank 1 ends epoch 0 with 3 sums"):
        one.epoch_end(0, 0, np.zeros(3), np.zeros(0), False)
    one.leave()
    waiting.result(10)


def test_a_killed_worker_is_not_waited_for_and_returns_with_a_later_attempt(start, pool):
    server = start(2)
    (zero,) = server.begun(1, 2)
    script = f"""
        import numpy as np, time
        from ddl_magics.runtime.parameter_server.client import Client
        from ddl_magics.runtime.transport.credentials import Credentials
        credentials = Credentials.from_json({CREDENTIALS.to_json()!r})
        client = Client(("127.0.0.1", {server.port}), credentials, 1, 1, 20)
        client.begin(0, None, np.float64, 2)
        client.commit(0, 0, np.ones(2), 0)
        print("committed", flush=True)
        time.sleep(60)
    """
    worker = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE)
    try:
        assert worker.stdout.readline() == b"committed\n"
        waiting = pool.submit(zero.epoch_end, 0, 0, np.ones(1), np.ones(1), False)
        time.sleep(0.3)
        assert not waiting.done()
        worker.send_signal(signal.SIGKILL)
        killed = time.monotonic()
        sums, _, centre, _, _ = waiting.result(10)
        assert time.monotonic() - killed < 5
    finally:
        worker.kill()
        worker.wait()
        worker.stdout.close()
    assert (values(sums), values(centre)) == ([1], [1, 1])

    with pytest.raises(wire.PeerRefused, match="attempt 0 of rank 1 is over"):
        server.client(1, attempt=0)
    one = server.client(1, attempt=2)
    centre, version = one.begin(0, None, np.float64, 2)
    assert (values(centre), version, one.epoch) == ([1, 1], 1, 1)
    with pytest.raises(wire.PeerRefused, match="attempt 1 of rank 1 is over"):
        server.client(1, attempt=1)
    waiting = pool.submit(zero.epoch_end, 0, 1, np.ones(1), np.ones(1), False)
    time.sleep(0.2)
    assert not waiting.done(), "the rank that has returned is waited for"
    assert values(one.epoch_end(0, 1, np.ones(1), np.ones(1), False)[0]) == [2]
    waiting.result(10)


def test_a_rank_that_leaves_is_not_waited_for(start):
    zero, one = start(2).begun(2)
    one.leave()
    assert values(zero.epoch_end(0, 0, np.ones(1), np.ones(1), False)[0]) == [1]


def test_a_rank_that_never_comes_is_waited_for_a_bounded_time(start):
    (zero,) = start(2, options={"join_seconds": 0.6, "alive_seconds": 0.1}).begun(1)
    begun = time.monotonic()
    zero.epoch_end(0, 0, np.ones(1), np.ones(1), False)
    assert time.monotonic() - begun > 0.4


def test_waiting_outlasts_the_clients_timeout(start, pool):
    server = start(2, options={"alive_seconds": 0.2})
    zero, one = server.client(0, timeout=1.5), server.client(1)
    zero.begin(0, np.zeros(1), np.float64, 1)
    waiting = pool.submit(zero.epoch_end, 0, 0, np.ones(1), np.ones(1), False)
    time.sleep(3)
    one.epoch_end(0, 0, np.ones(1), np.ones(1), False)
    assert values(waiting.result(10)[0]) == [2]


def test_two_fits_one_after_the_other(way, start, pool):
    server = start(2)
    clients = [server.client(rank) for rank in range(2)]

    def train(rank, fit, initial):
        client = clients[rank]
        size = len(initial)
        _, version = client.begin(fit, np.array(initial) if rank == 0 else None, np.float64, size)
        client.commit(fit, 0, np.full(size, 1.0 + rank), version)
        return client.epoch_end(fit, 0, np.ones(1), np.ones(1), False)[2]

    for fit, initial, expected in [(0, [0.0, 0.0], [3, 3]), (1, [10.0, 10.0, 10.0], [13, 13, 13])]:
        centres = list(pool.map(lambda rank, fit=fit, initial=initial: train(rank, fit, initial), range(2)))
        assert [values(centre) for centre in centres] == [expected] * 2
    with pytest.raises(RequestRefused, match="fit 7, which is not there"):
        clients[1].pull(7)


def test_the_others_wait_for_the_weights_of_rank_0(start, pool):
    server = start(2)
    one = server.client(1)
    waiting = pool.submit(one.begin, 0, None, np.float64, 2)
    time.sleep(0.3)
    assert not waiting.done()
    server.client(0).begin(0, np.array([4.0, 5.0]), np.float64, 2)
    assert values(waiting.result(10)[0]) == [4, 5]


def test_a_model_that_differs_is_refused(start):
    server = start(2)
    server.begun(1, 4)
    with pytest.raises(RequestRefused, match=r"rank 1's model has 3 weights of float64, the job's has 4 of float64"):
        server.client(1).begin(0, None, np.float64, 3)


def test_rank_0_broadcasts_and_the_others_wait(start, pool):
    zero, one = start(2).begun(2)
    waiting = pool.submit(one.broadcast, 0, "validation/0", None)
    time.sleep(0.2)
    assert not waiting.done()
    assert zero.broadcast(0, "validation/0", {"val_loss": 0.5}) == {"val_loss": 0.5}
    assert waiting.result(10) == {"val_loss": 0.5}
    assert zero.broadcast(0, "validation/2", None) is None
    assert one.broadcast(0, "validation/2", None) is None
    with pytest.raises(RequestRefused, match="only rank 0 may"):
        one.broadcast(0, "validation/1", {"val_loss": 1})


@pytest.mark.parametrize("leaves", [True, False])
def test_waiting_ranks_learn_that_rank_0_is_gone(start, pool, leaves):
    zero, one, two = start(3).begun(3)
    shared = pool.submit(one.broadcast, 0, "validation/0", None)
    begun = pool.submit(two.begin, 1, None, np.float64, 1)
    time.sleep(0.2)
    if leaves:
        zero.leave()
    else:
        wire.hang_up(zero._channel.socket)
    for waiting, what in [(shared, "'validation/0'"), (begun, "the weights of fit 1")]:
        with pytest.raises(RankLost, match="rank 0 has ended or died before it brought " + what) as caught:
            waiting.result(10)
        assert caught.value.rank == 0


# -- several servers


@pytest.fixture
def shards(start):
    """(how many servers, how many ranks) -> a `ShardedClient` for each rank."""

    def shards(count, ranks):
        addresses = [["127.0.0.1", start(ranks).port] for _ in range(count)]
        made = [parameter_shards.connect(addresses, CREDENTIALS, rank, 1, 20) for rank in range(ranks)]
        clients.extend(made)
        return made

    clients = []
    yield shards
    for client in clients:
        client.leave()


def test_a_sharded_model_trains_as_on_one_server(way, shards, pool):
    zero, one = shards(3, 2)
    initial = np.arange(7.0)
    centre, version = zero.begin(0, initial, np.float64, 7)
    assert (values(centre), version) == (values(initial), (0, 0, 0))
    assert values(one.begin(0, None, np.float64, 7)[0]) == values(initial)
    assert zero.pull(0, version) == (None, version)
    centre, version, staleness = zero.commit(0, 1, np.ones(7), version)
    assert (values(centre), version, staleness) == (values(initial + 1), (1, 1, 1), 0)
    assert one.commit(0, 1, np.ones(7), (0, 0, 0), want_centre=False) == (None, (2, 2, 2), 1)
    ends = list(pool.map(lambda client: client.epoch_end(0, 0, np.ones(2), np.ones(1), client is one), (zero, one)))
    for sums, means, centre, version, stop in ends:
        assert (values(sums), values(means), values(centre)) == ([2, 2], [1], values(initial + 2))
        assert (version, stop) == ((2, 2, 2), True)
    assert zero.broadcast(0, "validation 0", {"val_loss": 1}) == {"val_loss": 1}
    assert one.broadcast(0, "validation 0", None) == {"val_loss": 1}


def test_a_change_on_one_server_pulls_all_shards(shards):
    zero, one = shards(2, 2)
    _, version = zero.begin(0, np.zeros(4), np.float64, 4)
    one.begin(0, None, np.float64, 4)
    one._clients[1].commit(0, 1, np.ones(2), 0)
    centre, version = zero.pull(0, version)
    assert (values(centre), version) == ([0, 0, 1, 1], (0, 1))


def test_a_model_may_have_fewer_weights_than_there_are_servers(shards):
    (client,) = shards(4, 1)
    client.begin(0, np.zeros(2), np.float64, 2)
    assert values(client.commit(0, 1, np.ones(2), (0, 0, 0, 0))[0]) == [1, 1]


def test_strangers_are_refused(start):
    server = start(1)
    with pytest.raises(wire.PeerRefused):
        server.client(0, credentials=Credentials(RUN, b"x" * 32))
    with pytest.raises(wire.PeerRefused, match="there is no rank 3"):
        server.client(3)
    with pytest.raises(wire.PeerRefused, match="serves ranks, not a supervisor"):
        supervisor, expected = wire.Identity("supervisor", 0, 1), wire.Identity("server", -1, 0)
        wire.connect(("127.0.0.1", server.port), CREDENTIALS, supervisor, expected, 5)


def test_a_breach_of_the_protocol_ends_only_its_own_connection(start):
    server = start(2)
    (zero,) = server.begun(1)
    for attempt, kind, header in [
        (2, protocol.BEGIN, {"fit": 0, "dtype": "float64", "size": 1 << 60, "initial": True}),
        (3, protocol.BEGIN, {"fit": 0, "dtype": "object", "size": 1, "initial": True}),
        (4, 99, {}),
        (5, protocol.COMMIT, {}),
        (6, protocol.COMMIT, []),
    ]:
        channel = server.client(1, attempt)._channel
        channel.send_json(kind, header)
        with pytest.raises(wire.ConnectionLost):
            channel.recv()
    assert values(zero.pull(0)[0]) == [0]


@pytest.mark.parametrize(
    ("kind", "answer", "error"),
    [
        (protocol.VECTOR, {}, wire.ProtocolError),
        (99, {}, wire.ProtocolError),
        (protocol.REFUSED, {"kind": "another", "rank": 0, "message": "no"}, AssertionError),
    ],
)
def test_an_answer_of_unknown_kind_is_an_error(start, monkeypatch, kind, answer, error):
    (client,) = start(1).begun(1)
    monkeypatch.setattr(client._channel, "recv", lambda limit: (kind, json.dumps(answer).encode()))
    with pytest.raises(error):
        client.pull(0)


def test_the_process_writes_one_line_and_ends_with_its_stdin(start):
    server = start(1)
    server.begun(1)
    server.process.stdin.close()
    assert server.process.wait(10) == 0
    assert server.process.stdout.read() == b""


def test_the_process_dies_with_its_parent():
    script = f"""
        import json, os, subprocess, sys
        server = subprocess.Popen([sys.executable, "-m", {MODULE!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        os.set_inheritable(server.stdin.fileno(), True)
        holder = subprocess.Popen(["sleep", "60"], close_fds=False, stdout=subprocess.DEVNULL)
        # From here on the server's stdin stays open without its parent.
        credentials = {Credentials("r", b"").to_json()!r}
        config = dict(credentials=credentials, host="127.0.0.1", size=1, attempt=1, rule="adag", options=dict())
        server.stdin.write(json.dumps(config).encode() + b"\\n")
        server.stdin.flush()
        server.stdout.readline()
        print(server.pid, holder.pid, flush=True)
        os.kill(os.getpid(), 9)
    """
    parent = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE)
    server, holder = map(int, parent.stdout.split())
    try:
        until(lambda: has_ended(server), 15)
    finally:
        os.kill(holder, signal.SIGKILL)


def test_a_dead_server_is_a_lost_connection(start, monkeypatch):
    monkeypatch.setattr("ddl_magics.runtime.parameter_server.client.RECONNECT_SECONDS", 0.5)
    server = start(1)
    (client,) = server.begun(1)
    server.process.kill()
    with pytest.raises(wire.ConnectionLost):
        client.commit(0, 0, np.ones(1), 0)


def test_a_rank_that_is_behind_by_a_fit_is_told_and_does_not_wait(start):
    server = start(2)
    server.client(0).begin(1, np.zeros(2), np.float64, 2)
    with pytest.raises(
        RequestRefused, match="rank 1 begins fit 1, and others are in fit 2: every rank must train equally"
    ):
        server.client(1).begin(0, None, np.float64, 2)


def test_a_rank_that_returns_late_gets_the_ends_of_all_epochs_that_it_has_missed(start):
    server = start(2)
    zero, one = server.begun(2, 2)
    one.leave()
    ended = [zero.epoch_end(0, epoch, np.full(1, epoch), np.ones(1), False)[0] for epoch in range(4)]
    again = server.client(1)
    found = [again.epoch_end(0, epoch, np.ones(1), np.ones(1), False)[0] for epoch in range(4)]
    assert [values(sums) for sums in found] == [values(sums) for sums in ended]


def test_a_rank_that_comes_too_late_for_a_fit_is_told_so(start):
    server = start(1, options={"max_size": 2})
    (zero,) = server.begun(1)
    for fit in (1, 2):
        zero.begin(fit, np.zeros(1), np.float64, 1)
    with pytest.raises(
        RequestRefused, match="rank 1 begins fit 1, and others are in fit 3: it has come too late for it"
    ):
        server.client(1).begin(0, None, np.float64, 1)
    assert values(zero.epoch_end(2, 0, np.ones(1), np.ones(1), False)[0]) == [1], "it is not waited for"
