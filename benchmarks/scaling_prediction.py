"""How near `%ddl scale` predicts a step on 4 and 8 hosts, from measurements on 1 and 2.

    sudo python -m benchmarks.scaling_prediction [--quick] [--pause SECONDS]

The hosts are those of multi_host_step.py: network namespaces of this machine with links of 1 Gbit/s, whose ranks sum
gradients as a run does between hosts, and compute by sleeping. The global batch is the same for all numbers of hosts:
a step computes for 10 ms, and for 80 ms divided by the number of hosts, a third of it in the forward pass. Each block
is a sample of a step's compute, exchange and waiting on rank 0. Those of 1 and 2 hosts are the measurements of a
report, whose predictions for 4 and 8 are compared with the median of what was measured there.

The goal is an error of 10 % at most. How often the bounds of a prediction hold the measured value is told as well.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from ddl_magics.scaling import ScalingReport
from ddl_magics.scaling.measurement import MeasuredRun, Step
from ddl_magics.scaling.prediction import Prediction

from .harness import command, report
from .harness.network_hosts import Hosts, obstacle
from .multi_host_step import LINK, Team, gradient_bytes

MEASURED, PREDICTED = (1, 2), (4, 8)
MEGABYTES = (0.4, 2.8, 10.0, 25.0)
FIXED_SECONDS, DIVIDED_SECONDS, FORWARD = 0.010, 0.080, 1 / 3
#: Rows of a global batch, and of an epoch: of one step, which is all that is simulated.
BATCH = 800
GOAL = 0.10
BLOCK_SECONDS, QUICK_BLOCK_SECONDS = 1.0, 0.3
ROUNDS, QUICK_ROUNDS = 8, 2

Samples = Mapping[tuple[int, float], Sequence[Step]]


def measure(rounds: int, seconds: float, pause: float) -> dict[tuple[int, float], list[Step]]:
    """(hosts, megabytes) -> a mean step for each round."""
    found: dict[tuple[int, float], list[Step]] = defaultdict(list)
    for hosts in (*MEASURED, *PREDICTED):
        computing = FIXED_SECONDS + DIVIDED_SECONDS / hosts
        repeat = max(2, round(seconds / (2 * computing)))
        if hosts == 1:
            for megabytes in MEGABYTES:
                found[1, megabytes] = [_alone(computing, repeat) for _ in range(rounds)]
            continue
        with Hosts(hosts + 1, LINK) as namespaces:
            team = Team(namespaces, hosts, None)
            for number in range(-1, rounds):  # the first round warms up
                for megabytes in MEGABYTES:
                    forward = FORWARD * computing
                    spent = team.step("overlap", gradient_bytes(megabytes), repeat, forward, computing - forward)
                    time.sleep(pause)
                    if number >= 0:
                        found[hosts, megabytes].append(_step(hosts, *spent))
            team.close()
    return found


def _alone(seconds: float, repeat: int) -> Step:
    """A step of one host, which exchanges nothing."""
    start = time.perf_counter()
    for _ in range(repeat):
        time.sleep(seconds)
    return Step(BATCH, (time.perf_counter() - start) / repeat, 0.0, 0.0, 0.0)


def _step(hosts: int, seconds: float, waited: float, moved: float, hidden: float) -> Step:
    return Step(BATCH / hosts, seconds - waited, moved, waited - moved, 0.0, hidden)


def predictions(samples: Samples, megabytes: float) -> tuple[Prediction, ...]:
    """For `PREDICTED` hosts, from the samples of `MEASURED` ones."""
    made = ScalingReport(f"{megabytes} MB")
    for hosts in MEASURED:
        steps = tuple(samples[hosts, megabytes])
        parameters = gradient_bytes(megabytes) // 4
        made.runs.append(
            MeasuredRun("", "allreduce", hosts, 0, 0.0, BATCH, 0.0, steps, parameters=parameters, hosts=hosts)
        )
    return made.predict(PREDICTED).rows


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = command.parser(Path(__file__).stem, __doc__, "few rounds of short blocks")
    command.add_pause(parser)
    options = parser.parse_args(arguments)
    if problem := obstacle():
        raise SystemExit(f"scaling_prediction: {problem}")
    rounds, seconds = (QUICK_ROUNDS, QUICK_BLOCK_SECONDS) if options.quick else (ROUNDS, BLOCK_SECONDS)
    samples = measure(rounds, seconds, options.pause)
    rows, goals, held = [], [], 0
    for megabytes in MEGABYTES:
        for prediction in predictions(samples, megabytes):
            taken = median(step.seconds for step in samples[prediction.workers, megabytes])
            at = prediction.seconds
            error, name = at.value / taken - 1, f"{prediction.workers} hosts, {megabytes} MB"
            held += at.low <= taken <= at.high
            rows.append((name, *(1000 * each for each in (taken, at.value, at.low, at.high)), f"{error:+.1%}"))
            goals.append(report.at_most(f"{name}: error of the prediction", abs(error), GOAL))
    print(report.table(("", "measured, ms", "predicted", "low", "high", "error"), rows))
    print(f"the bounds hold {held} of {len(rows)} measured values")
    raw = {f"{hosts} hosts, {size} MB": [step.seconds for step in steps] for (hosts, size), steps in samples.items()}
    report.finish(raw, goals)


if __name__ == "__main__":
    main()
