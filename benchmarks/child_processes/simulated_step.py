"""The step of multi_host_step.py, of which only the sum over the hosts is real. Imports nothing of ddl_magics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TypedDict


class Block(TypedDict):
    """Steps in a row.

    way: of summing the gradients: "overlap", "tls", "bf16", "after", "server" or "gloo". size: of the gradients, in
    bytes. repeat: number of steps. forward, backward: seconds of a pass. layers: of the model, all of the same size.
    buckets: the last layer of each bucket, and its elements from where to where.
    """

    way: str
    size: int
    repeat: int
    forward: float
    backward: float
    layers: int
    buckets: list[tuple[int, int, int]]


def compute(block: Block) -> Iterator[int]:
    """The layers, each when its gradients are there: after the forward pass, one after the other. All by sleeping."""
    start, layers = time.perf_counter(), block["layers"]
    for layer in range(layers):
        at = start + block["forward"] + block["backward"] * (layer + 1) / layers
        time.sleep(max(0.0, at - time.perf_counter()))
        yield layer
