"""A process of b2.py, in the Python that has what it needs: allreduce_process.py TRANSPORT RANK PROCESSES STORE.

Told by lines of JSON {"bytes", "repeat"} to do all-reduces; answers each with the seconds that they took together.
STORE is a file name, of its own for each team, by which the processes find each other.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

SECRET = b"of the benchmarks".ljust(32, b".")


def gloo(rank, processes, store):
    """What sums a buffer of numpy's with PyTorch's gloo."""
    import torch
    import torch.distributed

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # as the others
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=processes)

    def prepare(buffer):
        tensor = torch.from_numpy(buffer)
        return lambda: torch.distributed.all_reduce(tensor)

    return prepare


def ours(transport, rank, processes, store):
    """What sums a buffer over the transport named."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from ddl_magics.runtime import parts, rendezvous
    from ddl_magics.runtime.place import Place

    place = Place("127.0.0.1", SECRET, "benchmark", rank, 0, processes)
    host = "machine" if transport == "shared memory" else f"machine container-{rank}"
    collective = rendezvous.connect(place, _exchange(place.address, rank, processes, store), host=host)
    if type(collective).__name__ != {"tcp": "Ring", "shared memory": "SharedMemory"}[transport]:
        raise SystemExit(f"no {transport} here")
    return lambda buffer: lambda: collective.allreduce(buffer, parts.Part(parts.STEP))


def _exchange(address, rank, processes, store):
    """The addresses of all, which each writes into a file of its own."""
    mine = Path(f"{store}-{rank}.part")
    mine.write_text(json.dumps(address))
    mine.rename(mine.with_suffix(".address"))
    files = [Path(f"{store}-{other}.address") for other in range(processes)]
    while not all(file.exists() for file in files):
        time.sleep(0.01)
    return [json.loads(file.read_text()) for file in files]


def main():
    transport, rank, processes, store = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    prepare = gloo(rank, processes, store) if transport == "gloo" else ours(transport, rank, processes, store)
    buffer = np.arange(1_000_000, dtype=np.float32) + rank
    prepare(buffer)()
    assert (buffer == np.arange(1_000_000) * processes + sum(range(processes))).all()
    for line in sys.stdin:
        told = json.loads(line)
        if buffer.nbytes != told["bytes"]:
            buffer = np.empty(told["bytes"] // 4, np.float32)
            buffer.fill(0)
            allreduce = prepare(buffer)
            allreduce()
        start = time.perf_counter()
        for _ in range(told["repeat"]):
            allreduce()
        print(time.perf_counter() - start, flush=True)


main()
