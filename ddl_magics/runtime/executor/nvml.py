"""NVIDIA's management library through ctypes: the five calls that a sampler needs, so that a cluster needs no package.

Every failure (no library, no driver, no permission, a value that a device does not have) is None.
"""

from __future__ import annotations

import ctypes
from typing import Any

#: NVML, and a device of it.
Library = Any
Handle = Any

_SUCCESS = 0
_NAME_BYTES = 96


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


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


def name(library: Library, handle: Handle) -> str | None:
    text = ctypes.create_string_buffer(_NAME_BYTES)
    succeeded = library.nvmlDeviceGetName(handle, text, _NAME_BYTES) == _SUCCESS
    return text.value.decode(errors="replace") if succeeded else None


def percent(library: Library, handle: Handle) -> float | None:
    """Share of the last sample period in which a kernel ran, in percent."""
    use = _Utilization()
    succeeded = library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(use)) == _SUCCESS
    return float(use.gpu) if succeeded else None


def memory(library: Library, handle: Handle) -> tuple[int, int] | None:
    """(used, total) bytes, or None."""
    use = _Memory()
    succeeded = library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(use)) == _SUCCESS
    return (use.used, use.total) if succeeded else None
