"""Ranks for tests of collectives: threads of one process, which start fast, or processes, which can be killed."""

import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest.mock

from ddl_magics.runtime.collectives import host_barrier, rendezvous
from ddl_magics.runtime.collectives.announcement import CLOSED, STEP, Announcement
from ddl_magics.runtime.collectives.peer_listener import PeerListener
from ddl_magics.runtime.transport.credentials import Credentials
from support.certificates import certificate
from support.paths import environment

SECRET = b"of the tests".ljust(32, b".")
RUN = "run-of-the-tests"
CREDENTIALS = Credentials(RUN, SECRET)
WAIT_SECONDS = 30


def together(functions):
    """Runs each in a thread of its own. Returns what they returned, or the exceptions that they raised, in order."""
    results = [None] * len(functions)

    def run(index):
        try:
            results[index] = functions[index]()
        except Exception as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive(), "a rank hangs"
    return results


#: transport -> the host of a rank, which decides how its data travel.
HOSTS = {
    "tcp": lambda rank: f"machine-{rank}",
    "encrypted tcp": lambda rank: f"machine-{rank}",
    "tcp on one machine": lambda rank: f"machine container-{rank}",
    "shared memory": lambda rank: "one host",
    "shared memory of another processor": lambda rank: "one host",
    "encrypted hosts of two": lambda rank: f"host {rank // 2}",
    "hosts of two": lambda rank: f"host {rank // 2}",
    "two hosts in turn": lambda rank: f"host {rank % 2}",
}


def is_ordered(transport):
    """Whether the ranks may rely on memory that shows writes in the order in which they were made."""
    return host_barrier.ORDERED and transport != "shared memory of another processor"


def credentials(transport):
    """Those with which ranks connect."""
    encrypts = transport is not None and transport.startswith("encrypted")
    return Credentials(RUN, SECRET, certificate()) if encrypts else CREDENTIALS


class ThreadRing:
    """`size` connected ranks in this process: `with ThreadRing(3) as ring: ring.each(lambda rank: ...)`."""

    def __init__(self, size, transport="tcp"):
        listeners = [PeerListener("127.0.0.1", credentials(transport), rank, 0, size) for rank in range(size)]
        addresses = [listener.address for listener in listeners]
        hosts = [HOSTS[transport](rank) for rank in range(size)]
        with unittest.mock.patch.object(host_barrier, "ORDERED", is_ordered(transport)):
            self.ranks = together(
                [
                    lambda rank=rank: rendezvous.connect(listeners[rank], addresses, host=hosts[rank])
                    for rank in range(size)
                ]
            )
        for rank in self.ranks:
            if isinstance(rank, Exception):
                raise rank

    def each(self, function, ranks=None):
        """Calls `function(collective)` on all ranks, or on those given, at once. Returns what `together` does."""
        chosen = self.ranks if ranks is None else [self.ranks[rank] for rank in ranks]
        return together([lambda rank=rank: function(rank) for rank in chosen])

    def allreduce(self, buffers, step=0, residuals=None):
        """Sums the ranks' rows of `buffers`, each with its row of `residuals`. Every rank announces its number."""

        def reduce(rank):
            residual = None if residuals is None else residuals[rank.rank]
            return rank.allreduce(buffers[rank.rank], Announcement(STEP, step=step, weight=rank.rank), residual)

        return self.each(reduce)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.each(lambda rank: rank.close("the test is over"))


def rank_on(ring, channel=None, **options):
    """The rank of a run that meets the others on its collective. options: of the run's spec."""
    from ddl_magics.runtime.rank import Rank, RankConfig
    from ddl_magics.runtime.run_spec import RunSpec

    spec = RunSpec(workers=ring.size, seed=11, **options)
    rank = Rank(RankConfig(spec, CREDENTIALS, ("", 0), "none", executor_cores=1, rank=ring.rank), channel)
    rank.peers.ring = ring
    return rank


class ForkedRank:
    """A fork of a process that has imported what a rank needs, which takes longer than most of what ranks do in tests.

    It has what tests use of a `subprocess.Popen`.
    """

    def __init__(self):
        theirs, ours = os.pipe()
        self.stdin = os.fdopen(ours, "w")
        ours, answers = os.pipe()
        self.stdout = os.fdopen(ours)
        requests = _forking_process()
        socket.send_fds(requests, [b"."], [theirs, answers])
        self.pid = int(requests.recv(20))
        os.close(theirs)
        os.close(answers)

    def send_signal(self, number):
        os.kill(self.pid, number)

    def kill(self):
        with contextlib.suppress(ProcessLookupError):  # it has ended
            self.send_signal(signal.SIGKILL)

    def wait(self):
        self.stdout.read()


@functools.cache
def _forking_process():
    """The socket of ring_process.py, which ends with this process."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "support.ring_process", str(theirs.fileno())]
    subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment())
    theirs.close()
    return ours


def _start(prefix):
    command = [*prefix, sys.executable, "-m", "support.ring_process"]
    return subprocess.Popen(command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


class ProcessRing:
    """`size` ranks, each a process (ring_process.py), that do all-reduces of `elements` float32, or their two halves.

    `send(rank, steps=k)` lets a rank do k of them (None: without end); `receive(rank)` is its next line as an object.
    """

    def __init__(self, size, elements, transport="tcp", prefixes=None, halves=False):
        """transport: one of HOSTS, or None to let the ranks choose; prefixes: of the ranks' command lines.

        halves: each all-reduce is a reduce-scatter and an all-gather.
        """
        self.processes = [_start(prefix) if prefix else ForkedRank() for prefix in prefixes or [[]] * size]
        for rank in range(size):
            host = HOSTS[transport](rank) if transport else None
            ordered = is_ordered(transport)
            known = credentials(transport).to_json()
            sizes = {"size": size, "elements": elements, "halves": halves}
            self.send(rank, rank=rank, **sizes, host=host, ordered=ordered, credentials=known)
        addresses = [self.receive(rank)["address"] for rank in range(size)]
        for rank in range(size):
            self.send(rank, addresses=addresses)
        self.transports = [self.receive(rank)["connected"] for rank in range(size)]

    def send(self, to, **message):
        pipe = self.processes[to].stdin
        pipe.write(json.dumps(message) + "\n")
        pipe.flush()

    def receive(self, rank):
        return json.loads(self.processes[rank].stdout.readline())

    def train(self):
        """All ranks do all-reduces without end, and have done two."""
        for rank in range(len(self.processes)):
            self.send(rank, steps=None)
        for rank in range(len(self.processes)):
            assert self.receive(rank) == {"steps": 2}

    def kill(self, victim):
        """By SIGKILL; the others name it, within a second."""
        self.processes[victim].send_signal(signal.SIGKILL)
        killed = time.time()
        for rank in set(range(len(self.processes))) - {victim}:
            message = self.receive(rank)
            assert (message["lost"], message["reason"]) == (victim, CLOSED)
            assert message["at"] - killed < 1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()
