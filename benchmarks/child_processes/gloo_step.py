"""A rank of multi_host_step.py that sums the gradients by PyTorch's gloo, each bucket as soon as it is full.

    PYTHON -m benchmarks.child_processes.gloo_step RANK HOSTS STORE

PYTHON has PyTorch. STORE is a file by which the ranks find each other. Each first answers its rank. Every message is a
`Block`, the answer the mean seconds of one of its steps.
"""

from __future__ import annotations

import json
import os
import sys
import time

import torch
import torch.distributed

from benchmarks.child_processes.simulated_step import Block, compute


def run(block: Block, flat: torch.Tensor) -> float:
    """The mean seconds of a step. flat: the gradients, float32."""
    buckets = {last: flat[begin:end] for last, begin, end in block["buckets"]}
    torch.distributed.barrier()
    start = time.perf_counter()
    for _ in range(block["repeat"]):
        flat.fill_(1)
        under_way = [
            torch.distributed.all_reduce(buckets[layer], async_op=True) for layer in compute(block) if layer in buckets
        ]
        for each in under_way:
            each.wait()
        if flat[0] != torch.distributed.get_world_size() or flat[-1] != flat[0]:
            raise SystemExit(f"wrong sums: {flat}")
    return (time.perf_counter() - start) / block["repeat"]


def main() -> None:
    rank, hosts, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
    torch.set_num_threads(1)
    print(rank, flush=True)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=hosts)
    for line in sys.stdin:
        block: Block = json.loads(line)
        print(json.dumps(run(block, torch.empty(block["size"] // 4))), flush=True)


main()
