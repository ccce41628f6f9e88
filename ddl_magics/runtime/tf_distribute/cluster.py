"""tf-allreduce and tf-ps: a cluster of TensorFlow's own, for cells written for tf.distribute.

tf-allreduce: every rank is a worker of MultiWorkerMirroredStrategy, and runs the cell. tf-ps: rank 0 is the coordinator
of ParameterServerStrategy, and runs the cell; beside each rank a process of its own is a
worker, and beside some another one is a parameter server (server.py). TensorFlow's processes talk to each other: this
library finds their ports, gives the cell its `strategy`, and has them end together.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from typing import TYPE_CHECKING, Any, Callable, Sequence

from ..collectives.announcement import RENDEZVOUS, Announcement, PeerLost
from ..keras_types import Dataset, Model
from ..rank.rank import Rank
from ..stopping import StopRun
from ..strategies import TF_ALLREDUCE, TF_PS

if TYPE_CHECKING:
    from .server import TfServers

_ADDRESSES_BYTES = 1 << 16
#: A server with fewer can come to wait for itself: some of its operations hold a thread while they wait for others.
INTEROP_THREADS = 4
_OPEN = (
    "TensorFlow's own connections between the workers are neither authenticated nor encrypted, and listen on all "
    "interfaces of their hosts: docs/security.md"
)


def roles(strategy: str, rank: int, size: int, servers: int) -> list[tuple[str, int]]:
    """A rank's processes in TensorFlow's cluster: [(job, task)]. servers: number of parameter servers of tf-ps."""
    if strategy == TF_ALLREDUCE:
        return [("worker", rank)]
    chief = [("chief", 0)] if rank == 0 else []
    return chief + [("worker", rank)] + [("ps", task) for task in range(servers) if (size - 1 - task) % size == rank]


def reserve() -> socket.socket:
    """A socket that is bound to a free port and does not listen: while it is open, no other user can have the port.

    TensorFlow's server can, as SO_REUSEPORT is set here, and there by TF_GRPC_REUSE_PORT. The port is taken on all
    addresses, as TensorFlow's server takes it: on one, another process could have it on another.
    """
    reserved = socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if reserved.family == socket.AF_INET6:
        reserved.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    reserved.bind(("", 0))
    return reserved


def cluster_of(announced: Sequence[Sequence[Sequence[Any]]]) -> dict[str, list[str]]:
    """TensorFlow's ClusterSpec, {job: [address of each task]}, of every rank's [[job, task, address]]."""
    tasks: dict[str, list[str]] = {}
    for job, _, address in sorted(tuple(role) for roles_of_rank in announced for role in roles_of_rank):
        tasks.setdefault(job, []).append(address)
    return tasks


class TfCluster:
    """A rank's part of it. Made before TensorFlow is imported, `enter`ed before it computes anything.

    strategy: the cell's tf.distribute strategy, once there is one.
    """

    #: A stop interrupts Python. A rank whose peer has left that way waits in TensorFlow, for this long at most.
    STOP_SECONDS = 3.0

    def __init__(self, rank: Rank, give_up: Callable[[Exception], None]) -> None:
        """give_up(error) ends this process; any thread may call it."""
        self._config, self._reporter, self._stop, self._give_up = rank.config, rank.reporter, rank.stop, give_up
        config = rank.config
        own_roles = roles(config.spec.strategy, config.rank, config.workers, config.spec.ps or 1)
        os.environ["TF_GRPC_REUSE_PORT"] = "true"
        threads = int(os.environ.get("TF_NUM_INTEROP_THREADS") or 0)
        os.environ["TF_NUM_INTEROP_THREADS"] = str(max(threads, INTEROP_THREADS))
        self._reserved = [reserve() for _ in own_roles]
        host = "[%s]" % config.host if ":" in config.host else config.host
        ports = [reserved.getsockname()[1] for reserved in self._reserved]
        addresses = [[job, task, "%s:%d" % (host, port)] for (job, task), port in zip(own_roles, ports)]
        self._ring = rank.peers.ring
        self._cluster = cluster_of(self._gather(addresses))
        self.strategy: Any = None
        self.servers: TfServers | None = None
        if config.spec.strategy == TF_PS:
            rank.peers.ring = None  # the others serve, and take no part in anything
            self._start_servers([role for role in own_roles if role[0] != "chief"])
        if self.runs_cell:
            job, task = own_roles[0]
            os.environ["TF_CONFIG"] = json.dumps({"cluster": self._cluster, "task": {"type": job, "index": task}})

    @property
    def runs_cell(self) -> bool:
        return self._config.spec.strategy == TF_ALLREDUCE or self._config.is_chief

    def _gather(self, value: list[Any]) -> list[Any]:
        """Every rank's `value`, in order of rank. All ranks wait for each other."""
        if self._ring is None:
            return [value]
        gathered = self._ring.gather(json.dumps(value).encode(), Announcement(RENDEZVOUS), _ADDRESSES_BYTES)
        return [json.loads(payload.decode()) for payload in gathered]

    def _start_servers(self, roles: Sequence[tuple[str, int]]) -> None:
        from .server import TfServers

        self.servers = TfServers(self._cluster, roles, self._give_up)
        self._gather([])  # all of them are up
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # the coordinator leaves the devices to its worker

    def enter(self) -> None:
        """Make the strategy, in the process that runs the cell."""
        import tensorflow as tf

        if self._config.is_chief:
            self._reporter.notice("warning", _OPEN)
        if self._config.spec.strategy == TF_ALLREDUCE:
            self.strategy = tf.distribute.MultiWorkerMirroredStrategy()
        else:
            resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
            self.strategy = tf.distribute.ParameterServerStrategy(resolver)

    def serve(self) -> None:
        """On a rank that runs no cell: until the coordinator's has ended. PeerLost if that rank is lost before."""
        try:
            self.wait_for_all()
        except PeerLost:
            if self._stop.asked:
                raise StopRun from None
            raise

    def distribute(self, dataset: Dataset) -> Dataset:
        """This rank's share as a dataset of the strategy, for `strategy.run`."""
        return self.strategy.distribute_datasets_from_function(lambda _: dataset)

    def models(self, fitted: list[Model], namespace: dict[str, Any]) -> list[Model]:
        """The models that the cell has trained: those that it has `fitted`, else those among its variables."""
        from . import fit

        return fitted or fit.models(namespace)

    def save_with_chief(self, fitted: list[Model], namespace: dict[str, Any]) -> None:
        """Take part while the chief reads its models: reading sums some variables over the workers."""
        for index, model in enumerate(self.models(fitted, namespace)):
            model.get_weights()
            with contextlib.suppress(Exception):  # the chief says which models cannot be saved
                type(model).save(model, os.path.join(self._config.scratch, "captured-%d.keras" % index))

    def wait_for_all(self) -> None:
        """Until the cell has ended on every rank that runs it. PeerLost if a rank is lost before."""
        self._gather([])

    def abort(self) -> None:
        """End TensorFlow's wait for other ranks with an error, as the run is to stop. From any thread."""
        if self._config.spec.strategy == TF_ALLREDUCE:
            from tensorflow.python.eager import context

            context.context().abort_collective_ops(14, "the run was asked to stop")  # UNAVAILABLE

    def leave(self, goodbye: str) -> None:
        if self._ring is not None:
            self._ring.close(goodbye)
        if self.servers is not None:
            self.servers.close()


def is_of_a_peer(error: BaseException) -> bool:
    """Whether an exception is TensorFlow's for a process that it no longer reaches."""
    return type(error).__name__ in ("UnavailableError", "AbortedError", "CancelledError")
