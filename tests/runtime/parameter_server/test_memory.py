"""Vectors in memory that server and ranks share: the same numbers as over the connection, and none is ever torn."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from support.parameter_servers import CREDENTIALS
from support.processes import mapped_memory, shared_files

from ddl_magics.runtime.parameter_server import memory, protocol, update_rules
from ddl_magics.runtime.parameter_server.client import NonFinite
from ddl_magics.runtime.transport import memory_file, wire

SIZE = 1000


@pytest.fixture
def pair(start):
    """(server, clients of its two ranks) of a fit that has begun at zero."""
    server = start(2)
    return server, server.begun(2, SIZE)


def exchanges(server, count=20):
    """All that two ranks receive, as bytes, while they commit random updates in turn."""
    chance = np.random.default_rng(3)
    clients = [server.client(rank) for rank in range(2)]
    initial = chance.normal(size=SIZE).astype(np.float32)
    versions = [c.begin(0, None if c.rank else initial, np.float32, SIZE, rate=0.1)[1] for c in clients]
    seen = []
    for seq in range(count):
        rank = int(chance.integers(2))
        delta = chance.normal(size=SIZE).astype(np.float32)
        want, late = bool(chance.integers(2)), int(chance.integers(3))
        centre, version, staleness = clients[rank].commit(0, seq, delta, versions[rank], late, want)
        if chance.integers(2):
            versions[rank] = version
        seen.append((None if centre is None else centre.tobytes(), version, staleness))
        pulled, version = clients[1 - rank].pull(0, local_version=versions[1 - rank])
        seen.append((None if pulled is None else pulled.tobytes(), version))
    return seen


@pytest.mark.parametrize("rule", update_rules.names("ps"))
def test_exchanges_are_bit_identical_to_those_over_the_connection(start, monkeypatch, rule):
    near = start(2, rule=rule)
    through_memory = exchanges(near)
    assert len(mapped_memory(near.process.pid) & mapped_memory(os.getpid())) > 1  # the control: they went that way
    monkeypatch.setattr(memory_file, "host_id", lambda: "another host")
    assert exchanges(start(2, rule=rule)) == through_memory


def test_a_centre_is_unchanged_for_as_long_as_somebody_holds_it(pair):
    _, clients = pair
    held = []
    for seq in range(60):
        client = clients[seq % 2]
        centre = client.commit(0, seq, np.ones(SIZE), seq)[0]
        if seq % 7 == 0:
            held.append((seq + 1, centre[SIZE // 2 :]))
    assert [set(part.tolist()) for _, part in held] == [{count} for count, _ in held]
    with pytest.raises(ValueError, match="read-only"):
        centre[0] = 1


def test_memory_that_nobody_reads_any_more_is_reused(pair):
    server, clients = pair
    for seq in range(50):
        clients[seq % 2].commit(0, seq, np.ones(SIZE), seq)
        clients[1].pull(0)
        if seq == 10:
            soon = mapped_memory(server.process.pid)
    assert mapped_memory(server.process.pid) == soon
    assert len(soon) <= 7  # per rank a staging buffer, the centre it has and the one it gets; and the newest


def test_the_memory_of_a_broken_connection_is_freed(pair):
    server, (zero, one) = pair
    for seq in range(12):
        zero.commit(0, 2 * seq, np.ones(SIZE), 0)
        zero.commit(0, 2 * seq + 1, np.ones(SIZE), 0)
        one.pull(0)
        for client in (zero, one):
            wire.hang_up(client._channel.socket)
    assert set(one.pull(0)[0].tolist()) == {24.0}
    gc.collect()
    time.sleep(0.5)
    assert len(mapped_memory(server.process.pid)) <= 7


def test_a_new_fit_frees_the_memory_of_the_one_before(start):
    server = start(1)
    client = server.client(0)
    others = mapped_memory(os.getpid())
    for fit in range(6):
        size = SIZE * (fit + 1)
        client.begin(fit, np.zeros(size), np.float64, size)
        client.commit(fit, 0, np.ones(size), 0)
        client.commit(fit, 1, np.ones(size), 1)
    gc.collect()
    assert len(mapped_memory(server.process.pid)) <= 8  # two fits are kept
    assert len(mapped_memory(os.getpid()) - others) <= 8


def test_a_rank_that_cannot_open_the_memory_uses_the_connection(start, monkeypatch):
    expected = exchanges(start(2))
    monkeypatch.setattr(memory_file, "attach", lambda offer: None)
    assert exchanges(start(2)) == expected


def test_a_rank_that_can_no_longer_open_memory_continues_over_the_connection(pair, monkeypatch):
    _, (client, _) = pair
    attach, left = memory_file.attach, iter(range(1))
    monkeypatch.setattr(memory_file, "attach", lambda offer: attach(offer) if next(left, None) is not None else None)
    for seq in range(5):
        centre, version, staleness = client.commit(0, seq, np.ones(SIZE), seq)
        assert (set(centre.tolist()), version, staleness) == ({seq + 1}, seq + 1, 0)


def test_a_server_without_shared_memory_uses_ordinary_memory(monkeypatch):
    def none(size):
        raise OSError("out of memory")

    monkeypatch.setattr(memory_file, "MemoryFile", none)
    pool = memory.Pool()
    vector = pool.take("float32", 10)
    vector[:] = 1
    assert memory._offer(vector) is None


def test_a_write_after_the_connection_broke_reaches_no_weights(pair):
    _, (zero, one) = pair
    staging = one._memory._staging
    wire.hang_up(one._channel.socket)
    time.sleep(0.2)
    for seq in range(20):
        staging[:] = np.nan  # as a rank does that has not noticed yet
        centre, _, _ = zero.commit(0, seq, np.ones(SIZE), seq)
        assert set(centre.tolist()) == {seq + 1}
    centre, version, _ = one.commit(0, 0, np.ones(SIZE), 0)
    assert (set(centre.tolist()), version) == ({21.0}, 21)
    assert one._memory._staging is not None and one._memory._staging is not staging


def test_a_staging_buffer_is_lent_again_after_a_non_finite_update(pair):
    _, (zero, one) = pair
    for seq in range(4):
        with pytest.raises(NonFinite):
            one.commit(0, seq, np.full(SIZE, np.inf), 0)
    assert set(one.commit(0, 4, np.ones(SIZE), 0)[0].tolist()) == {1.0}
    assert zero.pull(0)[1] == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"memory": {"host": "another", "holds": []}, "lent": True, "size": SIZE + 1},
        {"lent": True, "size": SIZE + 1},
        {"lent": True, "dtype": "float32"},
        {"memory": 7},
        {"memory": {"host": memory_file.host_id(), "holds": [[]]}},
        {"memory": {"host": memory_file.host_id(), "holds": 7}},
    ],
)
def test_a_wrong_report_about_memory_ends_only_its_own_connection(pair, changes):
    _, (zero, one) = pair
    header = {"fit": 0, "seq": 0, "version": 0, "late": 0, "dtype": "float64", "size": SIZE}
    header.update({"want": True, "lent": False, "memory": one._memory.state()}, **changes)
    one._channel.send_json(protocol.COMMIT, header)
    with pytest.raises(wire.ConnectionLost):
        one._channel.recv()
    assert set(zero.commit(0, 0, np.ones(SIZE), 0)[0].tolist()) == {1.0}


@pytest.mark.parametrize("size", [-1, 1 + protocol.VECTOR_LIMIT_BYTES // 8, 2.0, "2", None])
def test_no_memory_is_taken_for_a_vector_of_such_a_size(size):
    with pytest.raises(ValueError, match="is above the limit"):
        protocol.new_vector(Mock(side_effect=AssertionError), "float64", size)


def test_a_staging_buffer_is_committed_once(pair):
    _, (zero, one) = pair
    header = {"fit": 0, "seq": 0, "version": 0, "late": 0, "dtype": "float64", "size": SIZE}
    header.update(want=True, lent=True, memory={"host": "another", "holds": []})  # so that none is lent in return
    one._memory._staging[:] = 1
    one._channel.send_json(protocol.COMMIT, header)
    assert one._channel.recv()[0] == protocol.REPLY
    one._channel.recv()  # the centre
    one._channel.send_json(protocol.COMMIT, dict(header, seq=1))
    with pytest.raises(wire.ConnectionLost):
        one._channel.recv()
    assert zero.pull(0)[1] == 1


@pytest.mark.parametrize("victim", ["server", "worker", "both"])
def test_no_memory_outlives_processes_that_are_killed(start, victim):
    names = shared_files()
    server = start(2)
    script = f"""
        import numpy as np
        from ddl_magics.runtime.parameter_server.client import Client
        from ddl_magics.runtime.transport.credentials import Credentials
        credentials = Credentials.from_json({CREDENTIALS.to_json()!r})
        client = Client(("127.0.0.1", {server.port}), credentials, 0, 1, 20)
        _, version = client.begin(0, np.zeros(1_000_000), np.float64, 1_000_000)
        seq = 0
        while True:
            _, version, _ = client.commit(0, seq, np.ones(1_000_000), version)
            seq += 1
            if seq == 5:
                print("committed", flush=True)
    """
    worker = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, stderr=-3)
    try:
        assert worker.stdout.readline() == b"committed\n"
        files = mapped_memory(server.process.pid)
        assert len(files & mapped_memory(worker.pid)) >= 2  # the control: this shows it
        for process in {"server": [server.process], "worker": [worker], "both": [server.process, worker]}[victim]:
            process.send_signal(signal.SIGKILL)
        if victim == "worker":
            worker.wait(10)
            goes_on = server.client(1)
            centre, version = goes_on.begin(0, None, np.float64, 1_000_000)
            assert set(goes_on.commit(0, 0, np.ones(1_000_000), version)[0].tolist()) == {version + 1}
            goes_on.leave()
            del centre, goes_on
            server.process.stdin.close()
        worker.wait(20)  # without its server it ends by itself
        server.process.wait(10)
    finally:
        worker.kill()
        worker.stdout.close()
    assert shared_files() == names
    gone = {str(worker.pid), str(server.process.pid), str(os.getpid())}
    others = [path.name for path in Path("/proc").glob("[0-9]*") if path.name not in gone]
    assert [pid for pid in others if mapped_memory(pid) & files] == []


def test_nobody_else_gets_memory_that_a_rank_that_left_may_still_read():
    pool = memory.Pool()
    buffer = memory.ServerBuffer(Mock(), pool)
    buffer.note_state({"host": memory_file.host_id(), "holds": []})
    vector = pool.take(np.float32, SIZE)
    lent = memory._offer(vector)
    buffer.answer({}, [vector])
    buffer.close()
    del vector, buffer
    gc.collect()
    taken = pool.take(np.float32, SIZE)
    assert lent and memory._offer(taken)["token"] != lent["token"]
