"""Over Livy: the age of a point on the screen, the traffic of polling, and the cost of polling for the training.

    python -m benchmarks.live [--quick]

Everything is real and on this machine: Apache Livy 0.7.1 with two executors of one core, 2 workers that keep both busy,
a kernel without TensorFlow and Spark, JupyterLab, Chromium. So all have one clock, and all compete for the cores.

**Age**: from the end of each training step in the worker (recorded by a callback of the cell) to the end of the frame
in which Chromium has drawn a chart of the loss that reaches this step. That is the whole way: the worker gathers steps
for 250 ms, its event goes to the driver, waits for the kernel's next poll, comes through Livy, is stored, sent to the
page and drawn. "newest" begins with the event's own time, and only the newest event of each poll counts: it leaves out
the wait for the poll, and is the least age that a point can have. Not measured are the screen itself and a network
between notebook and Livy. The latter would add its round trip at least twice: to submit the job, and to get its answer.

**Bytes**: a relay between kernel and Livy counts all bytes of TCP payload while the training runs.

**Cost**: one training with the same follower, which polls only in every other block of time; the step times are the
worker's own. A pair is two neighbouring blocks, in changing order. There is no browser. The kernel's side of the
polling and Livy itself run on the same cores as the training, which on a cluster they would not. Two workers, Spark and
Livy on two cores make step times too noisy for 1 %. So the CPU time of the processes that answer polls (Livy's server,
the session's driver and its Python) is measured too: its increase is what the training can lose where they share its
cores.
"""

from __future__ import annotations

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

from .harness import command, live_screen, polling_cost, report, watched_training
from .harness.relay import Relay

GOAL_AGE_SECONDS = 1.5
GOAL_COST_PERCENT = 1.0

AGE_SECONDS, QUICK_AGE_SECONDS = 90.0, 20.0
PAIRS, QUICK_PAIRS = 48, 6
#: The beginning of a training, left out: Keras traces the model, caches fill.
WARM_SECONDS = 8.0


class Age(NamedTuple):
    """Ages in seconds, and the traffic of polling per minute.

    Attributes:
        steps: from the end of each step until it was drawn.
        newest: from the newest event of each poll until it was drawn.
        requests: HTTP requests per minute.
        sent: KiB per minute that the kernel sent.
        received: KiB per minute that the kernel received.
    """

    steps: list[float]
    newest: list[float]
    requests: float
    sent: float
    received: float


def age(notebook: live_screen.Notebook, url: str, seconds: float, by: str) -> Age:
    """Watch one run in the browser for so many seconds.

    RuntimeError if its kernel polls otherwise than `by`, which is "submit-job" (the side channel) or "statements".
    """
    seconds += WARM_SECONDS
    with Relay(url) as relay:
        seen = notebook.watch(relay.url, watched_training.cell("live", seconds), seconds)
    begin, end = seen.ended[0] + WARM_SECONDS, seen.ended[-1]
    drawn = [(steps, at) for steps, at in seen.drawn if begin <= at <= end]
    newest = [
        (event["epoch"] * watched_training.STEPS + event["step"] + event["count"], event["time"])
        for event in seen.events
        if event["kind"] == "steps" and event["rank"] == 0
    ]
    ends = list(enumerate(seen.ended, start=1))
    passed = relay.between(begin, end)
    requests = [line for block in passed for line in block.requests]
    if {line.rpartition("/")[2] for line in requests if line.startswith("POST")} != {by}:
        raise RuntimeError(f"the run was not polled by {by} alone: {sorted(set(requests))[:10]}")
    minutes = (end - begin) / 60
    return Age(
        steps=live_screen.ages(ends, drawn),
        newest=live_screen.ages(newest, drawn),
        requests=len(requests) / minutes,
        sent=sum(block.up for block in passed) / 1024 / minutes,
        received=sum(block.down for block in passed) / 1024 / minutes,
    )


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    quick = command.parser("live", __doc__, "a few blocks of each").parse_args(arguments).quick
    if problem := live_screen.missing():
        raise SystemExit(f"live: {problem}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwind and stop all servers, as after Ctrl-C
    before = report.machine()
    seconds = QUICK_AGE_SECONDS if quick else AGE_SECONDS
    with tempfile.TemporaryDirectory(prefix="live-") as name, running_livy() as livy:
        folder = Path(name)
        os.environ["JUPYTER_DATA_DIR"] = str(folder / "data")
        with live_screen.notebook(folder, livy.url) as notebook:
            side_channel = age(notebook, livy.url, seconds, "submit-job")
            with Faults(livy.url) as faults:
                faults.plan(*[Status(404)] * 100, path="POST .*/submit-job")
                statements = age(notebook, faults.url, seconds / 2, "statements")
        cost = polling_cost.cost(livy, QUICK_PAIRS if quick else PAIRS, WARM_SECONDS)
    show(side_channel, statements, cost, before)


def show(side_channel: Age, statements: Age, cost: polling_cost.Cost, before: str) -> None:
    """Print the report."""
    print(f"machine: {before}\n")
    ages = {
        "age, side channel": side_channel.steps,
        "newest, side channel": side_channel.newest,
        "age, statements": statements.steps,
        "newest, statements": statements.newest,
    }
    print(report.spread(ages, "s"), "\n")
    rows = [
        (name, each.requests, each.sent, each.received)
        for name, each in (("side channel", side_channel), ("statements", statements))
    ]
    print(report.table(("polling, per minute", "requests", "KiB sent", "KiB received"), rows), "\n")
    steps = {"step with polling": _ms(cost.polled, "step"), "step without": _ms(cost.alone, "step")}
    print(report.spread(steps, "ms"), "\n")
    costs = [100 * (one.step / other.step - 1) for one, other in zip(cost.polled, cost.alone, strict=True)]
    low, high = report.median_interval(costs)
    print(report.spread({"cost of polling, by pair": costs}, "%"))
    print(f"95 % interval of the median: {low:.2f} to {high:.2f} %\n")
    used = {"driver's CPU with polling": _ms(cost.polled, "cpu"), "driver's CPU without": _ms(cost.alone, "cpu")}
    print(report.spread(used, "ms/s"), "\n")
    cores = os.cpu_count() or 1
    shares = [100 * (one.cpu - other.cpu) / cores for one, other in zip(cost.polled, cost.alone, strict=True)]
    share = report.median_interval(shares)
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


def _ms(blocks: list[polling_cost.Block], field: str) -> list[float]:
    return [1000 * getattr(block, field) for block in blocks]


@contextmanager
def running_livy() -> Iterator[rig.Livy]:
    """A Livy of this benchmark alone. SystemExit if it cannot be started."""
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
