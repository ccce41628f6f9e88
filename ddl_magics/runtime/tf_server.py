"""tf-ps: the processes beside a rank that are a worker or a parameter server of TensorFlow's cluster.

A process of its own each, because the rank's own must stay free: of rank 0 it runs the cell, of the others it hears
the driver. It ends with its rank: by the end of its input, and as a member of the process group that the supervisor
kills.
"""

import json
import os
import select
import subprocess
import sys
import threading

#: For importing TensorFlow and opening a port.
START_SECONDS = 120.0
CLOSE_SECONDS = 2.0


class TfServers:
    """Servers for `roles`, [(job, task)] of `cluster`. `give_up(error)` is called if one ends before `close`."""

    def __init__(self, cluster, roles, give_up):
        self._closing, self._give_up = False, give_up
        self._processes = [(job, task, self._start(cluster, job, task)) for job, task in roles]
        for job, task, process in self._processes:
            ready, _, _ = select.select([process.stdout], [], [], START_SECONDS)
            if not (ready and process.stdout.readline()):
                self.close()
                message = "TensorFlow's server for %s %d did not start; what it printed says why"
                raise RuntimeError(message % (job, task))
            threading.Thread(target=self._watch, args=(job, task, process), daemon=True).start()

    @staticmethod
    def _start(cluster, job, task):
        environment = dict(os.environ)
        if job == "ps":
            environment["CUDA_VISIBLE_DEVICES"] = "-1"
        config = {"cluster": cluster, "job": job, "task": task}
        process = subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        process.stdin.write(json.dumps(config).encode() + b"\n")
        process.stdin.flush()
        return process

    def _watch(self, job, task, process):
        status = process.wait()
        if not self._closing:
            message = "TensorFlow's server for %s %d (process %d) ended with status %d"
            self._give_up(RuntimeError(message % (job, task, process.pid, status)))

    def close(self):
        self._closing = True
        for _, _, process in self._processes:
            process.stdin.close()
        for _, _, process in self._processes:
            try:
                process.wait(CLOSE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def main():
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
