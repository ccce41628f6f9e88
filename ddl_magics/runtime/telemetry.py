"""What a process uses: CPU and memory from /proc, GPUs through NVML. Sampled by the supervisor, beside the training.

What cannot be measured is None, never zero.
"""

import os
import time

from . import nvml

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def _stat(pid):
    """(CPU seconds used so far, resident bytes) of a process, from /proc/PID/stat; OSError when it is gone."""
    with open("/proc/%d/stat" % pid) as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND, int(fields[21]) * _PAGE_BYTES


def _children(pid):
    """The processes that the main thread of a process has started, where Linux keeps a list of them."""
    try:
        with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
            return [int(child) for child in file.read().split()]
    except OSError:
        return []


class ProcessSampler:
    """CPU and memory of one process between two calls of `sample`; with `family`, its children's among them."""

    def __init__(self, pid, family=False):
        self._pid, self._family = pid, family
        self._time = self._used = None

    def sample(self):
        """(CPU in percent of one core since the last call, resident bytes); None at first and after its end."""
        try:
            uses = [_stat(pid) for pid in [self._pid] + (_children(self._pid) if self._family else [])]
        except (OSError, ValueError, IndexError):
            return None
        used, memory = (sum(each) for each in zip(*uses))
        now = time.monotonic()
        before, used_before = self._time, self._used
        self._time, self._used = now, used
        if before is None or now <= before or used < used_before:
            return None
        return 100.0 * (used - used_before) / (now - before), memory


class GpuSampler:
    """The GPUs that a rank may use, through NVML; `sample` gives None where there is no GPU."""

    def __init__(self, visible=None):
        """`visible`: indices as in CUDA_VISIBLE_DEVICES, or None for all of the host's."""
        self._nvml = nvml.load()
        handles = nvml.devices(self._nvml) if self._nvml else []
        self._devices = [(i, handle) for i, handle in enumerate(handles) if visible is None or i in visible]

    @property
    def indices(self):
        """As NVML numbers them."""
        return [index for index, _ in self._devices]

    def keep_to(self, addresses):
        """Sample those of `gpus.share` alone; all where it says None."""
        if addresses is not None:
            self._devices = [each for each in self._devices if str(each[0]) in addresses]

    def sample(self):
        """A list of {"index", "name", "percent", "memory", "memory_total"} (bytes), or None where there is no GPU."""
        return [self._read(index, handle) for index, handle in self._devices] or None

    def _read(self, index, handle):
        used, total = nvml.memory(self._nvml, handle) or (None, None)
        return {
            "index": index,
            "name": nvml.name(self._nvml, handle) or "GPU %d" % index,
            "percent": nvml.percent(self._nvml, handle),
            "memory": used,
            "memory_total": total,
        }


def visible_gpus(environment):
    """Indices in CUDA_VISIBLE_DEVICES, None where it is unset; what is no number in it is left out."""
    text = environment.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return None
    return [int(part) for part in text.split(",") if part.strip().isdigit()]


def device_name(gpus, cores):
    """What a rank computes on, in words."""
    return gpus[0]["name"] if gpus else "CPU, %d core%s" % (cores, "" if cores == 1 else "s")
