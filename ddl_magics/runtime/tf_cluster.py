"""tf-allreduce and tf-ps: a cluster of TensorFlow's own, for cells that are written for tf.distribute.

tf-allreduce: every rank is a worker of MultiWorkerMirroredStrategy, and runs the cell. tf-ps: rank 0 is the coordinator
of ParameterServerStrategy, and runs the cell; beside each rank runs a process that is a worker, and beside some one
that is a parameter server (tf_server.py). What TensorFlow's processes say to each other is TensorFlow's: this library
finds their ports, gives the cell its `strategy`, and sees to it that they end together.
"""

import contextlib
import json
import os
import socket

from . import parts
from .parts import Part
from .rank import StopRun
from .strategies import TF_ALLREDUCE, TF_PS

_ADDRESSES_BYTES = 1 << 16
#: A server with fewer can come to wait for itself: some of its operations hold a thread while they wait for others.
INTEROP_THREADS = 4
_OPEN = (
    "TensorFlow's own connections between the workers are neither authenticated nor encrypted, and listen on all "
    "interfaces of their hosts: docs/security.md"
)


def roles(strategy, rank, size, servers):
    """What a rank has of TensorFlow's cluster: [(job, task)]. servers: number of parameter servers of tf-ps."""
    if strategy == TF_ALLREDUCE:
        return [("worker", rank)]
    chief = [("chief", 0)] if rank == 0 else []
    return chief + [("worker", rank)] + [("ps", task) for task in range(servers) if (size - 1 - task) % size == rank]


def reserve(host):
    """A socket that is bound to a free port and listens to nobody: while it is open, no other user can have the port.

    It is bound so that TensorFlow's server, which TF_GRPC_REUSE_PORT tells to do the same, can have it nevertheless.
    """
    held = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind((host, 0))
    return held


def cluster_of(said):
    """TensorFlow's ClusterSpec, {job: [address of each task]}, from what every rank says: [[job, task, address]]."""
    found = {}
    for job, _, address in sorted(tuple(each) for one in said for each in one):
        found.setdefault(job, []).append(address)
    return found


class TfCluster:
    """A rank's place in it. Made before TensorFlow is imported, `enter`ed before it computes anything.

    strategy: what the cell gets, once there is one.
    """

    #: A stop interrupts Python. A rank whose peer has left that way waits in TensorFlow: no longer than this.
    STOP_SECONDS = 3.0

    def __init__(self, context):
        self._context = context
        config = context.config
        mine = roles(context.strategy, context.rank, context.workers, config.get("ps") or 1)
        os.environ["TF_GRPC_REUSE_PORT"] = "true"
        threads = int(os.environ.get("TF_NUM_INTEROP_THREADS") or 0)
        os.environ["TF_NUM_INTEROP_THREADS"] = str(max(threads, INTEROP_THREADS))
        self._held = [reserve(config["host"]) for _ in mine]
        host = "[%s]" % config["host"] if ":" in config["host"] else config["host"]
        ports = [held.getsockname()[1] for held in self._held]
        said = [[job, task, "%s:%d" % (host, port)] for (job, task), port in zip(mine, ports)]
        self._ring = context.ring
        self._cluster = cluster_of(self._tell_all(said))
        self.strategy = None
        self.servers = None
        if context.strategy == TF_PS:
            context.ring = None  # the others serve, and take no part in anything
            self._start_servers([role for role in mine if role[0] != "chief"])
        if self.runs_cell:
            job, task = mine[0]
            os.environ["TF_CONFIG"] = json.dumps({"cluster": self._cluster, "task": {"type": job, "index": task}})

    @property
    def runs_cell(self):
        return self._context.strategy == TF_ALLREDUCE or self._context.is_chief

    def _tell_all(self, said):
        if self._ring is None:
            return [said]
        told = self._ring.gather(json.dumps(said).encode(), Part(parts.MEETING), _ADDRESSES_BYTES)
        return [json.loads(each.decode()) for each in told]

    def _start_servers(self, roles):
        from .tf_server import TfServers

        self.servers = TfServers(self._cluster, roles, self._context.give_up)
        self._tell_all([])  # all of them are up
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # the coordinator leaves the devices to its worker

    def enter(self):
        """Make the strategy, in the process that runs the cell."""
        import tensorflow as tf

        if self._context.is_chief:
            self._context.emit("notice", level="warning", message=_OPEN)
        if self._context.strategy == TF_ALLREDUCE:
            self.strategy = tf.distribute.MultiWorkerMirroredStrategy()
        else:
            resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
            self.strategy = tf.distribute.ParameterServerStrategy(resolver)

    def serve(self):
        """On a rank that runs no cell: until the coordinator's has ended. PeerLost where it did not come to its end."""
        try:
            self.wait_for_all()
        except parts.PeerLost:
            if self._context.stop_asked:
                raise StopRun from None
            raise

    def distribute(self, dataset):
        """A dataset that is this rank's share, as one of the strategy's, whose elements `strategy.run` takes."""
        return self.strategy.distribute_datasets_from_function(lambda _: dataset)

    def models(self, fitted, namespace):
        """What the cell has trained: the models that it has `fitted`, else those among its variables."""
        from . import tf_fit

        return fitted or tf_fit.models(namespace)

    def save_with_chief(self, fitted, namespace):
        """Take part where the chief reads its models: some variables are summed over the workers when they are read."""
        for index, model in enumerate(self.models(fitted, namespace)):
            model.get_weights()
            with contextlib.suppress(Exception):  # the chief says which models cannot be saved
                type(model).save(model, os.path.join(self._context.scratch, "captured-%d.keras" % index))

    def wait_for_all(self):
        """Until the cell has ended on every rank that runs it. PeerLost where that of one did not come to its end."""
        self._tell_all([])

    def abort(self):
        """End what TensorFlow waits for in other ranks, with an error: the run is to stop. From any thread."""
        if self._context.strategy == TF_ALLREDUCE:
            from tensorflow.python.eager import context

            context.context().abort_collective_ops(14, "the run was asked to stop")  # UNAVAILABLE

    def leave(self, goodbye):
        if self._ring is not None:
            self._ring.close(goodbye)
        if self.servers is not None:
            self.servers.close()


def is_of_a_peer(error):
    """Whether an exception is TensorFlow's for a process that it cannot reach any more."""
    return type(error).__name__ in ("UnavailableError", "AbortedError", "CancelledError")
