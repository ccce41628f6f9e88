"""What is sampled of GPUs, here of a library that is made up."""

import ctypes

import pytest

from ddl_magics.runtime.executor import nvml, telemetry

CARD = "NVIDIA H100 80GB HBM3"
POWER = {"power": None, "power_limit": None, "slowed_by": None}


PART = "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
UUIDS = {100: "GPU-8932f937-d72c", 101: "GPU-b1a2c3d4-0000"}
PARTS = {"MIG-c7384736-a75d": 200}


class Library:
    """NVML with two devices, the second of which tells nothing, and a part of one, which tells its memory.

    No device has a limit of power.
    """

    reasons = 0x4  # the limit of its power, as of each GPU that works hard

    def nvmlDeviceGetCount_v2(self, count):
        count._obj.value = 2
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index, handle):
        handle._obj.value = 100 + index
        return 0

    def nvmlDeviceGetName(self, handle, text, size):
        found = PART if handle.value == 200 else CARD
        ctypes.memmove(text, found.encode() + b"\0", min(size, len(found) + 1))
        return handle.value % 100

    def nvmlDeviceGetUUID(self, handle, text, size):
        ctypes.memmove(text, UUIDS[handle.value].encode() + b"\0", len(UUIDS[handle.value]) + 1)
        return 0

    def nvmlDeviceGetHandleByUUID(self, uuid, handle):
        handle._obj.value = PARTS.get(uuid.decode(), 0)
        return 0 if handle._obj.value else 6

    def nvmlDeviceGetUtilizationRates(self, handle, use):
        use._obj.gpu, use._obj.memory = 37, 12
        return handle.value - 100

    def nvmlDeviceGetMemoryInfo(self, handle, use):
        use._obj.used, use._obj.total = 5 << 30, 80 << 30
        return handle.value % 100

    def nvmlDeviceGetPowerUsage(self, handle, milliwatts):
        milliwatts._obj.value = 312_400
        return handle.value - 100

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle, reasons):
        reasons._obj.value = self.reasons
        return handle.value - 100


def test_each_gpu_is_sampled_as_far_as_it_tells(monkeypatch):
    monkeypatch.setattr(nvml, "load", Library)
    sampler = telemetry.GpuSampler()
    of_memory = {"memory": 5 << 30, "memory_total": 80 << 30, "memory_percent": 12.0}
    known = {"index": 0, "name": CARD, "percent": 37.0, **of_memory, **POWER, "power": 312.4}
    unknown = {"index": 1, "name": "GPU 1", "percent": None, **dict.fromkeys(of_memory), **POWER}
    assert sampler.sample() == [known, unknown] and sampler.addresses == ["0", "1"]
    sampler.keep_to(None)
    assert sampler.addresses == ["0", "1"]
    sampler.keep_to(["1"])
    assert sampler.sample() == [unknown]
    assert telemetry.GpuSampler(["0"]).sample() == [known]
    monkeypatch.setattr(nvml, "load", lambda: None)
    assert telemetry.GpuSampler().sample() is None


def test_gpus_and_their_parts_may_be_named_by_uuid(monkeypatch):
    monkeypatch.setattr(nvml, "load", Library)
    assert [gpu["index"] for gpu in telemetry.GpuSampler(["GPU-b1a2"]).sample()] == [1]
    sampler = telemetry.GpuSampler(["MIG-c7384736-a75d", "MIG-gone", "GPU-none", "-1"])
    (part,) = sampler.sample()
    assert (part["name"], part["memory_total"], part["percent"]) == (PART, 80 << 30, None)
    sampler.keep_to(sampler.addresses)
    assert sampler.addresses == ["MIG-c7384736-a75d"] and sampler.sample() == [part]


@pytest.mark.parametrize(
    ("reasons", "cause"), [(0x4 | 0x20, "heat"), (0x40, "heat"), (0x80, "power"), (0x4 | 0x1, None)]
)
def test_a_gpu_that_its_host_slows_down_is_told_from_one_that_works_hard(monkeypatch, reasons, cause):
    monkeypatch.setattr(nvml, "load", Library)
    monkeypatch.setattr(Library, "reasons", reasons)
    sampler = telemetry.GpuSampler()
    sample = sampler.sample()
    assert [gpu["slowed_by"] for gpu in sample] == [cause, None]
    words = {"heat": "too hot", "power": "enough power"}
    slowdowns = sampler.new_slowdowns(sample)
    assert len(slowdowns) == bool(cause) and all(CARD in line and words[cause] in line for line in slowdowns)
    assert not sampler.new_slowdowns(sampler.sample()), "a slow GPU is named once"
