"""The use of CPU and memory by a process, from /proc, and of its GPUs, through NVML. The supervisor samples them.

What cannot be measured is None, never zero.
"""

from __future__ import annotations

import os
import time
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

from ..wording import counted
from . import nvml

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


#: What `nvml.slowed_by` says -> what a person reads.
_SLOWED_BY = {"heat": "it is too hot", "power": "its host does not give it enough power"}


def proc_text(pid: int | str, name: str) -> str:
    """The text of a file of /proc/PID; "" where it cannot be read: the process is gone, not ours, or on no Linux."""
    try:
        # Of a file so short, the buffer and the decoder of `open` would cost as much as reading it.
        with open("/proc/%s/%s" % (pid, name), "rb", buffering=0) as file:
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the process's state on; none when it is gone."""
    return proc_text(pid, "stat").rpartition(")")[2].split()


def _use(pid: int) -> tuple[float, int]:
    """(CPU seconds used so far, resident bytes) of a process; IndexError or ProcessLookupError when it has ended."""
    fields = stat_fields(pid)
    pages = int(fields[21])
    if fields[0] in "ZX" or not pages:  # it is ending: it has given its memory back, or waits for its parent
        raise ProcessLookupError(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND, pages * _PAGE_BYTES


def children(pid: int) -> list[int]:
    """The children of a process's main thread, where Linux keeps a list of them."""
    return [int(child) for child in proc_text(pid, "task/%d/children" % pid).split()]


class ProcessSampler:
    """CPU and memory of one process between two calls of `sample`, with its children's if asked for."""

    def __init__(self, pid: int, with_children: bool = False) -> None:
        self._pid, self._with_children = pid, with_children
        self._before: tuple[float, float] | None = None  # time, CPU seconds

    def sample(self) -> tuple[float, int] | None:
        """(CPU in percent of one core since the last call, resident bytes); None at first and after its end."""
        try:
            uses = [_use(pid) for pid in [self._pid] + (children(self._pid) if self._with_children else [])]
        except (OSError, ValueError, IndexError):
            return None
        cpu_seconds, memory = sum(cpu for cpu, _ in uses), sum(resident for _, resident in uses)
        timestamp, before = time.monotonic(), self._before
        self._before = timestamp, cpu_seconds
        if before is None or timestamp <= before[0] or cpu_seconds < before[1]:
            return None
        return 100.0 * (cpu_seconds - before[1]) / (timestamp - before[0]), memory


class GpuSampler:
    """The GPUs that a rank may use, through NVML; `sample` gives None where there is no GPU."""

    def __init__(self, visible: Sequence[str] | None = None) -> None:
        """`visible`: those of CUDA_VISIBLE_DEVICES, or None for all of the host's."""
        self._nvml = nvml.load()
        self._devices = list(_found(self._nvml, visible)) if self._nvml else []
        self._slow: set[int] = set()  # that `new_slowdowns` has named

    @property
    def addresses(self) -> list[str]:
        """As CUDA_VISIBLE_DEVICES may name them."""
        return [device.address for device in self._devices]

    def keep_to(self, addresses: Sequence[str] | None) -> None:
        """Sample those of `gpus.round_robin` alone; all where it says None."""
        if addresses is not None:
            self._devices = [device for device in self._devices if device.address in addresses]

    def sample(self) -> list[dict[str, Any]] | None:
        """The GPUs as an event `sample` has them, or None where there is no GPU."""
        return [self._read(device.number, device.handle) for device in self._devices] or None

    def new_slowdowns(self, sample: Sequence[Mapping[str, Any]]) -> list[str]:
        """A line for each GPU of a sample that a fault of its host slows down, once in its life."""
        slow = [gpu for gpu in sample if gpu["slowed_by"] is not None and gpu["index"] not in self._slow]
        self._slow.update(gpu["index"] for gpu in slow)
        text = "GPU %d (%s) is slowed down: %s"
        return [text % (gpu["index"], gpu["name"], _SLOWED_BY[gpu["slowed_by"]]) for gpu in slow]

    def _read(self, index: int, handle: nvml.Handle) -> dict[str, Any]:
        used_bytes, total_bytes = nvml.memory(self._nvml, handle) or (None, None)
        kernels, of_memory = nvml.use(self._nvml, handle) or (None, None)
        return {
            "index": index,
            "name": nvml.name(self._nvml, handle) or "GPU %d" % index,
            "percent": kernels,
            "memory": used_bytes,
            "memory_total": total_bytes,
            "memory_percent": of_memory,
            "power": nvml.watts(self._nvml, handle),
            "power_limit": nvml.most_watts(self._nvml, handle),
            "slowed_by": nvml.slowed_by(self._nvml, handle),
        }


class _Device(NamedTuple):
    """number: as NVML numbers it; of a part of a GPU, its place among those that are visible."""

    address: str
    number: int
    handle: nvml.Handle


def _found(library: nvml.Library, visible: Sequence[str] | None) -> Iterator[_Device]:
    """The GPUs of the host, and parts of them, that are visible."""
    handles = nvml.devices(library)
    for index, handle in enumerate(handles):
        if visible is None or str(index) in visible:
            yield _Device(str(index), index, handle)
    by_uuid = [address for address in visible or () if not address.isdigit()]
    uuids = [nvml.uuid(library, handle) or "" for handle in handles] if by_uuid else []
    for place, address in enumerate(by_uuid):
        if address.startswith("MIG-"):
            part = nvml.part(library, address)
            if part is not None:
                yield _Device(address, place, part)
        for index, uuid in enumerate(uuids):
            if uuid.startswith(address):  # CUDA takes the beginning of one, too
                yield _Device(address, index, handles[index])


def visible_gpus(environment: Mapping[str, str]) -> list[str] | None:
    """What CUDA_VISIBLE_DEVICES names: numbers, "GPU-..." or "MIG-..."; None where it is unset."""
    text = environment.get("CUDA_VISIBLE_DEVICES")
    return None if text is None else [address.strip() for address in text.split(",") if address.strip()]


def device_name(gpus: Sequence[Mapping[str, Any]] | None, cores: int) -> str:
    """The name of a rank's device."""
    return gpus[0]["name"] if gpus else "CPU, %s" % counted(cores, "core")
