"""What polling a run over Livy costs its training: one run, whose polls are held back in every other block of time."""

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
from ddl_magics.parsing import parse
from ddl_magics.session import Session

from . import training

BLOCK_SECONDS = 3.0
#: At the beginning of each block, left out of its steps: what the one before has left undone.
SETTLE_SECONDS = 0.5
#: For what the blocks begin late, after the first step has come here, and take longer, on a busy machine.
SLACK_SECONDS = 30.0
#: Until a training that should have ended is given up.
RUN_SECONDS = 180.0
#: In the command lines of those who answer a poll: Livy's server, the session's driver, its Python.
ANSWERING = ("LivyServer", "RSCDriverBootstrapper", "livy-child")


class Block(NamedTuple):
    """`step` is the mean seconds of a step; `cpu` the seconds of CPU time a second of those who answer polls."""

    step: float
    cpu: float


class Cost(NamedTuple):
    """Blocks that were polled, and their neighbours that were not, in pairs."""

    polled: list[Block]
    alone: list[Block]


class HeldCluster(LivyCluster):
    """A Livy session whose polls can be held back."""

    def __init__(self, session: livy_session.LivySession) -> None:
        super().__init__(session)
        self._free = threading.Event()
        self._free.set()

    def hold(self, held: bool) -> None:
        """Let polls wait from now on, or no more."""
        if held:
            self._free.clear()
        else:
            self._free.set()

    def poll(self, run: str, after: int) -> Polled | Unreachable:
        self._free.wait()
        return super().poll(run, after)


def cost(livy: rig.Livy, pairs: int, warm_seconds: float) -> Cost:
    """Train on a new session, for `warm_seconds` and then so many pairs of blocks in changing order."""
    session = livy_session.create(LivyHttp(Connection(livy.url)), {}, say=lambda line: None)
    cluster = HeldCluster(session)
    seconds = warm_seconds + 2 * pairs * BLOCK_SECONDS + SLACK_SECONDS
    magic, _, source = training.cell("cost", seconds).partition("\n")
    spec = dataclasses.replace(parse(magic.removeprefix("%%distributed ")), cell=source)
    run = Session(cluster).submit(spec, {})
    while not any(event["kind"] == "steps" for event in run.events):
        if run.settled(0.1):
            raise RuntimeError(f"the training is {run.state}: {run.logs()[-1000:]}")
    time.sleep(warm_seconds)
    answering = [pid for pid, line in livy.processes().items() if any(name in line for name in ANSWERING)]
    blocks = []
    for pair in range(pairs):
        for polled in (True, False) if pair % 2 else (False, True):
            cluster.hold(not polled)
            begin, used = time.time(), _cpu_seconds(answering)
            time.sleep(BLOCK_SECONDS)
            end = time.time()
            blocks.append((polled, begin, end, (_cpu_seconds(answering) - used) / (end - begin)))
    cluster.hold(False)
    ends = run.wait(RUN_SECONDS).result.tolist()
    session.delete()
    measured = [
        (polled, Block(training.step_seconds(ends, begin + SETTLE_SECONDS, end), cpu))
        for polled, begin, end, cpu in blocks
    ]
    return Cost(*([block for polled, block in measured if polled is kind] for kind in (True, False)))


def _cpu_seconds(pids: list[int]) -> float:
    """User's and system's time that the processes have used so far."""
    ticks = 0
    for pid in pids:
        # The name in parentheses may hold spaces; after it, utime and stime are the 12th and 13th field.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
