"""What telemetry costs a training: two workers that report their steps, and the same two that do not.

    python -m benchmarks.b7 [--quick] [--pause SECONDS]

The network, the workers and their pinned threads are those of b1.py, with batches of 64 each. With telemetry the ranks
report as in every run, CPU and memory of both are sampled once a second, and what comes of it is kept as the driver
keeps it: this process is supervisor and driver. Without, nothing is measured, sent or sampled (silence.py). Left out on
both sides: a counter of rows in the graph, which is always there. Not here: what is polled by a notebook (live.py).

A block is an epoch of some steps; a pair is two neighbouring blocks, one with telemetry, in changing order. Two samples
come of a block, each by step: the time that passes on rank 0, and the CPU time of both ranks and of this process. The
time is what matters, and says nothing to 1 % where the machine has other work; the CPU time does not depend on that,
and is the most that can be lost where supervisor, driver and workers share all cores, as here.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

from ddl_magics.runtime import eventlog, events, supervisor, telemetry

from . import ranks, report

HERE = Path(__file__).resolve().parent
WORKERS, BATCH = 2, 64
STEPS, QUICK_STEPS = 100, 30
PAIRS, QUICK_PAIRS = 40, 3
GOAL_PERCENT = 1.0
_THREADS = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


class Block(NamedTuple):
    """Milliseconds of a step: of time, and of CPU time of all processes together."""

    time: float
    cpu: float


class Watched:
    """Two ranks, and what a supervisor and a driver do for their telemetry."""

    def __init__(self, folder: Path) -> None:
        self._log = eventlog.EventLog(ranks.RUN)
        self._sampling, self._over = threading.Event(), threading.Event()
        environment = {**os.environ, **dict.fromkeys(_THREADS, "1")}
        environment.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
        cell = (HERE / "silence.py").read_text() + (HERE / "cnn_keras.py").read_text()
        self._ranks = ranks.Ranks(cell, WORKERS, folder, environment, on_events=self._keep)
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def block(self, steps: int, reports: bool) -> Block:
        """Train so many steps, with telemetry or without."""
        if reports:
            self._sampling.set()
        else:
            self._sampling.clear()
        used = time.process_time()
        line = json.dumps({"batch": BATCH * WORKERS, "steps": steps, "telemetry": reports})
        for process in self._ranks.processes:
            process.stdin.write(line + "\n")
            process.stdin.flush()
        answers = [process.stdout.readline() for process in self._ranks.processes]
        if not all(answers):
            raise SystemExit("b7: a rank ended; what it said is above")
        answers = [json.loads(answer) for answer in answers]
        cpu = time.process_time() - used + sum(answer["cpu"] for answer in answers)
        return Block(1000 * answers[0]["seconds"] / steps, 1000 * cpu / steps)

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._ranks.close()

    def _keep(self, told: list[dict]) -> None:
        for event in told:
            self._log.append(event)

    def _sample(self) -> None:
        """As the supervisor does."""
        samplers = [telemetry.ProcessSampler(process.pid) for process in self._ranks.processes]
        gpus = telemetry.GpuSampler()
        while not self._over.wait(supervisor.SAMPLE_SECONDS):
            for rank, sampler in enumerate(samplers if self._sampling.is_set() else ()):
                use = sampler.sample()
                if use is not None:
                    sample = events.make("sample", rank, cpu=round(use[0], 1), memory=use[1], gpus=gpus.sample())
                    self._keep([sample])


def measure(pairs: int, steps: int, pause: float) -> tuple[list[Block], list[Block]]:
    """(blocks with telemetry, their neighbours without)"""
    blocks: dict[bool, list[Block]] = {True: [], False: []}
    with tempfile.TemporaryDirectory() as folder:
        watched = Watched(Path(folder))
        try:
            for pair in range(-1, pairs):  # the first warms up
                for reports in (True, False) if pair % 2 else (False, True):
                    block = watched.block(steps, reports)
                    time.sleep(pause)
                    if pair >= 0:
                        blocks[reports].append(block)
        finally:
            watched.close()
    return blocks[True], blocks[False]


def costs(one: list[Block], other: list[Block], field: str) -> list[float]:
    """Percent by which blocks are longer than their neighbours."""
    return [100 * (getattr(a, field) / getattr(b, field) - 1) for a, b in zip(one, other, strict=True)]


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.b7", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few short blocks, to see that it works")
    parser.add_argument("--pairs", type=int, default=None, help=f"of blocks; {PAIRS} by default")
    parser.add_argument("--pause", type=float, default=0.0, metavar="SECONDS", help="after each block")
    options = parser.parse_args(arguments)
    before = report.machine()
    pairs, steps = (QUICK_PAIRS, QUICK_STEPS) if options.quick else (PAIRS, STEPS)
    on, off = measure(options.pairs or pairs, steps, options.pause)
    samples = {
        f"{what}, {how} telemetry": [getattr(block, field) for block in blocks]
        for field, what in (("time", "step"), ("cpu", "CPU of a step, all processes"))
        for how, blocks in (("with", on), ("without", off))
    }
    print(report.spread(samples, "ms"), "\n")
    shares = {field: costs(on, off, field) for field in Block._fields}
    names = {"time": "longer steps with telemetry, by pair", "cpu": "more CPU time with telemetry, by pair"}
    print(report.spread({names[field]: values for field, values in shares.items()}, "%"))
    goals = []
    for field, values in shares.items():
        low, high = report.interval(values)
        print(f"{names[field]}: 95 % interval of the median {low:.2f} to {high:.2f} %")
        # Not the median itself: noise could bring that below the goal by chance.
        goals.append(report.at_most(f"{names[field]}: upper end of the 95 % interval, %", high, GOAL_PERCENT))
    report.finish(samples, goals, machine_before=before)


if __name__ == "__main__":
    main()
