"""A run that goes on for long: what a notebook of the browser tests begins in its kernel, on a cluster that replays."""

import threading
import time

from support.fake_cluster import FakeCluster, training

from ddl_magics.options.parsing import parse
from ddl_magics.runs.run import Run
from ddl_magics.session.session import Session

#: Events of an epoch of two workers, and how often one comes.
EPOCH_EVENTS = 5
EPOCH_SECONDS = 0.5


def begin(name: str, epochs: int = 400) -> Run:
    """A run of two workers that moves twice a second; it is stopped long before its end."""
    cluster = FakeCluster(list(training(epochs)))
    cluster.poll_seconds = EPOCH_SECONDS
    cluster.visible = 8
    threading.Thread(target=_move, args=(cluster,), daemon=True).start()
    return Session(cluster).submit(parse(f"--name {name}"), {})


def _move(cluster: FakeCluster) -> None:
    while cluster.visible < len(cluster.script):
        time.sleep(EPOCH_SECONDS)
        for event in cluster.script[cluster.visible : cluster.visible + EPOCH_EVENTS]:
            event["time"] = time.time()
        cluster.visible += EPOCH_EVENTS
