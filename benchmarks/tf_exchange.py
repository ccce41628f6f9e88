"""TensorFlow's side of b3.py: tf_exchange.py WORKERS SECONDS BYTES... prints the exchanges per second with each size.

ParameterServerStrategy with its coordinator and one server. An exchange is a function on a worker that reads the
variable and adds to it, as a training step does.
"""

import json
import multiprocessing
import os
import socket
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")


def serve(cluster, task, index):
    """A server of the cluster."""
    import tensorflow as tf

    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=2)
    tf.distribute.Server(cluster, task, index, protocol="grpc", config=config).join()


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return addresses


def connect(cluster):
    """(strategy, its coordinator) of this process, the cluster's chief."""
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster), task_type="chief", task_id=0, rpc_layer="grpc"
    )
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    return strategy, tf.distribute.coordinator.ClusterCoordinator(strategy)


def exchanges(strategy, coordinator, workers, size, seconds):
    """Exchanges per second of all workers together."""
    import tensorflow as tf

    with strategy.scope():
        centre = tf.Variable(tf.zeros([size // 4]))

    @tf.function
    def exchange():
        # Made of what was read: a constant would be made where it is added, and never travel.
        centre.assign_add(centre.read_value() * 1e-6 + 1.0)

    def run(count):
        for _ in range(count):
            coordinator.schedule(exchange)
        coordinator.join()

    run(4 * workers)
    done, began = 0, time.monotonic()
    while time.monotonic() < began + seconds:
        run(8 * workers)
        done += 8 * workers
    return done / (time.monotonic() - began)


def main():
    workers, seconds, sizes = int(sys.argv[1]), float(sys.argv[2]), [int(size) for size in sys.argv[3:]]
    addresses = free_ports(workers + 2)
    cluster = {"chief": addresses[:1], "ps": addresses[1:2], "worker": addresses[2:]}
    context = multiprocessing.get_context("spawn")
    tasks = [("ps", 0), *(("worker", index) for index in range(workers))]
    servers = [context.Process(target=serve, args=(cluster, *task), daemon=True) for task in tasks]
    for server in servers:
        server.start()
    strategy, coordinator = connect(cluster)
    print(json.dumps([exchanges(strategy, coordinator, workers, size, seconds) for size in sizes]), flush=True)
    for server in servers:
        server.kill()
    os._exit(0)  # the coordinator's threads wait for the servers


if __name__ == "__main__":
    main()
