"""TensorFlow's side of parameter_server.py: ParameterServerStrategy with its coordinator and one server.

    python -m benchmarks.child_processes.tf_parameter_server SECONDS ADDRESSES BYTES...

ADDRESSES is JSON: of the chief, the server, and each worker. Prints the list of the exchanges per second with each
size. An exchange is a function on a worker that reads the variable and adds to it, as a training step does.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

ClusterAddresses = dict[str, list[str]]
# Of TensorFlow, which has no types.
Strategy = Any
Coordinator = Any


def serve(cluster: ClusterAddresses, task: str, index: int) -> None:
    """A server of the cluster."""
    import tensorflow as tf

    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=2)
    tf.distribute.Server(cluster, task, index, protocol="grpc", config=config).join()


def connect(cluster: ClusterAddresses) -> tuple[Strategy, Coordinator]:
    """The strategy and its coordinator, for this process, which is the cluster's chief."""
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster), task_type="chief", task_id=0, rpc_layer="grpc"
    )
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    return strategy, tf.distribute.coordinator.ClusterCoordinator(strategy)


def exchanges(strategy: Strategy, coordinator: Coordinator, workers: int, size: int, seconds: float) -> float:
    """Exchanges of `size` bytes per second, of all workers together."""
    import tensorflow as tf

    with strategy.scope():
        centre = tf.Variable(tf.zeros([size // 4]))

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types
    def exchange() -> None:
        # The update depends on what was read: a constant would be made on the server and never travel.
        centre.assign_add(centre.read_value() * 1e-6 + 1.0)

    def run(count: int) -> None:
        for _ in range(count):
            coordinator.schedule(exchange)
        coordinator.join()

    run(4 * workers)
    done, began = 0, time.monotonic()
    while time.monotonic() < began + seconds:
        run(8 * workers)
        done += 8 * workers
    return done / (time.monotonic() - began)


def main() -> None:
    seconds, (chief, ps, *workers), sizes = float(sys.argv[1]), json.loads(sys.argv[2]), map(int, sys.argv[3:])
    cluster: ClusterAddresses = {"chief": [chief], "ps": [ps], "worker": workers}
    context = multiprocessing.get_context("spawn")
    tasks = [("ps", 0), *(("worker", index) for index in range(len(workers)))]
    servers = [context.Process(target=serve, args=(cluster, *task), daemon=True) for task in tasks]
    for server in servers:
        server.start()
    strategy, coordinator = connect(cluster)
    rates = [exchanges(strategy, coordinator, len(workers), size, seconds) for size in sizes]
    print(json.dumps(rates), flush=True)
    for server in servers:
        server.kill()
    os._exit(0)  # the coordinator's threads wait for the servers


if __name__ == "__main__":
    main()
