"""Checks of the cell and this machine before anything starts: a run that would fail later is refused in one line.

They take less than 0.3 s. Sizes are estimates: nothing is pickled.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ddl_magics.clusters import machine, tensor_bytes
from ddl_magics.runtime import strategies
from ddl_magics.runtime.cell import names, process_settings
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.wording import counted, in_bytes

#: The size of the cell's variables that gives a notice, and the size above which the run is refused.
NOTICE_BYTES, MOST_BYTES = 50_000_000, 2_000_000_000

#: Accepted workers per core: more fill the machine for minutes before their first step.
WORKERS_PER_CORE = 4

#: Less free disk than this gives a notice.
LITTLE_DISK_BYTES = 1_000_000_000

#: Measured elements of a variable, and nested containers; the remaining elements count as equally large.
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
        name = max(self.sizes, key=lambda variable: self.sizes[variable])
        return f"{name} ({in_bytes(self.sizes[name])})"


def captured(spec: RunSpec, namespace: Mapping[str, Any]) -> Captured:
    """The variables sent with the cell. Raises `names.NameProblem` for a name that is undefined or cannot be sent."""
    predefined = strategies.names_for_cell(spec.strategy, spec.data, spec.validation)
    values = names.captured(spec.cell, namespace, predefined, spec.transform)
    return Captured({name: estimate(v) for name, v in values.items() if not isinstance(v, types.ModuleType)})


def problem(spec: RunSpec, namespace: Mapping[str, Any]) -> str | None:
    """Why a run on this machine's Spark would fail, in one line, or None."""
    try:
        variables = captured(spec, namespace)
    except names.NameProblem as error:
        return str(error) if str(error).endswith("?") else f"{error}."
    if variables.total > MOST_BYTES:
        return (
            f"the cell uses {in_bytes(variables.total)} of variables, the largest is {variables.largest}, and at most "
            f"{in_bytes(MOST_BYTES)} are copied to the workers: pass them as a DataFrame with --data, or read them "
            "from files inside the cell."
        )
    return None


def most_workers() -> int:
    """Workers that this machine's cores and memory hold, at least 1."""
    by_cores, memory = WORKERS_PER_CORE * machine.cores(), machine.memory()
    return by_cores if memory is None else max(1, min(by_cores, memory // machine.WORKER_BYTES))


def too_many_workers(spec: RunSpec, new_kernel: bool = False) -> str | None:
    """Why this machine cannot hold the workers of a Spark that would be created for them, or None.

    A `spark.master` that was typed is what the user wants. new_kernel: whether it comes too late in this one.
    """
    cores, memory, max_workers = machine.cores(), machine.memory(), most_workers()
    if "spark.master" in spec.conf or spec.workers <= max_workers:
        return None
    has = counted(cores, "core") + ("" if memory is None else f" and {in_bytes(memory)} of memory")
    return (
        f"--workers {spec.workers} is too much for this machine, which has {has}: a worker takes about "
        f"{in_bytes(machine.WORKER_BYTES)}, and {WORKERS_PER_CORE} share a core at most; "
        f"use --workers {max_workers} or fewer, or a cluster with %ddl use livy URL. "
        f"--conf spark.master=local[{spec.workers}]{' in a new kernel' if new_kernel else ''} starts them all the same."
    )


def crowded(spec: RunSpec) -> Iterator[str]:
    """What the user should know of more workers than this machine has cores."""
    cores = machine.cores()
    if spec.workers > cores:
        yield (
            f"{counted(spec.workers, 'worker')} share {counted(cores, 'core')} here: more than {cores} rarely train "
            "faster; %ddl scale measures it"
        )


def small_models(spec: RunSpec) -> Iterator[str]:
    """What the user should know, once, of all-reduce on one machine that has a core for each worker."""
    if spec.strategy == "allreduce" and spec.rule is None and 1 < spec.workers <= machine.cores():
        yield (
            "small models train no faster with all-reduce on one machine, whose cores one process uses as well: "
            "--strategy average exchanges less, and %ddl scale measures"
        )


def notices(spec: RunSpec, namespace: Mapping[str, Any]) -> Iterator[str]:
    """What the user should know of a run that is accepted, a line each."""
    variables = captured(spec, namespace)
    if variables.total >= NOTICE_BYTES:
        yield (
            f"{in_bytes(variables.total)} of variables are copied to each of {counted(spec.workers, 'worker')}, "
            f"the largest is {variables.largest}; a DataFrame with --data is divided among them"
        )
    memory, required = machine.memory(), required_memory(spec, variables)
    if memory is not None and required > memory:
        yield (
            f"the workers need about {in_bytes(required)} of memory, and this machine has {in_bytes(memory)}: "
            "use fewer with --workers, or less data"
        )
    disk = machine.free_disk()
    if disk < LITTLE_DISK_BYTES:
        yield f"only {in_bytes(disk)} of disk are free for temporary files: TMPDIR chooses another folder"


def session_settings(streams: bool) -> str:
    """What workers take over from this kernel besides its variables: "floatx, COLOUR in the environment".

    streams: with its random numbers, if they are seeded.
    """
    return ", ".join(process_settings.of_process(streams).names)


def has_random_numbers(settings: str) -> bool:
    """Whether these settings of a session, as `session_settings` lists them, have seeded random numbers."""
    return process_settings.RANDOM_NUMBERS in settings


def session_seed(limit: int) -> int | None:
    """A seed below `limit` that follows from the random numbers that this kernel has seeded; None where it has not."""
    return process_settings.seed(limit)


def required_memory(spec: RunSpec, variables: Captured) -> int:
    """Estimated bytes of the workers: TensorFlow and the cell's variables in each; without its model."""
    return spec.workers * (machine.WORKER_BYTES + variables.total)


def max_concurrent_runs(spec: RunSpec, namespace: Mapping[str, Any]) -> int | None:
    """How many such runs fit into this machine's memory at once, at least 1; None if unknown."""
    memory = machine.memory()
    try:
        required = required_memory(spec, captured(spec, namespace))
    except names.NameProblem:  # `problem` reports it
        return None
    return None if memory is None else max(1, memory // required)


def estimate(value: Any, containers: tuple[int, ...] = (), max_elements: int = _MEASURED) -> int:
    """The approximate bytes of a value when it is sent; 0 if unknown without pickling.

    containers: ids of those that contain the value. max_elements: elements that are measured, at any depth.
    """
    size = _array_bytes(value)
    size = tensor_bytes.of(value) if size is None else size
    if size is not None:
        return size
    if isinstance(value, (str, bytes, bytearray)):
        return len(value)
    if (
        isinstance(value, (Mapping, list, tuple, set, frozenset))
        and id(value) not in containers
        and len(containers) < _DEPTH
    ):
        elements = value.values() if isinstance(value, Mapping) else value
        inside, share = (*containers, id(value)), max(1, max_elements // max(len(value), 1))
        measured = [estimate(element, inside, share) for element in islice(elements, max_elements)]
        return sum(measured) * len(value) // max(len(measured), 1)
    return sys.getsizeof(value, 0)


def _array_bytes(value: Any) -> int | None:
    if type(value).__module__.partition(".")[0] == "pandas":
        usage = getattr(value, "memory_usage", None)
        if usage is None:
            return None
        memory_usage = usage(index=True) if type(value).__name__ in ("DataFrame", "Series") else usage()
        return int(memory_usage.sum() if hasattr(memory_usage, "sum") else memory_usage)
    size = getattr(value, "nbytes", None)
    return int(size) if isinstance(size, int) else None
