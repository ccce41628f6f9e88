"""Cuts a batch that a cell holds in its hands, as arrays or tensors: for `train_on_batch` and loops of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from ..gradients.batch import SAMPLE_ROWS, Share
from ..keras_types import Batch, Tensor
from .share import slice_rows

_TENSORS = (tf.Tensor, tf.RaggedTensor, tf.SparseTensor)


def cut(batch: Batch, rank: int, size: int) -> Share | None:
    """Rank's slice of `batch`, a structure of arrays, tensors and None; its rows are those of `share.cut`.

    None where a part has no rows, or where parts have different numbers of them.
    """
    batch = tf.nest.map_structure(_as_array, batch)
    tensors = [tensor for tensor in tf.nest.flatten(batch) if tensor is not None]
    if not tensors or any(len(tensor.shape) == 0 for tensor in tensors):
        return None
    totals = {_rows(tensor) for tensor in tensors}
    if len(totals) > 1:
        return None
    (total,) = totals
    low, high = total * rank // size, total * (rank + 1) // size
    rows = high - low
    if not rows:
        low, high = 0, 1
    every = total // SAMPLE_ROWS + 1
    sample = [
        tf.convert_to_tensor(tensor[::every]) for tensor in tensors if isinstance(tensor, (np.ndarray, tf.Tensor))
    ]
    local_rows = tf.nest.map_structure(lambda tensor: _slice(tensor, low, high), batch)
    return Share(local_rows, tf.constant(rows, tf.int64), tf.constant(total, tf.int64), tuple(sample))


def _as_array(value: Any) -> Any:
    return value if value is None or isinstance(value, _TENSORS) else np.asarray(value)


def _rows(tensor: Any) -> int:
    if isinstance(tensor, tf.RaggedTensor):
        return int(tensor.nrows())
    return int(tensor.shape[0])


def _slice(tensor: Any, low: int, high: int) -> Tensor:
    if isinstance(tensor, np.ndarray):
        return tf.convert_to_tensor(tensor[low:high])
    return slice_rows(tensor, low, high)
