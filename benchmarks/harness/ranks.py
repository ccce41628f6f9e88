"""Ranks of the runtime on this host, without Spark: this process does what the driver and the supervisors do."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ddl_magics.runtime.cell import names
from ddl_magics.runtime.driver import server_process
from ddl_magics.runtime.rank import RankConfig
from ddl_magics.runtime.rank_end import RankEnd
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.runtime.transport import messages, wire
from ddl_magics.runtime.transport.credentials import Credentials

from .json_process import JsonProcess, close
from .network_hosts import Hosts

CREDENTIALS = Credentials("benchmark", b"of the benchmarks".ljust(32, b"."))
HOST = "127.0.0.1"


class Ranks:
    """`size` ranks that run a cell together. The cell has the standard input and output of its process.

    Args:
        cell: its source.
        size: number of ranks.
        folder: for their scratch files.
        environment: of their processes.
        strategy: as in --strategy.
        rule: as in --rule, or None.
        on_events: called with a rank and events that it has sent, on a thread of that rank.
        hosts: each rank is on one of them, and the ranks exchange gradients through their links.
        compression: as in --compression, or None.
        shard_optimizer: as in --shard-optimizer, or None.
        may_leave: as with --workers MIN..MAX. None does here.

    Attributes:
        processes: of the ranks, by rank.
    """

    def __init__(
        self,
        cell: str,
        size: int,
        folder: Path,
        environment: Mapping[str, str],
        strategy: str = "allreduce",
        rule: str | None = None,
        on_events: Callable[[int, list[dict[str, Any]]], None] | None = None,
        hosts: Hosts | None = None,
        compression: str | None = None,
        shard_optimizer: str | None = None,
        may_leave: bool = False,
    ) -> None:
        self._cell, self._size, self._strategy, self._rule = cell, size, strategy, rule
        self._on_events, self._hosts = on_events, hosts
        self._compression, self._shard_optimizer = compression, shard_optimizer
        self._may_leave = may_leave
        self._environment = {**environment, "KERAS_BACKEND": "tensorflow"}
        self._addresses: dict[int, wire.Address] = {}
        self._channels: list[wire.Channel] = []
        self._servers = self._start_servers() if strategy == "ps" else None
        self.processes: list[JsonProcess] = []
        for rank in range(size):
            self._start(rank, folder / f"rank-{rank}")
        for rank, channel in enumerate(self._channels):
            threading.Thread(target=self._receive, args=(rank, channel), daemon=True).start()

    def close(self) -> None:
        """End all processes: the ranks' standard input ends."""
        close(self.processes)
        if self._servers is not None:
            self._servers.close()

    def _start_servers(self) -> server_process.ParameterServers:
        return server_process.ParameterServers(
            CREDENTIALS, self._size, self._rule, 1, HOST, HOST, _print, lambda message: _print(message + "\n")
        )

    def _start(self, rank: int, scratch: Path) -> None:
        scratch.mkdir(parents=True)
        (scratch / "names.pkl").write_bytes(names.pack("", {}, {}))
        ours, theirs = socket.socketpair()
        descriptor = theirs.fileno()
        command = [sys.executable, "-m", "ddl_magics.runtime.executor.worker", str(descriptor), str(os.getpid())]
        if self._hosts is not None:
            command = self._hosts.command_of_machine(rank, scratch / "boot-id", command)
        self.processes.append(JsonProcess(command, self._environment, scratch, [descriptor]))
        theirs.close()
        channel = wire.Channel(ours, wire.Identity("rank", rank, 1))
        channel.send_json(messages.CONFIG, self._config(rank, scratch).to_json())
        self._channels.append(channel)

    def _config(self, rank: int, scratch: Path) -> RankConfig:
        return RankConfig(
            spec=RunSpec(
                cell=self._cell,
                strategy=self._strategy,
                workers=self._size,
                min_workers=1 if self._may_leave else None,
                seed=11,
                rule=self._rule,
                compression=self._compression,
                shard_optimizer=self._shard_optimizer,
            ),
            credentials=CREDENTIALS,
            driver=(HOST, 0),
            spark="none",
            executor_cores=(os.cpu_count() or 1) if self._hosts is None else 1,
            rank=rank,
            host=HOST if self._hosts is None else self._hosts.address(rank),
            scratch=str(scratch),
        )

    def _receive(self, rank: int, channel: wire.Channel) -> None:
        try:
            while True:
                kind, payload = channel.recv(messages.CHUNK_BYTES + (1 << 16))
                if kind == messages.RANK_READY:
                    self._ready(rank, messages.parse(payload)["address"])
                elif kind == messages.EVENTS and self._on_events:
                    self._on_events(rank, messages.parse(payload))
                elif kind == messages.RANK_ENDED:
                    failure = RankEnd.from_json(messages.parse(payload)).failure
                    if failure is not None:
                        print(f"rank {rank}: {failure.traceback or failure.message}", file=sys.stderr)
        except (wire.ConnectionLost, OSError):
            pass  # the rank has ended

    def _ready(self, rank: int, address: wire.Address) -> None:
        """Note the address of a rank; once all are known, send them to every rank."""
        self._addresses[rank] = address
        if len(self._addresses) < self._size:
            return
        peers = {
            "addresses": [self._addresses[each] for each in range(self._size)],
            "local_size": self._size if self._hosts is None else 1,
            "servers": self._servers.addresses if self._servers else None,
            "gpus": None,
        }
        for channel in self._channels:
            channel.send_json(messages.PEERS, peers)


def _print(text: str) -> None:
    print(text, end="", file=sys.stderr)
