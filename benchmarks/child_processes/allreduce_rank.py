"""A rank of allreduce.py, in a Python that has what its transport needs.

    python -m benchmarks.child_processes.allreduce_rank TRANSPORT RANK PROCESSES STORE

TRANSPORT is one of allreduce.py. STORE begins the names of files: those by which the ranks find each other, and one
with their credentials where connections are encrypted. A message is {"bytes": of the buffer, "repeat": number of
all-reduces}, the answer the seconds of all of them together.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from ddl_magics.runtime.transport.wire import Address

Buffer = npt.NDArray[np.float32]
#: Prepares the all-reduce of a buffer, in place.
Prepare = Callable[[Buffer], Callable[[], object]]

CHECKED_ELEMENTS = 1_000_000
SHARED_MEMORY = "shared memory"


def gloo(rank: int, processes: int, store: str) -> Prepare:
    """By PyTorch's gloo."""
    import torch
    import torch.distributed

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # as the others
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=processes)

    def prepare(buffer: Buffer) -> Callable[[], object]:
        tensor = torch.from_numpy(buffer)
        return lambda: torch.distributed.all_reduce(tensor)

    return prepare


def ours(transport: str, rank: int, processes: int, store: str) -> Prepare:
    """By the runtime's collectives. SystemExit if they do not choose this transport here."""
    # Not at the top of the file: the environment of gloo has no ddl_magics.
    from ddl_magics.runtime.collectives import rendezvous
    from ddl_magics.runtime.collectives.announcement import STEP, Announcement
    from ddl_magics.runtime.collectives.peer_listener import PeerListener
    from ddl_magics.runtime.transport.credentials import Credentials

    file = Path(f"{store}.credentials")
    if file.exists():
        credentials = Credentials.from_json(json.loads(file.read_text()))
    else:
        credentials = Credentials("benchmark", b"of the benchmarks".ljust(32, b"."))
    listener = PeerListener("127.0.0.1", credentials, rank, 0, processes)
    # Ranks with the same host share memory; those with only the same first word use TCP over loopback.
    in_memory = transport.startswith(SHARED_MEMORY)
    host = "machine" if in_memory else f"machine container-{rank}"
    collective = rendezvous.connect(listener, _addresses(listener.address, rank, processes, store), host=host)
    if type(collective).__name__ != ("SharedMemory" if in_memory else "Ring"):
        raise SystemExit(f"no {transport} between processes of this machine")

    def in_halves(buffer: Buffer) -> None:
        bounds = [len(buffer) * part // processes for part in range(processes + 1)]
        collective.reduce_scatter(buffer, bounds, Announcement(STEP))
        collective.all_gather(buffer, bounds, Announcement(STEP))

    if transport.endswith("in halves"):
        return lambda buffer: lambda: in_halves(buffer)
    return lambda buffer: lambda: collective.allreduce(buffer, Announcement(STEP))


def _addresses(own: Address, rank: int, processes: int, store: str) -> list[Address]:
    """The addresses of all ranks: each writes its own into a file."""
    unfinished = Path(f"{store}-{rank}.part")
    unfinished.write_text(json.dumps(own))
    unfinished.rename(unfinished.with_suffix(".address"))
    files = [Path(f"{store}-{other}.address") for other in range(processes)]
    while not all(file.exists() for file in files):
        time.sleep(0.01)
    return [json.loads(file.read_text()) for file in files]


def main() -> None:
    transport, rank, processes, store = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    prepare = gloo(rank, processes, store) if transport == "gloo" else ours(transport, rank, processes, store)
    buffer = np.arange(CHECKED_ELEMENTS, dtype=np.float32) + np.float32(rank)
    allreduce = prepare(buffer)
    allreduce()
    if not (buffer == np.arange(CHECKED_ELEMENTS) * processes + sum(range(processes))).all():
        raise SystemExit(f"wrong sums by {transport}: {buffer}")
    for line in sys.stdin:
        block = json.loads(line)
        if buffer.nbytes != block["bytes"]:
            buffer = np.empty(block["bytes"] // 4, np.float32)
            buffer.fill(0)  # np.zeros would leave its pages to be touched later
            allreduce = prepare(buffer)
            allreduce()
        start = time.perf_counter()
        for _ in range(block["repeat"]):
            allreduce()
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main()
