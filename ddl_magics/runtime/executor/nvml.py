"""NVIDIA's management library through ctypes: the calls that a sampler needs, so that a cluster needs no package.

Every failure (no library, no driver, no permission, a value that a device does not have) is None.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

#: NVML, and a device of it.
Library = Any
Handle = Any

_SUCCESS = 0
_NAME_BYTES = 96
_MILLI = 1000.0

#: NVML's reasons for a slower clock that are a fault of the host, as bits. Its limit of power is none: a GPU that works
#: hard reaches it.
_TOO_HOT = 0x20 | 0x40
_TOO_LITTLE_POWER = 0x80


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class Use(NamedTuple):
    """Shares of the last sample period, in percent: in which a kernel ran, and in which memory was read or written."""

    kernels: float
    memory: float


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def load() -> Library | None:
    """NVML, initialised, or None where there is none."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        return library if library.nvmlInit_v2() == _SUCCESS else None
    except (OSError, AttributeError):
        return None


def devices(library: Library) -> list[Handle]:
    """Handles of all devices, in NVML's order."""
    count = ctypes.c_uint()
    if library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != _SUCCESS:
        return []
    handles = []
    for index in range(count.value):
        handle = ctypes.c_void_p()
        if library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) == _SUCCESS:
            handles.append(handle)
    return handles


def uuid(library: Library, handle: Handle) -> str | None:
    """ "GPU-...", as CUDA_VISIBLE_DEVICES may name it."""
    text = ctypes.create_string_buffer(_NAME_BYTES)
    succeeded = library.nvmlDeviceGetUUID(handle, text, _NAME_BYTES) == _SUCCESS
    return text.value.decode(errors="replace") if succeeded else None


def part(library: Library, mig_uuid: str) -> Handle | None:
    """The handle of a part of a GPU, "MIG-...", that has memory of its own. It tells neither use nor power."""
    handle = ctypes.c_void_p()
    succeeded = library.nvmlDeviceGetHandleByUUID(mig_uuid.encode(), ctypes.byref(handle)) == _SUCCESS
    return handle if succeeded else None


def name(library: Library, handle: Handle) -> str | None:
    text = ctypes.create_string_buffer(_NAME_BYTES)
    succeeded = library.nvmlDeviceGetName(handle, text, _NAME_BYTES) == _SUCCESS
    return text.value.decode(errors="replace") if succeeded else None


def use(library: Library, handle: Handle) -> Use | None:
    rates = _Utilization()
    succeeded = library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(rates)) == _SUCCESS
    return Use(float(rates.gpu), float(rates.memory)) if succeeded else None


def memory(library: Library, handle: Handle) -> tuple[int, int] | None:
    """(used, total) bytes, or None."""
    bytes_of = _Memory()
    succeeded = library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(bytes_of)) == _SUCCESS
    return (bytes_of.used, bytes_of.total) if succeeded else None


def watts(library: Library, handle: Handle) -> float | None:
    """The power that it draws."""
    milliwatts = _number(library, "nvmlDeviceGetPowerUsage", handle, ctypes.c_uint())
    return None if milliwatts is None else milliwatts / _MILLI


def most_watts(library: Library, handle: Handle) -> float | None:
    """The power that it may draw."""
    milliwatts = _number(library, "nvmlDeviceGetEnforcedPowerLimit", handle, ctypes.c_uint())
    return None if milliwatts is None else milliwatts / _MILLI


def slowed_by(library: Library, handle: Handle) -> str | None:
    """Why its clock is slower than it could be, if that is a fault of its host: "heat" or "power"."""
    reasons = _number(library, "nvmlDeviceGetCurrentClocksThrottleReasons", handle, ctypes.c_ulonglong()) or 0
    return "heat" if reasons & _TOO_HOT else "power" if reasons & _TOO_LITTLE_POWER else None


def _number(library: Library, function: str, handle: Handle, value: Any) -> int | None:
    """What a function writes to `value`; None where this version of NVML has no such function, too."""
    try:
        succeeded = getattr(library, function)(handle, ctypes.byref(value)) == _SUCCESS
    except AttributeError:
        return None
    return int(value.value) if succeeded else None
