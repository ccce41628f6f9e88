"""A rank before its cell runs: it meets its peers, then imports TensorFlow and hooks Keras."""

from __future__ import annotations

import os
import queue
import threading
import warnings
from typing import Any, Mapping

from .. import strategies
from ..collectives.collective import SingleRank
from ..collectives.peer_listener import PeerListener
from ..rank.rank import Rank
from ..rank.regrouping import Regrouping
from ..tf_distribute.cluster import TfCluster
from ..transport import wire
from . import loading, telemetry

SERVER_SECONDS = 30.0


def connect(
    rank: Rank,
    peers: Mapping[str, Any],
    listener: PeerListener | None,
    channel: wire.Channel,
    groups: queue.SimpleQueue[tuple[int, Any]],
) -> None:
    """Meet the peers.

    peers: the driver's PEERS; listener: where they reach this rank, if they do. channel, groups: as `Regrouping` has
    them.
    """
    config = rank.config
    if config.regroups:
        rank.peers.regrouping = Regrouping(config, channel, groups)
        rank.peers.regrouping.has_joined = not peers.get("joins")
    if config.regroups and (peers.get("joins") or listener is None):
        if listener is not None:
            listener.close()
        rank.peers.ring = SingleRank()
    elif listener is not None and config.spec.strategy in strategies.COLLECTIVE:
        from ..collectives import rendezvous

        rank.peers.ring = rendezvous.connect(listener, peers["addresses"])
    elif listener is not None:
        rank.peers.stay_apart(listener, peers["addresses"])
    if config.spec.strategy == "ps":
        from ..parameter_server import shards

        rank.server = shards.connect(peers["servers"], config.credentials, config.rank, config.attempt, SERVER_SECONDS)
        if config.changes:
            rank.peers.sharers = range(config.workers)
    if config.uses_tf_distribute:
        rank.cluster = cluster = TfCluster(rank, lambda error: give_up(rank, error))
        rank.stop.on_asked = lambda: _abort_later(rank, cluster)


def _abort_later(rank: Rank, cluster: TfCluster) -> None:
    """End what TensorFlow waits for, unless the cell has been interrupted by then."""

    def abort() -> None:
        if rank.stop.in_cell and not rank.stop.fitting:
            cluster.abort()

    timer = threading.Timer(cluster.STOP_SECONDS, abort)
    timer.daemon = True
    timer.start()


def prepare(rank: Rank) -> str | None:
    """Import TensorFlow, seed all ranks of a model alike, install the hooks. Returns the device's name, or None."""
    with loading.without_collection():
        import keras
        import tensorflow as tf

    # Said of every dataset, as `fit` has shuffle=True for a default, and of every model that was not trained yet.
    warnings.filterwarnings("ignore", "`shuffle=True` was passed, but will be ignored")
    warnings.filterwarnings("ignore", "Skipping variable loading for optimizer")
    warnings.filterwarnings("ignore", "Seed .* from outer graph might be getting used")  # the run's
    config = rank.config
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    keras.utils.set_random_seed(config.rank_seed % 2**32)
    if rank.cluster is not None:
        from ..tf_distribute import fit

        rank.cluster.enter()
        fit.install(rank)
    else:
        from ..training import keras_fit

        keras_fit.install(rank)
    if not gpus:
        if config.gpus and config.spec.strategy != strategies.TF_PS:  # whose worker is another process
            message = "Spark gave this worker GPU %s, and TensorFlow sees none: it needs a build for GPUs, and CUDA"
            rank.reporter.notice("warning", message % ", ".join(config.gpus))
        return None
    details = tf.config.experimental.get_device_details(gpus[0])
    return details.get("device_name") or telemetry.device_name(None, 1)


def give_up(rank: Rank, error: BaseException) -> None:
    """End this process with `error` as the reason that its rank failed. From any thread."""
    from ..cell import ending

    rank.reporter.send_end(ending.of_error(error, rank))
    os._exit(1)
