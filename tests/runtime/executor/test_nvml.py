"""What is sampled of GPUs, here of a library that is made up."""

import ctypes

from ddl_magics.runtime.executor import nvml, telemetry

CARD = "NVIDIA H100 80GB HBM3"


class Library:
    """NVML with two devices, the second of which tells nothing."""

    def nvmlDeviceGetCount_v2(self, count):
        count._obj.value = 2
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index, handle):
        handle._obj.value = 100 + index
        return 0

    def nvmlDeviceGetName(self, handle, text, size):
        ctypes.memmove(text, CARD.encode() + b"\0", min(size, len(CARD) + 1))
        return handle.value - 100

    def nvmlDeviceGetUtilizationRates(self, handle, use):
        use._obj.gpu = 37
        return handle.value - 100

    def nvmlDeviceGetMemoryInfo(self, handle, use):
        use._obj.used, use._obj.total = 5 << 30, 80 << 30
        return handle.value - 100


def test_each_gpu_is_sampled_as_far_as_it_tells(monkeypatch):
    monkeypatch.setattr(nvml, "load", Library)
    sampler = telemetry.GpuSampler()
    known = {"index": 0, "name": CARD, "percent": 37.0, "memory": 5 << 30, "memory_total": 80 << 30}
    unknown = {"index": 1, "name": "GPU 1", "percent": None, "memory": None, "memory_total": None}
    assert sampler.sample() == [known, unknown] and sampler.indices == [0, 1]
    sampler.keep_to(None)
    assert sampler.indices == [0, 1]
    sampler.keep_to(["1"])
    assert sampler.sample() == [unknown]
    assert telemetry.GpuSampler([0]).sample() == [known]
    monkeypatch.setattr(nvml, "load", lambda: None)
    assert telemetry.GpuSampler().sample() is None
