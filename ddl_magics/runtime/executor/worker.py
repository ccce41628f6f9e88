"""A rank's process: finds its peers, runs the cell, and reports how it ended.

The supervisor starts it with the number of a socket and its own process number; with further arguments it is a
prewarmed process, which forks ranks (prewarmed_process.py). Otherwise nothing heavy is imported before the peers are
known: the number of threads that TensorFlow may use depends on how many ranks share the host.
"""

from __future__ import annotations

import os
import platform
import queue
import socket
import sys
import threading
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Mapping

from .. import events, strategies
from ..checkpoints.checkpoint import Position
from ..data import file_share
from ..files.working_folder import WorkingFolder
from ..parent_death import die_with_parent
from ..provenance import packages
from ..rank.config import JobConfig, RankConfig
from ..rank_end import RankEnd
from ..spark import gpus
from ..spark.executor_id import executor_of
from ..transport import messages, wire
from ..transport.incoming import IncomingFile
from . import process_state

if TYPE_CHECKING:
    from ..collectives.peer_listener import PeerListener
    from ..rank.rank import Rank


def main() -> None:
    descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
    channel = wire.Channel(socket.socket(fileno=descriptor), wire.Identity("supervisor", -1, 0))
    if sys.argv[3:]:
        from . import prewarmed_process

        home, seconds, most_bytes = sys.argv[3:]
        channel, parent = prewarmed_process.wait(channel, parent, home, seconds, most_bytes)
    _die_with(parent)
    config = RankConfig.from_json(messages.parse(channel.recv()[1]))
    rank_end = _Worker(config, channel).run()
    sys.stdout.flush()
    sys.stderr.flush()
    channel.send_json(messages.RANK_ENDED, rank_end.to_json())
    channel.close()
    os._exit(0)  # threads that the cell left running must not keep a slot


def _die_with(parent: int) -> None:
    """Be killed when the supervisor dies, also if that has happened already."""
    die_with_parent()  # where it cannot, the closed socket ends this process
    if os.getppid() != parent:
        os._exit(1)


def thread_settings(config: JobConfig, peers: Mapping[str, Any]) -> dict[str, str]:
    """The variables that bound the threads of a rank to its share of the host's cores. peers: the driver's PEERS."""
    cores = min(os.cpu_count() or 1, max(1, config.executor_cores))
    local_size = peers["local_size"]
    threads = max(1, min(cores, (os.cpu_count() or 1) // local_size))
    # Between hosts gradients leave while others are being computed (overlap.py), which takes a second thread.
    least = 1 if local_size == config.workers else 2
    return {
        "OMP_NUM_THREADS": str(threads),
        "TF_NUM_INTRAOP_THREADS": str(threads),
        "TF_NUM_INTEROP_THREADS": str(max(threads, least)),
    }


class _Worker:
    def __init__(self, config: RankConfig, channel: wire.Channel) -> None:
        self._config, self._channel = config, channel
        self._peers_known = threading.Event()
        self._peers: Mapping[str, Any] = {}
        self._groups: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()  # what the driver says of them
        self._rank: Rank | None = None
        self._stop_asked = False
        self._device: str | None = None  # that trains, if it is no CPU

    def run(self) -> RankEnd:
        process_state.offer_stack(self._config.scratch)
        config = self._config
        files = WorkingFolder(config.scratch, config.spec.folder, config.is_chief)
        files.begin()
        number, _ = config.share_of_data(config.rank)
        reading = file_share.begin(config.manifest, config.scratch, number, config.executor_cores)
        listener = self._meet()
        config = self._config  # a rank that joins has learned what the others have trained
        threads = self._limit_threads()
        os.environ.update(gpus.environment(self._peers["gpus"]))  # CUDA reads it when it is first used
        self._report_state(events.WORKER_LOADING, threads)
        from ..cell import ending, execution
        from ..rank import pulse
        from ..rank.rank import Rank
        from . import startup

        rank = self._rank = Rank(config, self._channel, files)
        rank.reading = reading
        pulse.start(rank, self._channel)
        if self._stop_asked:  # before there was a rank to ask
            rank.stop.ask()

        def train() -> None:
            startup.connect(rank, self._peers, listener, self._channel, self._groups)
            if rank.cluster is not None and not rank.cluster.runs_cell:
                self._report_state("serving", threads)
                return rank.cluster.serve()
            self._device = startup.prepare(rank)
            self._report_state("running", threads, versions=self._versions())
            execution.run(rank)

        rank_end = ending.observe(train, rank)
        self._report_state(rank_end.outcome, threads)
        rank.leave(rank_end.outcome)
        return rank_end

    def _meet(self) -> PeerListener | None:
        """Announce this rank's address; returns once the peers' are known: its listener, if ranks reach each other."""
        listener, config = None, self._config
        meets = config.spec.strategy in strategies.COLLECTIVE or config.manifest is not None  # for all rows of --data
        if meets and config.workers > 1:
            from ..collectives.peer_listener import PeerListener

            listener = PeerListener(config.host, config.credentials, config.rank, config.attempt, config.workers)
        threading.Thread(target=self._listen, daemon=True).start()
        self._report_state(events.WORKER_STARTING, 1)
        address = list(listener.address) if listener else None
        self._channel.send_json(messages.RANK_READY, {"address": address})
        if config.spec.provenance is not False:  # while the rank waits anyway
            environment = events.make("environment", config.rank, packages=packages.installed())
            self._channel.send_json(messages.EVENTS, [environment])
        self._peers_known.wait()
        if self._peers.get("resume") is not None:
            self._config = replace(config, resume=tuple(Position(*position) for position in self._peers["resume"]))
        if self._peers.get("reported") is not None:
            reported = {int(fit): history for fit, history in self._peers["reported"].items()}
            self._config = replace(self._config, reported=reported)
        return listener

    def _listen(self) -> None:
        """Read what the driver sends, until the supervisor is gone."""
        checkpoint: IncomingFile | None = None
        try:
            while True:
                kind, payload = self._channel.recv()
                if kind == messages.CHECKPOINT:
                    checkpoint = self._incoming(messages.parse(payload))
                elif kind == messages.PIECE and checkpoint is not None:
                    if checkpoint.write(payload) and checkpoint.problem is not None:
                        print("the checkpoint cannot be stored here:", checkpoint.problem, file=sys.stderr, flush=True)
                        raise checkpoint.problem
                elif kind == messages.GROUP or (kind == messages.PEERS and self._peers_known.is_set()):
                    self._groups.put((kind, messages.parse(payload)))
                elif kind == messages.JOINS:
                    regrouping = self._rank.peers.regrouping if self._rank is not None else None
                    if regrouping is not None:
                        regrouping.is_asked = True
                elif kind == messages.PEERS:
                    self._peers = messages.parse(payload)
                    self._peers_known.set()
                elif kind == messages.STOP:
                    self._stop_asked = True
                    if self._rank is not None:
                        self._rank.stop.ask()
        except (wire.ConnectionLost, wire.ProtocolError, OSError):
            os._exit(1)
        except Exception:  # a checkpoint that arrived damaged: a rank that does not listen would wait for ever
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)

    def _incoming(self, header: Mapping[str, Any]) -> IncomingFile:
        """A checkpoint that this attempt continues from, as a file."""
        folder = os.path.join(self._config.scratch, "checkpoints")
        os.makedirs(folder, exist_ok=True)
        return IncomingFile(os.path.join(folder, header["name"]), header)

    def _limit_threads(self) -> int:
        settings = thread_settings(self._config, self._peers)
        for name, value in settings.items():
            os.environ.setdefault(name, value)
        return int(settings["OMP_NUM_THREADS"])

    def _versions(self) -> dict[str, str]:
        import keras
        import tensorflow

        packages = {"tensorflow": tensorflow.__version__, "keras": keras.__version__, "spark": self._config.spark}
        return dict(packages, python=platform.python_version())

    def _report_state(self, state: str, threads: int, **fields: Any) -> None:
        from . import telemetry

        executor = executor_of(os.getpid())
        if executor:
            fields["executor"] = executor
        event = events.make(
            "worker",
            self._config.rank,
            host=socket.gethostname(),
            pid=os.getpid(),
            device=self._device or telemetry.device_name(None, threads),
            state=state,
            cores=threads,
            **fields,
        )
        self._channel.send_json(messages.EVENTS, [event])


if __name__ == "__main__":
    main()
