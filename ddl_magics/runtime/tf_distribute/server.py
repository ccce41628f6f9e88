"""tf-ps: the processes beside a rank that are a worker or a parameter server of TensorFlow's cluster.

Each is a process of its own, because the rank's must stay free: rank 0 runs the cell, and the others listen to the
driver. It ends with its rank: at the end of its input, and as a member of the process group that the supervisor kills.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
from typing import Callable, Mapping, Sequence

#: For importing TensorFlow and opening a port.
START_SECONDS = 120.0
CLOSE_SECONDS = 2.0


class TfServers:
    """Servers for `roles`, [(job, task)] of `cluster`. `give_up(error)` is called if one ends before `close`."""

    def __init__(
        self,
        cluster: Mapping[str, Sequence[str]],
        roles: Sequence[tuple[str, int]],
        give_up: Callable[[Exception], None],
    ) -> None:
        self._closing, self._give_up = False, give_up
        self._processes = [(job, task, self._start(cluster, job, task)) for job, task in roles]
        for job, task, process in self._processes:
            assert process.stdout is not None
            readable, _, _ = select.select([process.stdout], [], [], START_SECONDS)
            if not (readable and process.stdout.readline()):
                self.close()
                message = "TensorFlow's server for %s %d did not start; what it printed says why"
                raise RuntimeError(message % (job, task))
            threading.Thread(target=self._watch, args=(job, task, process), daemon=True).start()

    @staticmethod
    def _start(cluster: Mapping[str, Sequence[str]], job: str, task: int) -> subprocess.Popen[bytes]:
        environment = dict(os.environ)
        if job == "ps":
            environment["CUDA_VISIBLE_DEVICES"] = "-1"
        config = {"cluster": cluster, "job": job, "task": task}
        process = subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(config).encode() + b"\n")
        process.stdin.flush()
        return process

    def _watch(self, job: str, task: int, process: subprocess.Popen[bytes]) -> None:
        status = process.wait()
        if not self._closing:
            message = "TensorFlow's server for %s %d (process %d) ended with status %d"
            self._give_up(RuntimeError(message % (job, task, process.pid, status)))

    def close(self) -> None:
        self._closing = True
        for _, _, process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        for _, _, process in self._processes:
            try:
                process.wait(CLOSE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def main() -> None:
    config = json.loads(sys.stdin.readline())
    os.environ["GRPC_FAIL_FAST"] = "use_caller"  # a worker that is started late is waited for
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    server = tf.distribute.Server(
        config["cluster"], job_name=config["job"], task_index=config["task"], protocol="grpc", start=True
    )
    print(server.target, flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
