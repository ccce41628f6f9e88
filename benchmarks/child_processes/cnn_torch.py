"""The training of cnn_keras.py in PyTorch: the same network, loss, optimizer, messages and answers.

    python -m benchmarks.child_processes.cnn_torch alone | ddp RANK PROCESSES STORE

ddp: DistributedDataParallel over gloo; STORE is a file by which its processes find each other. The data stand ready in
memory.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Module = Any  # PyTorch is not installed where types are checked


def network() -> Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(1600, 419),
        nn.ReLU(),
        nn.Linear(419, 10),
    )


def serve(workers: int, wrap: Callable[[Module], Module]) -> None:
    models: dict[int, tuple[Module, Any]] = {}
    loss = nn.CrossEntropyLoss()
    for line in sys.stdin:
        block = json.loads(line)
        batch, steps = block["batch"] // workers, block["steps"]
        if batch not in models:
            model = wrap(network())
            models[batch] = model, torch.optim.Adam(model.parameters(), 1e-3)
        model, optimizer = models[batch]
        x = torch.rand(batch * steps, 1, 28, 28)
        y = x[:, 0, 0, :10].argmax(1)
        cpu, seconds = -time.process_time(), -time.perf_counter()
        order = torch.randperm(len(x))
        for step in range(steps):
            rows = order[step * batch : (step + 1) * batch]
            optimizer.zero_grad()
            loss(model(x[rows]), y[rows]).backward()
            optimizer.step()
        seconds += time.perf_counter()
        cpu += time.process_time()
        print(json.dumps({"seconds": seconds, "cpu": cpu}), flush=True)


def main() -> None:
    if "OMP_NUM_THREADS" in os.environ:
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    if sys.argv[1] == "alone":
        serve(1, lambda model: model)
        return
    rank, processes, store = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=processes)
    serve(processes, nn.parallel.DistributedDataParallel)


main()
