"""What is measured of a rank's process: nothing of one that has ended."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from support.until import until

from ddl_magics.runtime.executor import telemetry, worker
from ddl_magics.runtime.executor.telemetry import ProcessSampler


def test_a_process_that_has_ended_has_no_memory_to_show():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    sampler = ProcessSampler(process.pid)
    try:
        # Linux may count no memory yet of a program that begins.
        until(lambda: (sampler.sample() or (0.0, 0))[1] > 1_000_000, 10)
        process.stdin.close()
        # It is a zombie until its parent has asked for its status, and has no memory any more.
        until(lambda: sampler.sample() is None, 10)
        for _ in range(3):
            assert sampler.sample() is None
    finally:
        process.kill()
        process.wait()


def test_there_is_no_rate_between_two_calls_at_once(monkeypatch):
    sampler = ProcessSampler(os.getpid())
    monkeypatch.setattr(telemetry.time, "monotonic", lambda: 7.0)
    assert sampler.sample() is None and sampler.sample() is None


def test_a_process_that_is_about_to_end_and_has_given_its_memory_back_is_not_measured(monkeypatch):
    def use(pages):
        stat = f"7 (python3) R {' '.join('0' * 10)} 5 5 {' '.join('0' * 8)} {pages} 0"
        monkeypatch.setattr(telemetry, "proc_text", lambda pid, name: stat)

    sampler = ProcessSampler(7)
    use(1000)
    sampler.sample()
    assert sampler.sample()[1] > 1_000_000
    use(0)
    assert sampler.sample() is None


def test_a_worker_keeps_the_name_of_its_card_in_all_states():
    states = []
    reporting = object.__new__(worker._Worker)
    reporting._config = SimpleNamespace(rank=0)
    reporting._channel = SimpleNamespace(send_json=lambda kind, sent: states.extend(sent))
    reporting._device = None
    reporting._report_state("loading TensorFlow", 16)
    reporting._device = "NVIDIA H100 80GB HBM3"
    for state in ("running", "finished"):
        reporting._report_state(state, 16)
    assert [state["device"] for state in states] == ["CPU, 16 cores"] + 2 * ["NVIDIA H100 80GB HBM3"]


@pytest.mark.parametrize(
    ("executor_cores", "local_size", "workers", "threads"),
    [(8, 2, 2, (4, 4)), (3, 2, 4, (3, 3)), (0, 2, 2, (1, 1)), (1, 1, 2, (1, 2)), (8, 16, 16, (1, 1))],
)
def test_the_ranks_of_a_host_share_its_cores(monkeypatch, executor_cores, local_size, workers, threads):
    """Between hosts there are two threads for operations: gradients leave while others are computed."""
    monkeypatch.setattr(worker.os, "cpu_count", lambda: 8)
    job = SimpleNamespace(executor_cores=executor_cores, workers=workers)
    inside, between = map(str, threads)
    assert worker.thread_settings(job, {"local_size": local_size}) == {
        "OMP_NUM_THREADS": inside,
        "TF_NUM_INTRAOP_THREADS": inside,
        "TF_NUM_INTEROP_THREADS": between,
    }
