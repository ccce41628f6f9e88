"""The training of b1.py in PyTorch: cnn_torch.py alone, or cnn_torch.py ddp RANK PROCESSES STORE with gloo.

Told and answering as cnn_keras.py is, with the same network, loss and optimizer; data are ready in memory.
"""

import json
import os
import sys
import time

import torch
from torch import nn


def network():
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


def serve(workers, wrap):
    models = {}
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


def main():
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
