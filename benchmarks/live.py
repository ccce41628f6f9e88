"""How old a point on the screen is over Livy, what polling weighs on the network, and what it costs the training.

    python -m benchmarks.live [--quick]

Everything is real and on this machine: Apache Livy 0.7.1 with two executors of one core, 2 workers that keep both busy,
a kernel without TensorFlow and Spark, JupyterLab, Chromium. So all have one clock, and all compete for the cores.

**Age**: from the end of each training step in the worker (a callback of the cell notes it) to the end of the frame in
which Chromium has drawn a chart of the loss that reaches this step. This holds all of the way: the worker gathers steps
for 250 ms, its event goes to the driver, waits for the kernel's next poll, comes through Livy, is stored, sent to the
page and drawn. "newest" is the same from the event's own time, and for the newest event of each poll only: it leaves
out what an event waits for the poll, and is the least that a point can have. Not measured: the screen itself, and a
network between notebook and Livy, whose round trip comes on top at least twice: submit the job, ask for its answer.

**Bytes**: a relay between kernel and Livy counts all bytes of TCP's payload while the training runs.

**Cost**: one training with the same follower, whose polls are held back in every other block of time; the step times
are the worker's own. A pair is two neighbouring blocks, in changing order. No browser is there; the kernel's side of
the polling and Livy itself run on the same cores as the training, which on a cluster they would not. Two workers, Spark
and Livy on two cores make step times too noisy for 1 %, so the CPU time of those who answer (Livy's server, the
session's driver and its Python) is measured too: what it grows by is what the training can lose where they share its
cores.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from livy import rig
from livy.faults import Faults, Status

from . import polling, report, screen, training
from .relay import Relay

GOAL_AGE_SECONDS = 1.5
GOAL_COST_PERCENT = 1.0

AGE_SECONDS, QUICK_AGE_SECONDS = 90.0, 20.0
PAIRS, QUICK_PAIRS = 48, 6
#: At the beginning of a training, left out: traces and warm caches.
WARM_SECONDS = 8.0


class Age(NamedTuple):
    """Seconds from the end of each step, and from the event of each newest point, until it was drawn; and the traffic.

    `per_minute` is of requests, KiB sent and KiB received by the kernel.
    """

    steps: list[float]
    newest: list[float]
    per_minute: tuple[float, float, float]


def age(notebook: screen.Notebook, url: str, seconds: float, by: str) -> Age:
    """One run in the browser, which must be polled `by` submit-job or by statements."""
    seconds += WARM_SECONDS
    with Relay(url) as relay:
        seen = notebook.watch(relay.url, training.cell("live", seconds), seconds)
    begin, end = seen.ended[0] + WARM_SECONDS, seen.ended[-1]
    drawn = [(steps, at) for steps, at in seen.drawn if begin <= at <= end]
    newest = [
        (event["epoch"] * training.STEPS + event["step"] + event["count"], event["time"])
        for event in seen.events
        if event["kind"] == "steps" and event["rank"] == 0
    ]
    ends = list(enumerate(seen.ended, start=1))
    passed = relay.between(begin, end)
    requests = [line for block in passed for line in block.requests]
    if {line.rpartition("/")[2] for line in requests if line.startswith("POST")} != {by}:
        raise RuntimeError(f"the run was not polled by {by} alone: {sorted(set(requests))[:10]}")
    amounts = (len(requests), sum(block.up for block in passed) / 1024, sum(block.down for block in passed) / 1024)
    return Age(screen.ages(ends, drawn), screen.ages(newest, drawn), tuple(60 * n / (end - begin) for n in amounts))


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.live", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few blocks of each, to see that it works")
    quick = parser.parse_args(arguments).quick
    if problem := screen.missing():
        raise SystemExit(f"live: {problem}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended, as after Ctrl-C
    before = report.machine()
    seconds = QUICK_AGE_SECONDS if quick else AGE_SECONDS
    with tempfile.TemporaryDirectory(prefix="live-") as name, running_livy() as livy:
        folder = Path(name)
        os.environ["JUPYTER_DATA_DIR"] = str(folder / "data")
        with screen.notebook(folder, livy.url) as notebook:
            beside = age(notebook, livy.url, seconds, "submit-job")
            with Faults(livy.url) as faults:
                faults.plan(*[Status(404)] * 100, path="POST .*/submit-job")
                statements = age(notebook, faults.url, seconds / 2, "statements")
        cost = polling.cost(livy, QUICK_PAIRS if quick else PAIRS, WARM_SECONDS)
    tell(beside, statements, cost, before)


def tell(beside: Age, statements: Age, cost: polling.Cost, before: str) -> None:
    """Print what was measured."""
    print(f"machine: {before}\n")
    ages = {
        "age, side channel": beside.steps,
        "newest, side channel": beside.newest,
        "age, statements": statements.steps,
        "newest, statements": statements.newest,
    }
    print(report.spread(ages, "s"), "\n")
    rows = [("side channel", *beside.per_minute), ("statements", *statements.per_minute)]
    print(report.table(("polling, per minute", "requests", "KiB sent", "KiB received"), rows), "\n")
    steps = {"step with polling": _ms(cost.polled, "step"), "step without": _ms(cost.alone, "step")}
    print(report.spread(steps, "ms"), "\n")
    costs = [100 * (one.step / other.step - 1) for one, other in zip(cost.polled, cost.alone, strict=True)]
    low, high = report.interval(costs)
    print(report.spread({"cost of polling, by pair": costs}, "%"))
    print(f"95 % interval of the median: {low:.2f} to {high:.2f} %\n")
    used = {"driver's CPU with polling": _ms(cost.polled, "cpu"), "driver's CPU without": _ms(cost.alone, "cpu")}
    print(report.spread(used, "ms/s"), "\n")
    shares = [100 * (one.cpu - other.cpu) / os.cpu_count() for one, other in zip(cost.polled, cost.alone, strict=True)]
    share = report.interval(shares)
    print(report.spread({"CPU time of polling, of all cores": shares}, "%"))
    print(f"95 % interval of the median: {share[0]:.2f} to {share[1]:.2f} %\n")
    goals = [
        report.at_most(
            "p95 age of a point over the side channel, s",
            report.quantile(ages["age, side channel"], 0.95),
            GOAL_AGE_SECONDS,
        ),
        # Not the medians themselves: noise could bring those below the goal by chance.
        report.at_most(
            "CPU time of polling, upper end of the 95 % interval, % of all cores", share[1], GOAL_COST_PERCENT
        ),
        report.at_most("longer steps with polling, upper end of the 95 % interval, %", high, GOAL_COST_PERCENT),
    ]
    samples = {f"{name}, s": values for name, values in ages.items()}
    samples |= {f"{name}, ms": values for name, values in steps.items()}
    samples |= {f"{name}, ms/s": values for name, values in used.items()}
    report.finish(
        samples, goals, machine_before=before, per_minute=rows, cost_interval=[low, high], share_interval=share
    )


def _ms(blocks: list[polling.Block], field: str) -> list[float]:
    return [1000 * getattr(block, field) for block in blocks]


@contextmanager
def running_livy() -> Iterator[rig.Livy]:
    """A Livy of its own."""
    try:
        livy = rig.start()
    except rig.RigError as error:
        raise SystemExit(f"live: {error}") from None
    try:
        yield livy
    finally:
        livy.stop()


if __name__ == "__main__":
    main()
