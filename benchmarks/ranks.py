"""Ranks of the runtime on this host without Spark: their own processes, told what driver and supervisors would tell."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from ddl_magics.runtime import messages, names, server_process, wire

ROOT = Path(__file__).resolve().parents[1]
RUN, SECRET = "benchmark", b"of the benchmarks".ljust(32, b".")


class Ranks:
    """`size` ranks that train together by `cell`. `processes`: standard input and output are the caller's.

    folder: for their scratch files; environment: of their processes, before the runtime adds its own; rule: of the
    strategy, or None; on_events: called with the events (a list) that a rank has sent, from a thread of its own.
    """

    def __init__(
        self,
        cell: str,
        size: int,
        folder: Path,
        environment: dict[str, str],
        strategy: str = "allreduce",
        rule: str | None = None,
        on_events: Callable[[list[dict]], None] | None = None,
    ) -> None:
        self._cell, self._size, self._strategy, self._rule = cell, size, strategy, rule
        self._on_events = on_events
        self._environment = dict(environment, PYTHONPATH=str(ROOT), KERAS_BACKEND="tensorflow")
        self._addresses: dict[int, list] = {}
        self._channels = []
        self._servers = self._start_server() if strategy == "ps" else None
        self.processes = []
        for rank in range(size):
            self._start(rank, folder / f"rank-{rank}")
        for rank, channel in enumerate(self._channels):
            threading.Thread(target=self._hear, args=(rank, channel), daemon=True).start()

    def close(self, seconds: float = 30.0) -> None:
        """End them: their standard input ends, and what has not ended after `seconds` is killed."""
        for process in self.processes:
            process.stdin.close()
        for process in self.processes:
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()
        if self._servers is not None:
            self._servers.close()

    def _start_server(self) -> server_process.Servers:
        spec = {"run": RUN, "workers": self._size, "rule": self._rule}
        return server_process.Servers(spec, SECRET, "127.0.0.1", "127.0.0.1", lambda why: print(why, file=sys.stderr))

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
            "run": RUN,
            "secret": SECRET.hex(),
            "rank": rank,
            "size": self._size,
            "attempt": 1,
            "host": "127.0.0.1",
            "executor_cores": os.cpu_count(),
            "scratch": str(scratch),
            "cell": self._cell,
            "strategy": self._strategy,
            "rule": self._rule,
            "window": None,
            "manifest": None,
            "batch_size": None,
            "seed": 11,
            "spark": "none",
        }

    def _hear(self, rank: int, channel: wire.Channel) -> None:
        try:
            while True:
                kind, payload = channel.recv(messages.CHUNK_BYTES + (1 << 16))
                if kind == messages.READY:
                    self._ready(rank, messages.parse(payload)["address"])
                elif kind == messages.EVENTS and self._on_events:
                    self._on_events(messages.parse(payload))
                elif kind == messages.END and messages.parse(payload)["failure"]:
                    print(messages.parse(payload)["failure"], file=sys.stderr)
        except (wire.ConnectionLost, OSError):
            pass

    def _ready(self, rank: int, address: list) -> None:
        self._addresses[rank] = address
        if len(self._addresses) < self._size:
            return
        addresses = [self._addresses[each] for each in range(self._size)]
        servers = self._servers.addresses if self._servers else None
        for channel in self._channels:
            peers = {"addresses": addresses, "ranks_on_host": self._size, "servers": servers, "gpus": None}
            channel.send_json(messages.PEERS, peers)
