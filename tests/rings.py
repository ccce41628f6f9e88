"""Ranks that do collectives, for tests: as threads of one process, quick, or as processes, which can be killed."""

import json
import subprocess
import sys
import threading
import unittest.mock
from pathlib import Path

from ddl_magics.runtime import mesh, rendezvous
from ddl_magics.runtime.place import Place

SECRET = b"of the tests".ljust(32, b".")
RUN = "run-of-the-tests"
WAIT_SECONDS = 30


def together(functions):
    """Runs each in a thread of its own; what they returned, or the exceptions they raised, in order."""
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


#: transport -> the host that a rank says it is on, which decides how its data travel.
HOSTS = {
    "tcp": lambda rank: f"machine-{rank}",
    "tcp on one machine": lambda rank: f"machine container-{rank}",
    "shared memory": lambda rank: "one host",
    "shared memory of another processor": lambda rank: "one host",
    "hosts of two": lambda rank: f"host {rank // 2}",
    "two hosts in turn": lambda rank: f"host {rank % 2}",
}


def is_ordered(transport):
    """Whether the ranks may take it that memory shows what was written in the order in which it was."""
    return mesh.ORDERED and transport != "shared memory of another processor"


class ThreadRing:
    """`size` connected ranks in this process: `with ThreadRing(3) as ring: ring.each(lambda rank: ...)`."""

    def __init__(self, size, transport="tcp"):
        places = [Place("127.0.0.1", SECRET, RUN, rank, 0, size) for rank in range(size)]
        addresses = [place.address for place in places]
        hosts = [HOSTS[transport](rank) for rank in range(size)]
        with unittest.mock.patch.object(mesh, "ORDERED", is_ordered(transport)):
            self.ranks = together(
                [
                    lambda rank=rank: rendezvous.connect(places[rank], addresses, host=hosts[rank])
                    for rank in range(size)
                ]
            )
        for rank in self.ranks:
            if isinstance(rank, Exception):
                raise rank

    def each(self, function, ranks=None):
        """What `function(rank's Collective)` returns or raises on every rank, or on those given, all at once."""
        chosen = self.ranks if ranks is None else [self.ranks[rank] for rank in ranks]
        return together([lambda rank=rank: function(rank) for rank in chosen])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.each(lambda rank: rank.close("the test is over"))


class ProcessRing:
    """`size` ranks in processes of their own (tests/ring_process.py) that do all-reduces of `elements` float32.

    `say(rank, steps=k, pause=s)` lets a rank do k of them (null: for ever), `hear(rank)` is its next line as an object.
    """

    def __init__(self, size, elements, transport="tcp", prefixes=None):
        """transport: one of HOSTS, or None for what the ranks find out; prefixes: of each rank's command line."""
        script = Path(__file__).with_name("ring_process.py")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.processes = [
            subprocess.Popen([*prefix, sys.executable, script], **pipes) for prefix in prefixes or [[]] * size
        ]
        for rank in range(size):
            host = HOSTS[transport](rank) if transport else None
            ordered = is_ordered(transport)
            self.say(rank, rank=rank, size=size, elements=elements, host=host, ordered=ordered)
        addresses = [self.hear(rank)["address"] for rank in range(size)]
        for rank in range(size):
            self.say(rank, addresses=addresses)
        self.transports = [self.hear(rank)["connected"] for rank in range(size)]

    def say(self, to, **message):
        pipe = self.processes[to].stdin
        pipe.write(json.dumps(message) + "\n")
        pipe.flush()

    def hear(self, rank):
        return json.loads(self.processes[rank].stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()
