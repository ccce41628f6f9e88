"""Milliseconds of a step and megabytes of a worker, with an update that is sharded over the workers and without.

    python -m benchmarks.sharded_update [--quick] [--rounds N]

Dense layers of 4 MB each train with Adam, whose state is twice the weights; a global batch has 64 rows. Workers are
processes with one thread for operations, on this machine, which exchange through shared memory. Megabytes are those of
the process that it does not share with others, after the last step, less those before the model was made: weights,
state, gradients, buffers and rows.
"""

from __future__ import annotations

import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import median

from .harness import command, report
from .harness.json_process import cpu_environment
from .harness.ranks import Ranks
from .harness.rounds import rotated

LAYERS, QUICK_LAYERS = (1, 8, 32), (1,)
WORKERS, QUICK_WORKERS = (1, 2, 4), (2,)
ROUNDS, STEPS, BATCH = 5, 30, 64
LAYER_MB = 4
CELL = Path(__file__).parent / "child_processes" / "sharded_cell.py"


def train(layers: int, workers: int, shards: bool) -> tuple[float, float]:
    """(median milliseconds of a step, megabytes): of the slowest and of the largest worker."""
    text = f"LAYERS, BATCH, STEPS = {layers}, {BATCH}, {STEPS}\n{CELL.read_text()}"
    with tempfile.TemporaryDirectory(prefix="ddl-sharded-") as folder:
        environment = cpu_environment(one_thread=True)
        ranks = Ranks(text, workers, Path(folder), environment, shard_optimizer="yes" if shards else "no")
        try:
            found = [next(iter(process.answers())) for process in ranks.processes]
        finally:
            ranks.close()
    return max(median(milliseconds) for milliseconds, _ in found), max(megabytes for _, megabytes in found)


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = command.parser("sharded_update", __doc__, "one round of a small model")
    command.add_rounds(parser, ROUNDS)
    options = parser.parse_args(arguments)
    before = report.machine()
    print(before)
    variants = {
        f"{LAYER_MB * layers} MB, {workers} workers{', sharded' * shards}": (layers, workers, shards)
        for layers in (QUICK_LAYERS if options.quick else LAYERS)
        for workers in (QUICK_WORKERS if options.quick else WORKERS)
        for shards in ((False,) if workers == 1 else (False, True))
    }
    times, sizes = defaultdict(list), defaultdict(list)
    for number in range(command.rounds(options, ROUNDS, 1)):
        for name in rotated(variants, number):
            milliseconds, megabytes = train(*variants[name])
            times[name].append(milliseconds)
            sizes[name].append(megabytes)
            print(f"{name}: {milliseconds:.1f} ms, {megabytes:.0f} MB", file=sys.stderr)
    print("\nMilliseconds of a step\n" + report.spread(times, "ms"))
    print("\nMegabytes of a worker\n" + report.spread(sizes, "MB") + "\n")
    for name in variants:
        if name.endswith(", sharded"):
            whole = name[: -len(", sharded")]
            faster = median(ours / sharded for ours, sharded in zip(times[whole], times[name], strict=True))
            print(f"{name}: {faster:.2f} times as fast, {median(sizes[name]) / median(sizes[whole]):.2f} of the memory")
    report.finish({**times, **{f"{name}, MB": values for name, values in sizes.items()}}, [], machine_before=before)


if __name__ == "__main__":
    main()
