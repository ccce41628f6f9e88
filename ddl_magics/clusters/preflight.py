"""One look at the cell and at this machine before anything starts: what would fail later is refused now, in one line.

It takes less than 0.3 s. Sizes are estimates: nothing is pickled.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ddl_magics.clusters import machine
from ddl_magics.runtime import strategies
from ddl_magics.runtime.cell import names
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.wording import counted, in_bytes

#: The size of the cell's variables from which a line says it, and above which the run is refused.
NOTICE_BYTES, MOST_BYTES = 50_000_000, 2_000_000_000

#: So many workers a core are accepted: more would not start within the time that a run waits for them.
WORKERS_PER_CORE = 8

#: Less free disk than this is said.
LITTLE_DISK_BYTES = 1_000_000_000

#: Elements of a variable that are measured, and containers within each other; the others are taken to be as large.
_MEASURED, _DEPTH = 1000, 50


@dataclass(frozen=True)
class Captured:
    """Variables of the notebook that travel to every worker: name -> estimated bytes."""

    sizes: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.sizes.values())

    @property
    def largest(self) -> str:
        """The largest of them with its size: "x (1.2 GB)"."""
        name = max(self.sizes, key=lambda each: self.sizes[each])
        return f"{name} ({in_bytes(self.sizes[name])})"


def captured(spec: RunSpec, namespace: Mapping[str, Any]) -> Captured:
    """What travels with the cell. Raises `names.NameProblem` for a name that is not defined or cannot travel."""
    given = strategies.names_for_cell(spec.strategy, spec.data, spec.validation)
    found = names.captured(spec.cell, namespace, given, spec.transform)
    return Captured({name: estimate(v) for name, v in found.items() if not isinstance(v, types.ModuleType)})


def problem(spec: RunSpec, namespace: Mapping[str, Any]) -> str | None:
    """Why a run on this machine's Spark would fail, in one line, or None."""
    try:
        sent = captured(spec, namespace)
    except names.NameProblem as error:
        return str(error) if str(error).endswith("?") else f"{error}."
    if sent.total > MOST_BYTES:
        return (
            f"the cell uses {in_bytes(sent.total)} of variables, the largest is {sent.largest}, and at most "
            f"{in_bytes(MOST_BYTES)} are copied to the workers: pass them as a DataFrame with --data, or read them "
            "from files inside the cell."
        )
    return None


def too_many_workers(spec: RunSpec) -> str | None:
    """Why this machine cannot hold the workers of a Spark that would be created for them, or None."""
    if not spec.conf.get("spark.master", "local").startswith("local"):
        return None
    cores, memory = machine.cores(), machine.memory()
    by_cores = WORKERS_PER_CORE * cores
    by_memory = by_cores if memory is None else max(1, memory // machine.WORKER_BYTES)
    most = min(by_cores, by_memory)
    if spec.workers <= most:
        return None
    has = counted(cores, "core") + ("" if memory is None else f" and {in_bytes(memory)} of memory")
    return (
        f"--workers {spec.workers} is too much for this machine, which has {has}: a worker takes about "
        f"{in_bytes(machine.WORKER_BYTES)}, and {WORKERS_PER_CORE} share a core at most; use --workers {most} or "
        "fewer, or a cluster with %ddl use livy URL."
    )


def notices(spec: RunSpec, namespace: Mapping[str, Any]) -> Iterator[str]:
    """What the user should know of a run that is accepted, a line each."""
    sent = captured(spec, namespace)
    if sent.total >= NOTICE_BYTES:
        yield (
            f"{in_bytes(sent.total)} of variables are copied to each of {counted(spec.workers, 'worker')}, the largest "
            f"is {sent.largest}; a DataFrame with --data is divided among them"
        )
    memory, needed = machine.memory(), needed_memory(spec, sent)
    if memory is not None and needed > memory:
        yield (
            f"the workers need about {in_bytes(needed)} of memory, and this machine has {in_bytes(memory)}: use fewer "
            "with --workers, or less data"
        )
    disk = machine.free_disk()
    if disk < LITTLE_DISK_BYTES:
        yield f"only {in_bytes(disk)} of disk are free for temporary files: TMPDIR chooses another folder"


def needed_memory(spec: RunSpec, sent: Captured) -> int:
    """Estimated bytes of the workers: TensorFlow and the cell's variables in each; without its model."""
    return spec.workers * (machine.WORKER_BYTES + sent.total)


def most_at_once(spec: RunSpec, namespace: Mapping[str, Any]) -> int | None:
    """How many such runs this machine's memory holds at once, at least 1; None where that is not known."""
    memory = machine.memory()
    try:
        needed = needed_memory(spec, captured(spec, namespace))
    except names.NameProblem:  # the run is refused with what is wrong
        return None
    return None if memory is None else max(1, memory // needed)


def estimate(value: Any) -> int:
    """About how many bytes a value takes when it travels; 0 where that cannot be told without pickling."""
    return _estimate(value, (), _MEASURED)


def _estimate(value: Any, within: tuple[int, ...], most: int) -> int:
    """within: the containers that the value is in, by id. most: parts of it that are measured, at any depth."""
    size = _array_bytes(value)
    if size is not None:
        return size
    if isinstance(value, (str, bytes, bytearray)):
        return len(value)
    if isinstance(value, (Mapping, list, tuple, set, frozenset)) and id(value) not in within and len(within) < _DEPTH:
        parts = value.values() if isinstance(value, Mapping) else value
        return _of_many(len(value), parts, (*within, id(value)), most)
    return sys.getsizeof(value, 0)


def _array_bytes(value: Any) -> int | None:
    if type(value).__module__.partition(".")[0] == "pandas":
        usage = getattr(value, "memory_usage", None)
        if usage is None:
            return None
        used = usage(index=True) if type(value).__name__ in ("DataFrame", "Series") else usage()
        return int(used.sum() if hasattr(used, "sum") else used)
    size = getattr(value, "nbytes", None)
    return int(size) if isinstance(size, int) else None


def _of_many(number: int, parts: Iterable[Any], within: tuple[int, ...], most: int) -> int:
    """The bytes of so many parts, as the first `most` of them tell."""
    measured = [_estimate(part, within, max(1, most // number)) for part in islice(parts, most)]
    return sum(measured) * number // max(len(measured), 1)
