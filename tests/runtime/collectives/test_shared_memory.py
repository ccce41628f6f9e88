"""Memory that the ranks of a host share: only they open it, and it is freed however they end."""

import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest
from support.processes import mapped_memory, shared_files
from support.rings import ProcessRing, ThreadRing

from ddl_magics.runtime.collectives import rendezvous
from ddl_magics.runtime.collectives.announcement import STEP
from ddl_magics.runtime.collectives.collective import Announcement, PeerLost
from ddl_magics.runtime.collectives.shared_memory import PIECE_BYTES, SharedMemory
from ddl_magics.runtime.transport import memory_file


@pytest.fixture
def memory():
    file = memory_file.MemoryFile(10_000)
    yield file
    file.close()


def test_both_sides_write_to_the_same_memory(memory):
    theirs = memory_file.attach(memory.offer())
    theirs[5000] = 7
    memory.bytes[6000] = 8
    assert (memory.bytes[5000], theirs[6000]) == (7, 8)


def test_another_process_opens_it_and_sees_what_is_written(memory):
    script = (
        "import sys, json; from ddl_magics.runtime.transport import memory_file\n"
        "theirs = memory_file.attach(json.loads(sys.argv[1])); theirs[5000] = theirs[6000] + 1"
    )
    memory.bytes[6000] = 41
    subprocess.run([sys.executable, "-c", script, json.dumps(memory.offer())], check=True)
    assert memory.bytes[5000] == 42


@pytest.mark.skipif(os.geteuid() != 0, reason="it becomes another user")
def test_processes_in_user_namespaces_of_their_own_share_memory():
    script = """
import ctypes, json, os, sys
from ddl_magics.runtime.files import namespaces
from ddl_magics.runtime.transport import memory_file
import numpy as np
os.setgid(65534), os.setgroups([]), os.setuid(65534)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # as a process that was started as this user
namespaces._enter_user_namespace() if sys.argv[1] == "apart" else None
if len(sys.argv) == 2:
    memory = memory_file.MemoryFile(10_000)
    memory.bytes[6000] = 41
    print(json.dumps(memory.offer()), flush=True)
    sys.stdin.readline()
    print(memory.bytes[5000])
else:
    offer = json.loads(sys.argv[2])
    try:
        os.readlink(offer["path"])
        raise AssertionError("/proc is open")
    except PermissionError:
        pass
    theirs = memory_file.attach(offer)
    theirs[5000] = theirs[6000] + 1
    assert memory_file.attach({**offer, "token": "0" * 64}) is None
"""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    for where in ("apart", "outside"):
        command = [sys.executable, "-c", script]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen([*command, where], env=environment, **pipes) as creator:
            offer = creator.stdout.readline().strip()
            subprocess.run([*command, "apart", offer], check=True, env=environment, timeout=60)
            assert creator.communicate("\n", timeout=60)[0].strip() == "42"


@pytest.mark.parametrize(
    "wrong",
    [
        {"token": "00" * 32},  # not what was offered
        {"size": 20_000},
        {"target": "/memfd:other (deleted)"},
        {"path": "/proc/1073741824/fd/3"},  # nobody
        {"path": "/dev/null", "target": "/dev/null"},
        {"path": "/proc/self/exe", "target": os.path.realpath("/proc/self/exe"), "size": 1},
    ],
)
def test_memory_other_than_the_offered_is_not_opened(memory, wrong):
    assert memory_file.attach(memory.offer()) is not None  # the control
    assert memory_file.attach({**memory.offer(), **wrong}) is None


def test_an_offer_is_invalid_after_close():
    file = memory_file.MemoryFile(10_000)
    offer = file.offer()
    del file.bytes
    file.close()
    assert memory_file.attach(offer) is None


def test_a_python_without_memfd_shares_memory_without_a_name_too(monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    names = shared_files()
    with ThreadRing(2, "shared memory") as ring:
        assert isinstance(ring.ranks[0], SharedMemory)
        assert shared_files() == names
        buffers = np.ones((2, 100_000))
        ring.allreduce(buffers)
        assert (buffers == 2).all()


@pytest.mark.parametrize("refusing", [{0, 1, 2}, {1, 2}])
def test_ranks_without_shared_memory_reduce_over_tcp(refusing, monkeypatch):
    chance = iter(range(3))

    def some_memory(size, make=memory_file.MemoryFile):
        if next(chance) in refusing:
            raise OSError("out of memory")
        return make(size)

    monkeypatch.setattr(memory_file, "MemoryFile", some_memory)
    with ThreadRing(3, "shared memory") as ring:
        assert not any(isinstance(rank, SharedMemory) for rank in ring.ranks)
        buffers = np.ones((3, 100_000))
        ring.allreduce(buffers)
        assert (buffers == 3).all()


def test_a_group_has_ranks_that_all_open_each_others_memory():
    assert rendezvous._groups([{0, 1, 2}] * 3) == [[0, 1, 2]]
    assert rendezvous._groups([{0, 2}, {1, 3}, {0, 2}, {1, 3}]) == [[0, 2], [1, 3]]
    # 0 opens the memory of 1, but not the other way round
    assert rendezvous._groups([{0, 1}, {1}, {0, 1, 2}]) == [[0], [1], [2]]
    assert rendezvous._groups([set(), set()]) == [[0], [1]]


def test_random_buffers_over_piece_boundaries():
    chance = np.random.default_rng(5)
    lengths = [PIECE_BYTES // 8 * k + d for k in (1, 2, 3, 4) for d in (-1, 0, 1)] + list(chance.integers(1, 2e6, 4))
    with ThreadRing(3, "shared memory") as ring:
        for step, length in enumerate(lengths):
            values = chance.normal(size=(3, length))
            buffers = values.copy()
            ring.allreduce(buffers, step)
            expected = (values[0] + values[1]) + values[2]  # rounded in the order of ranks
            for buffer in buffers:
                np.testing.assert_array_equal(buffer, expected)


def test_consecutive_operations_do_not_disturb_each_other():
    """Areas are used in turn: the next operation must not overwrite one that a slow rank still reads."""
    sizes = [1, 3 * PIECE_BYTES + 1, 5, 2 * PIECE_BYTES, 0, PIECE_BYTES + 1]
    with ThreadRing(3, "shared memory") as ring:

        def many(rank):
            for step in range(60):
                announcement, size = Announcement(STEP, step=step), sizes[step % len(sizes)] // (1 + step % 2)
                if step % 3 == 0:
                    data = np.full(size, rank.rank + step, np.uint8)
                    rank.broadcast(data, announcement, root=step % 2)
                    assert (data == step % 2 + step).all()
                elif step % 3 == 1:
                    payloads = rank.gather(bytes([rank.rank + step]) * size, announcement, 1 << 30)
                    assert payloads == [bytes([other + step]) * size for other in range(3)]
                else:
                    data = np.full(size, rank.rank + step, np.float32)
                    rank.allreduce(data, announcement)
                    assert (data == 3 + 3 * step).all()

        assert ring.each(many) == [None] * 3


def test_a_rank_interrupted_in_a_collective_is_named():
    class Interrupt(BaseException):
        pass

    def interrupted(rank, *_):
        raise Interrupt

    with ThreadRing(3, "shared memory") as ring:
        ring.ranks[1].link.wait = lambda: interrupted(1)

        def step(rank):
            try:
                rank.allreduce(np.zeros(1000), Announcement(STEP))
            except Interrupt:
                return "interrupted"

        outcomes = ring.each(step)
        assert outcomes[1] == "interrupted"
        for outcome in outcomes[::2]:
            assert isinstance(outcome, PeerLost)
            assert (outcome.rank, outcome.reason) == (1, "interrupted in a collective")


@pytest.mark.parametrize("elements", [10, 20_000_000])
@pytest.mark.parametrize("delay", [0.0, 0.013, 0.04])
def test_no_memory_outlives_killed_ranks(elements, delay):
    names = shared_files()
    with ProcessRing(3, elements, "shared memory") as ring:
        ring.train()
        files = mapped_memory(ring.processes[0].pid)
        assert len(files) == 3  # the control: this is how it shows
        time.sleep(delay)
        ring.kill(0)
    assert shared_files() == names
    assert [pid for pid in os.listdir("/proc") if pid.isdigit() and mapped_memory(pid) & files] == []


@pytest.mark.skipif(
    subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True).returncode != 0,
    reason="this system lets nobody make a space of process numbers",
)
def test_ranks_in_separate_containers_of_one_host_reduce_over_tcp():
    inside = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    with ProcessRing(2, 1000, None, prefixes=[[], inside]) as ring:
        assert ring.transports == ["Ring", "Ring"]
        for rank in range(2):
            ring.send(rank, steps=1)
        assert [ring.receive(rank) for rank in range(2)] == [{"steps": 1}] * 2
    with ProcessRing(2, 1000, None) as ring:  # the control: the same without
        assert ring.transports == ["SharedMemory", "SharedMemory"]
