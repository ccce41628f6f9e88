"""What is measured of a rank's process: nothing of one that has ended."""

import subprocess
import sys
import time

from support.until import until

from ddl_magics.runtime.executor.telemetry import ProcessSampler


def test_a_process_that_has_ended_has_no_memory_to_show():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    sampler = ProcessSampler(process.pid)
    try:
        sampler.sample()
        time.sleep(0.05)
        assert sampler.sample()[1] > 1_000_000
        process.stdin.close()
        # It is a zombie until its parent has asked for its status, and has no memory any more.
        until(lambda: sampler.sample() is None, 10)
        for _ in range(3):
            assert sampler.sample() is None
    finally:
        process.kill()
        process.wait()
