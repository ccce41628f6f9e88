"""A rank's process: finds its peers, runs the cell, and says how it ended.

Started by the supervisor with the number of a socket and its own process number; with further arguments it waits
first, as a spare (spare.py). Else nothing heavy is imported before the peers are known: the number of threads that
TensorFlow may use depends on how many ranks share the host.
"""

import ctypes
import os
import platform
import signal
import socket
import sys
import threading

from . import events, gpus, messages, strategies, wire
from .incoming import Incoming

_PR_SET_PDEATHSIG = 1


def main():
    descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
    channel = wire.Channel(socket.socket(fileno=descriptor), wire.Identity("supervisor", -1, 0))
    if sys.argv[3:]:
        from . import spare

        spare.wait(channel, parent, *sys.argv[3:])
    _die_with(parent)
    config = messages.parse(channel.recv()[1])
    end = _Worker(config, channel).run()
    sys.stdout.flush()
    sys.stderr.flush()
    channel.send_json(messages.END, end)
    channel.close()
    os._exit(0)  # threads that the cell left running must not keep a slot


def _die_with(parent):
    """Be killed when the supervisor dies, also if that has happened already."""
    try:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        pass  # not Linux: the closed socket ends this process instead
    if os.getppid() != parent:
        os._exit(1)


def thread_settings(config, peers):
    """The variables that bound the threads of a rank to its share of the host's cores. peers: what PEERS says."""
    cores = min(os.cpu_count() or 1, max(1, config["executor_cores"]))
    here = peers["ranks_on_host"]
    threads = max(1, min(cores, (os.cpu_count() or 1) // here))
    # Between hosts gradients leave while others are being computed (overlap.py), which takes a second thread.
    beside = 1 if here == config["size"] else 2
    return {
        "OMP_NUM_THREADS": str(threads),
        "TF_NUM_INTRAOP_THREADS": str(threads),
        "TF_NUM_INTEROP_THREADS": str(max(threads, beside)),
    }


class _Worker:
    def __init__(self, config, channel):
        self._config, self._channel = config, channel
        self._peers_known = threading.Event()
        self._peers = None
        self._rank = None  # set once the cell's context exists
        self._stop_asked = False

    def run(self):
        """Returns the payload of the END frame."""
        place = self._meet()
        threads = self._limit_threads()
        os.environ.update(gpus.environment(self._peers["gpus"]))  # CUDA reads it when it is first used
        self._tell_state("loading TensorFlow", threads)
        from . import cell, outcome, rank

        context = self._rank = rank.Rank(self._config, self._channel)
        if self._stop_asked:  # before there was a context to tell
            context.ask_to_stop()

        def train():
            context.connect(self._peers, place)
            if context.cluster is not None and not context.cluster.runs_cell:
                self._tell_state("serving", threads)
                return context.cluster.serve()
            self._tell_state("running", threads, device=context.prepare(), versions=self._versions())
            cell.run(self._config, context)

        end = outcome.observe(train, context)
        self._tell_state(end["outcome"], threads)
        context.leave(end["outcome"])
        return end

    def _meet(self):
        """Announce this rank's address; returns once the peers' are known: its `Place`, or None."""
        place = None
        config = self._config
        if config["strategy"] in strategies.COLLECTIVE and config["size"] > 1:
            from .place import Place

            place = Place(
                config["host"],
                bytes.fromhex(config["secret"]),
                config["run"],
                config["rank"],
                config["attempt"],
                config["size"],
            )
        threading.Thread(target=self._listen, daemon=True).start()
        self._tell_state("starting", 1)
        address = list(place.address) if place else None
        self._channel.send_json(messages.READY, {"address": address})
        self._peers_known.wait()
        return place

    def _listen(self):
        """What the driver says, until the supervisor is gone."""
        checkpoint = None
        try:
            while True:
                kind, payload = self._channel.recv()
                if kind == messages.CHECKPOINT:
                    checkpoint = self._incoming(messages.parse(payload))
                elif kind == messages.PIECE:
                    checkpoint.write(payload)
                elif kind == messages.PEERS:
                    self._peers = messages.parse(payload)
                    self._peers_known.set()
                elif kind == messages.STOP:
                    self._stop_asked = True
                    if self._rank is not None:
                        self._rank.ask_to_stop()
        except (wire.ConnectionLost, wire.ProtocolError, OSError):
            os._exit(1)

    def _incoming(self, header):
        """Where a checkpoint that this attempt goes on from is written."""
        folder = os.path.join(self._config["scratch"], "checkpoints")
        os.makedirs(folder, exist_ok=True)
        return Incoming(os.path.join(folder, header["name"]), header)

    def _limit_threads(self):
        settings = thread_settings(self._config, self._peers)
        for name, value in settings.items():
            os.environ.setdefault(name, value)
        return int(settings["OMP_NUM_THREADS"])

    def _versions(self):
        import keras
        import tensorflow

        packages = {"tensorflow": tensorflow.__version__, "keras": keras.__version__, "spark": self._config["spark"]}
        return dict(packages, python=platform.python_version())

    def _tell_state(self, state, threads, device=None, **more):
        from . import telemetry

        event = events.make(
            "worker",
            self._config["rank"],
            host=socket.gethostname(),
            pid=os.getpid(),
            device=device or telemetry.device_name(None, threads),
            state=state,
            cores=threads,
            **more,
        )
        self._channel.send_json(messages.EVENTS, [event])


if __name__ == "__main__":
    main()
