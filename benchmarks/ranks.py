"""Ranks of the runtime on this host without Spark: their own processes, told what driver and supervisors would tell."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

from ddl_magics.runtime import messages, names, wire

ROOT = Path(__file__).resolve().parents[1]
SECRET = b"of the benchmarks".ljust(32, b".")


def start(cell: str, size: int, folder: Path, environment: dict[str, str]) -> list[subprocess.Popen]:
    """Start `size` ranks that train together by `cell`; standard input and output are the caller's.

    folder: for their scratch files; environment: of their processes, before the runtime adds its own.
    """
    return _Ranks(cell, size, folder, environment).processes


class _Ranks:
    def __init__(self, cell: str, size: int, folder: Path, environment: dict[str, str]) -> None:
        self._cell, self._size = cell, size
        self._environment = dict(environment, PYTHONPATH=str(ROOT), KERAS_BACKEND="tensorflow")
        self._addresses: dict[int, list] = {}
        self._channels = []
        self.processes = []
        for rank in range(size):
            self._start(rank, folder / f"rank-{rank}")
        for rank, channel in enumerate(self._channels):
            threading.Thread(target=self._hear, args=(rank, channel), daemon=True).start()

    def _start(self, rank: int, scratch: Path) -> None:
        scratch.mkdir(parents=True)
        (scratch / "names.pkl").write_bytes(names.pack("", {}))
        ours, theirs = socket.socketpair()
        process = subprocess.Popen(
            [sys.executable, "-m", "ddl_magics.runtime.worker", str(theirs.fileno()), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=[theirs.fileno()],
            cwd=scratch,
            env=self._environment,
        )
        theirs.close()
        channel = wire.Channel(ours, wire.Identity("rank", rank, 1))
        channel.send_json(messages.CONFIG, self._config(rank, scratch))
        self.processes.append(process)
        self._channels.append(channel)

    def _config(self, rank: int, scratch: Path) -> dict:
        return {
            "run": "benchmark",
            "secret": SECRET.hex(),
            "rank": rank,
            "size": self._size,
            "attempt": 1,
            "host": "127.0.0.1",
            "executor_cores": os.cpu_count(),
            "scratch": str(scratch),
            "cell": self._cell,
            "strategy": "allreduce",
            "rule": None,
            "window": None,
            "manifest": None,
            "batch_size": None,
            "seed": 11,
        }

    def _hear(self, rank: int, channel: wire.Channel) -> None:
        try:
            while True:
                kind, payload = channel.recv(messages.CHUNK_BYTES + (1 << 16))
                if kind == messages.READY:
                    self._ready(rank, messages.parse(payload)["address"])
                elif kind == messages.END and messages.parse(payload)["failure"]:
                    print(messages.parse(payload)["failure"], file=sys.stderr)
        except (wire.ConnectionLost, OSError):
            pass

    def _ready(self, rank: int, address: list) -> None:
        self._addresses[rank] = address
        if len(self._addresses) < self._size:
            return
        addresses = [self._addresses[each] for each in range(self._size)]
        for channel in self._channels:
            peers = {"addresses": addresses, "ranks_on_host": self._size, "servers": None}
            channel.send_json(messages.PEERS, peers)
