"""The cost of polling a run over Livy for its training: one run that is only polled in every other block of time."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from pathlib import Path
from typing import NamedTuple

from livy import rig

from ddl_magics.clusters import livy_session
from ddl_magics.clusters.base import Polled, Unreachable
from ddl_magics.clusters.livy import LivyCluster
from ddl_magics.clusters.livy_http import Connection, LivyHttp
from ddl_magics.options.parsing import parse
from ddl_magics.session.session import Session

from . import watched_training

BLOCK_SECONDS = 3.0
#: The beginning of each block, left out of its steps: work that the block before has left.
SETTLE_SECONDS = 0.5
#: Added to the training: the blocks begin after its first events have come here, and take longer on a busy machine.
SLACK_SECONDS = 30.0
#: The longest wait for the end of the training.
RUN_SECONDS = 180.0
#: In the command lines of the processes that answer a poll: Livy's server, the session's driver, its Python.
ANSWERING = ("LivyServer", "RSCDriverBootstrapper", "livy-child")


class Block(NamedTuple):
    """The mean seconds of a step, and the CPU seconds per second of the processes that answer polls."""

    step: float
    cpu: float


class Cost(NamedTuple):
    """The blocks with polling, and their neighbours without."""

    polled: list[Block]
    alone: list[Block]


class HeldCluster(LivyCluster):
    """A Livy session whose polls can be held back."""

    def __init__(self, session: livy_session.LivySession) -> None:
        super().__init__(session)
        self._free = threading.Event()
        self._free.set()

    def hold(self, held: bool) -> None:
        """Have polls wait, or let them go."""
        if held:
            self._free.clear()
        else:
            self._free.set()

    def poll(self, run: str, after: int) -> Polled | Unreachable:
        self._free.wait()
        return super().poll(run, after)


def cost(livy: rig.Livy, pairs: int, warm_seconds: float) -> Cost:
    """Train on a new session, for `warm_seconds` and then so many pairs of blocks in changing order.

    RuntimeError if the training ends before its first step.
    """
    session = livy_session.create(LivyHttp(Connection(livy.url)), {}, report=lambda line: None)
    cluster = HeldCluster(session)
    seconds = warm_seconds + 2 * pairs * BLOCK_SECONDS + SLACK_SECONDS
    magic, _, source = watched_training.cell("cost", seconds).partition("\n")
    spec = dataclasses.replace(parse(magic.removeprefix("%%distributed ")), cell=source)
    run = Session(cluster).submit(spec, {})
    while not any(event["kind"] == "steps" for event in run.events):
        if run.settled(0.1):
            raise RuntimeError(f"the training is {run.state}: {run.logs()[-1000:]}")
    time.sleep(warm_seconds)
    pids = [pid for pid, line in livy.processes().items() if any(name in line for name in ANSWERING)]
    blocks = []
    for pair in range(pairs):
        for polled in (True, False) if pair % 2 else (False, True):
            cluster.hold(not polled)
            begin, used = time.time(), _cpu_seconds(pids)
            time.sleep(BLOCK_SECONDS)
            end = time.time()
            blocks.append((polled, begin, end, (_cpu_seconds(pids) - used) / (end - begin)))
    cluster.hold(False)
    ends = run.wait(RUN_SECONDS).result.tolist()
    session.delete()
    measured = [
        (polled, Block(watched_training.step_seconds(ends, begin + SETTLE_SECONDS, end), cpu))
        for polled, begin, end, cpu in blocks
    ]
    return Cost(*([block for polled, block in measured if polled is kind] for kind in (True, False)))


def _cpu_seconds(pids: list[int]) -> float:
    """The user and system time of the processes so far."""
    ticks = 0
    for pid in pids:
        # The name in parentheses may hold spaces; utime and stime are the 12th and 13th field after it.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
