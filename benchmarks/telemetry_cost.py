"""The cost of telemetry for a training: two workers that report their steps, and the same two that do not.

    python -m benchmarks.b7 [--quick] [--pairs N] [--pause SECONDS]

The network and the workers are those of training_throughput.py, with pinned threads and batches of 64 each. With
telemetry the ranks report as in every run, the CPU and memory of both are sampled once a second, and all events are
kept as the driver keeps them: this process does the work of supervisor and driver. Without telemetry nothing is
measured, sent or sampled (telemetry_switch.py). A counter of rows in the graph is there in both cases. The cost of
polling a run from a notebook is in live.py.

A block is one epoch; a pair is two neighbouring blocks, one with telemetry, and the order changes. A block has three
samples per step: the wall time on rank 0, the CPU time of both ranks and of this process, and of that what is spent in
telemetry: in the ranks' functions that report, and in this process. The first two differ from block to block by more
than telemetry takes, whose cost is their difference. The third is counted in each block; what telemetry does to caches
is not in it. It comes by the clock, so that it is also given per second: its share of a step grows where other work
makes steps longer. CPU time is the most that can be lost where supervisor, driver and workers share all cores, as here.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ddl_magics.runtime import events
from ddl_magics.runtime.driver import event_log
from ddl_magics.runtime.executor import process_state, supervisor, telemetry

from .harness import command, report
from .harness.json_process import CHILDREN, ask, cpu_environment
from .harness.ranks import CREDENTIALS, Ranks

WORKERS, BATCH = 2, 64
STEPS, QUICK_STEPS = 100, 30
PAIRS, QUICK_PAIRS = 40, 3
GOAL_PERCENT = 0.5


class Block(NamedTuple):
    """Milliseconds of a step: wall time, CPU time of all processes together, and that of telemetry."""

    time: float
    cpu: float
    telemetry: float


class Watched:
    """Two ranks, with what a supervisor and a driver do for their telemetry. folder: for the ranks."""

    def __init__(self, folder: Path) -> None:
        self._log = event_log.EventLog(CREDENTIALS.run)
        self._sampling, self._closing = threading.Event(), threading.Event()
        cell = (CHILDREN / "cnn_keras.py").read_text()
        self._ranks = Ranks(cell, WORKERS, folder, cpu_environment(one_thread=True), on_events=self._keep)
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def block(self, steps: int, reports: bool) -> Block:
        """Train so many steps, with telemetry or without."""
        if reports:
            self._sampling.set()
        else:
            self._sampling.clear()
        used = time.process_time()
        message = {"batch": BATCH * WORKERS, "steps": steps, "telemetry": reports}
        times = ask(self._ranks.processes, message)
        here = time.process_time() - used
        cpu = here + sum(each["cpu"] for each in times)
        telemetry = here + sum(each["telemetry"] for each in times)
        return Block(*(1000 * seconds / steps for seconds in (times[0]["seconds"], cpu, telemetry)))

    def close(self) -> None:
        self._closing.set()
        self._thread.join()
        self._ranks.close()

    def _keep(self, rank: int, reported: Sequence[dict[str, Any]]) -> None:
        for event in reported:
            self._log.append(event)

    def _sample(self) -> None:
        """Sample the processes as the supervisor does."""
        pids = [process.pid for process in self._ranks.processes]
        samplers = [telemetry.ProcessSampler(pid) for pid in pids]
        gpus = telemetry.GpuSampler()
        while not self._closing.wait(supervisor.SAMPLE_SECONDS):
            for rank, sampler in enumerate(samplers if self._sampling.is_set() else ()):
                process_state.read(pids[rank])
                use = sampler.sample()
                if use is not None:
                    sample = events.make("sample", rank, cpu=round(use[0], 1), memory=use[1], gpus=gpus.sample())
                    self._keep(rank, [sample])


def measure(pairs: int, steps: int, pause: float) -> tuple[list[Block], list[Block]]:
    """The blocks with telemetry, and their neighbours without."""
    blocks: dict[bool, list[Block]] = {True: [], False: []}
    with tempfile.TemporaryDirectory() as folder:
        watched = Watched(Path(folder))
        try:
            for pair in range(-1, pairs):  # the first pair warms up
                for reports in (True, False) if pair % 2 else (False, True):
                    block = watched.block(steps, reports)
                    time.sleep(pause)
                    if pair >= 0:
                        blocks[reports].append(block)
        finally:
            watched.close()
    return blocks[True], blocks[False]


def costs(one: Sequence[Block], other: Sequence[Block], field: str) -> list[float]:
    """Percent by which a field of each block is larger than its neighbour's."""
    return [100 * (getattr(a, field) / getattr(b, field) - 1) for a, b in zip(one, other, strict=True)]


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = command.parser("telemetry_cost", __doc__, "a few short blocks")
    parser.add_argument("--pairs", type=int, default=None, help=f"of blocks; {PAIRS} by default")
    command.add_pause(parser)
    options = parser.parse_args(arguments)
    before = report.machine()
    pairs, steps = (QUICK_PAIRS, QUICK_STEPS) if options.quick else (PAIRS, STEPS)
    on, off = measure(options.pairs or pairs, steps, options.pause)
    samples = {
        f"{measured}, {how} telemetry": [getattr(block, field) for block in blocks]
        for field, measured in (("time", "step"), ("cpu", "CPU of a step, all processes"))
        for how, blocks in (("with", on), ("without", off))
    }
    print(report.spread(samples, "ms"), "\n")
    shares = {field: costs(on, off, field) for field in ("time", "cpu")}
    shares["telemetry"] = [100 * block.telemetry / block.cpu for block in on]
    names = {
        "time": "longer steps with telemetry, by pair",
        "cpu": "more CPU time with telemetry, by pair",
        "telemetry": "CPU time spent in telemetry, of all",
    }
    print(report.spread({names[field]: values for field, values in shares.items()}, "%"), "\n")
    a_second = {"CPU time spent in telemetry": [1000 * block.telemetry / block.time for block in on]}
    print(report.spread(a_second, "ms per second of training"))
    goals = []
    for field, values in shares.items():
        low, high = report.median_interval(values)
        print(f"{names[field]}: 95 % interval of the median {low:.2f} to {high:.2f} %")
        # Not the median itself: noise could bring that below the goal by chance.
        goals.append(report.at_most(f"{names[field]}: upper end of the 95 % interval, %", high, GOAL_PERCENT))
    report.finish(samples, goals, machine_before=before)


if __name__ == "__main__":
    main()
