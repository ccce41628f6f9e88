"""The report of a benchmark: tables, goals, and as its last line JSON with the machine and the raw samples."""

from __future__ import annotations

import json
import os
import platform
import random
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, TypeVar

RESAMPLES = 2000

Samples = Sequence[float]
Item = TypeVar("Item")


@dataclass(frozen=True)
class Goal:
    """A goal and whether it is met. The JSON has it as [name, measured, goal, met]."""

    name: str
    measured: float
    goal: float
    met: bool


def at_most(name: str, measured: float, goal: float) -> Goal:
    """A goal for a measure that should be small."""
    return Goal(name, measured, goal, measured <= goal)


def at_least(name: str, measured: float, goal: float) -> Goal:
    """A goal for a measure that should be large."""
    return Goal(name, measured, goal, measured >= goal)


def quantile(samples: Samples, share: float) -> float:
    """The quantile at `share` (0 to 1), linear between two samples as numpy's default."""
    ordered = sorted(samples)
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def interval(
    samples: Sequence[Item], statistic: Callable[[Sequence[Item]], float], seed: int = 0
) -> tuple[float, float]:
    """The 95 % interval of a statistic by percentile bootstrap.

    The samples must be independent, such as ratios of paired blocks; for consecutive steps it would be too narrow.
    """
    draw = random.Random(seed)
    drawn = [statistic(draw.choices(samples, k=len(samples))) for _ in range(RESAMPLES)]
    return quantile(drawn, 0.025), quantile(drawn, 0.975)


def median_interval(samples: Samples) -> tuple[float, float]:
    """The 95 % interval of the median."""
    return interval(samples, statistics.median)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in plain text: the first column to the left, the others to the right, floats with three digits."""
    lines = [[str(cell) for cell in header], *([_text(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join("  ".join(_aligned(line, widths)) for line in lines)


def _aligned(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    cells = [cell.rjust(width) for cell, width in zip(line, widths, strict=True)]
    return [line[0].ljust(widths[0]), *cells[1:]]


def spread(samples: Mapping[str, Samples], unit: str) -> str:
    """A table with a row for each variant: number of samples, median, 5 % and 95 % quantile, largest."""
    rows = [
        (name, len(values), *(quantile(values, share) for share in (0.5, 0.05, 0.95, 1.0)))
        for name, values in samples.items()
    ]
    return table(("", "samples", f"median {unit}", "p5", "p95", "largest"), rows)


def machine() -> str:
    """Processor, cores, memory, system, Python and the present load, in one line."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"{_processor()}, {os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}; load {load} (1, 5, 15 minutes)"
    )


def finish(samples: Mapping[str, Samples], goals: Sequence[Goal], **more: Any) -> None:
    """Print the goals and the line of JSON; `more` are further members of its object."""
    for goal in goals:
        print(f"{'met' if goal.met else 'NOT MET'}: {goal.name}: {_text(goal.measured)}, goal {_text(goal.goal)}")
    record = {"machine": machine(), "goals": [astuple(goal) for goal in goals], **more, "samples": dict(samples)}
    print(json.dumps(record))


def _text(cell: object) -> str:
    if not isinstance(cell, float):
        return str(cell)
    return f"{cell:.3g}" if abs(cell) < 1000 else f"{cell:.0f}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
