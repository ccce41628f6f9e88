"""What ranks share beside gradients: logs, weights at the start, values of the cell."""

from __future__ import annotations

from typing import Any, Collection, Iterator, Sequence

import numpy as np

from .. import strategies
from ..collectives.announcement import EPOCH, USER, WEIGHTS
from ..keras_types import array_of
from ..rank.peers import Peers
from ..stopping import STOP_FIT

#: Weights that are sent at once.
GROUP_BYTES = 16 << 20


def flat(variables: Sequence[Any]) -> np.ndarray:
    """The values of variables, one after the other, in a new flat buffer of the widest of their dtypes."""
    return np.concatenate([np.asarray(variable).reshape(-1) for variable in variables])


def assign(variables: Sequence[Any], flat: np.ndarray) -> None:
    """Fill variables, one after the other, from a flat buffer of as many numbers, which are cast to their dtypes."""
    for variable, value in _pieces(variables, flat):
        variable.assign(value)


def add(variables: Sequence[Any], flat: np.ndarray) -> None:
    """Add a flat buffer of as many numbers to variables, one after the other, cast to their dtypes."""
    for variable, value in _pieces(variables, flat):
        variable.assign_add(value)


def _pieces(variables: Sequence[Any], flat: np.ndarray) -> Iterator[tuple[Any, np.ndarray]]:
    begin = 0
    for variable in variables:
        count = int(np.prod(variable.shape))
        value = flat[begin : begin + count].reshape(tuple(variable.shape))
        name = variable.dtype if isinstance(variable.dtype, str) else variable.dtype.name
        yield variable, value.astype(np.float32 if name in ("bfloat16", "float16") else name)
        begin += count


def mean_logs(peers: Peers, kind: int, logs: dict[str, Any], rows: int, sums: Collection[str] = ()) -> dict[str, float]:
    """Numbers that a custom step returned, as the mean over ranks, weighted by the `rows` of each one's last step.

    sums: the names of those that are summed over ranks instead.
    """
    names = sorted(logs)
    weight = float(rows)
    values = [float(np.asarray(logs[name])) if weight else 0.0 for name in names]
    factors = [1.0 if name in sums else weight for name in names]
    flat = np.array([factor * value for factor, value in zip(factors, values)] + [weight], np.float64)
    peers.allreduce(flat, kind)
    return {name: total if name in sums else total / flat[-1] for name, total in zip(names, flat)}


def agree_on_stop(peers: Peers) -> list[bool]:
    """At the end of an epoch, or of a batch: learn whether any rank wants to stop.

    Returns whether the callbacks of each rank have stopped the fit.
    """
    return [bool(announced.flags & STOP_FIT) for announced in peers.allreduce(np.zeros(1), EPOCH)]


def broadcast_weights(peers: Peers, weights: Sequence[Any]) -> None:
    """Give `weights` (variables) the values that they have on rank 0, to the bit.

    Shapes and dtypes must be the same on all ranks. `Diverged` names a rank that is elsewhere, `PeerLost` one
    that left.
    """
    for group in _groups(weights):
        _broadcast(peers, group)


def _groups(weights: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Those that are sent at once, which is in memory once more: of `GROUP_BYTES`, or a single one. At least one group.

    All ranks make the same ones.
    """
    group: list[Any] = []
    free_bytes = GROUP_BYTES
    for variable in weights:
        size = array_of(variable).nbytes
        if group and size > free_bytes:
            yield group
            group, free_bytes = [], GROUP_BYTES
        group.append(variable)
        free_bytes -= size
    yield group


def _broadcast(peers: Peers, weights: Sequence[Any]) -> None:
    values = [np.ascontiguousarray(array_of(variable)) for variable in weights]
    flat = np.concatenate([value.reshape(-1).view(np.uint8) for value in values] or [np.zeros(0, np.uint8)])

    def make() -> list[np.ndarray]:
        received = flat if peers.regrouping is None else flat.copy()  # what a lost rank has sent in part is no value
        peers.collective.broadcast(received, peers.announcement(WEIGHTS))
        return [received]

    (flat,) = peers.complete(make, repeats=True)
    if peers.position == 0:
        return
    begin = 0
    for variable, value in zip(weights, values):
        variable.assign(flat[begin : begin + value.nbytes].view(value.dtype).reshape(tuple(variable.shape)))
        begin += value.nbytes


def allreduce(peers: Peers, value: Any, op: str, kind: int = USER) -> np.ndarray:
    """`ddl.allreduce` of the cell, and as `kind` BARRIER its `ddl.barrier`.

    value: a number or array. op: "sum" or "mean"; the mean of integers and bools is float64, and the sum of bools
    counts those that are true, as in NumPy; with one worker, too. ValueError for another `op`; RuntimeError with a
    strategy whose ranks do not meet.
    """
    if op not in ("mean", "sum"):
        raise ValueError("op is %r; it must be 'mean' or 'sum'" % (op,))
    array, config = np.asarray(value), peers.config
    if config.spec.strategy in strategies.WITHOUT_CELL_COLLECTIVES:
        raise RuntimeError(
            "ddl.allreduce and ddl.barrier need --strategy allreduce; workers of --strategy %s do not meet"
            % config.spec.strategy
        )
    if op == "mean" and array.dtype.kind in "biu":
        array = array.astype(np.float64)
    elif array.dtype.kind == "b":
        array = array.astype(np.int64)
    if peers.regrouping is not None and peers.regrouping.catches_up:
        return array
    peers.progress.cell_collectives += 1
    if peers.size == 1:
        return array
    flat = np.array(array, copy=True).reshape(-1)
    peers.collective.allreduce(flat, peers.announcement(kind))
    return (flat / peers.size if op == "mean" else flat).reshape(array.shape)
