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
    parts = [part for part in tf.nest.flatten(batch) if part is not None]
    if not parts or any(len(part.shape) == 0 for part in parts):
        return None
    totals = {_rows(part) for part in parts}
    if len(totals) > 1:
        return None
    (total,) = totals
    low, high = total * rank // size, total * (rank + 1) // size
    rows = high - low
    if not rows:
        low, high = 0, 1
    every = total // SAMPLE_ROWS + 1
    sample = [tf.convert_to_tensor(part[::every]) for part in parts if isinstance(part, (np.ndarray, tf.Tensor))]
    mine = tf.nest.map_structure(lambda part: _slice(part, low, high), batch)
    return Share(mine, tf.constant(rows, tf.int64), tf.constant(total, tf.int64), tuple(sample))


def _as_array(part: Any) -> Any:
    return part if part is None or isinstance(part, _TENSORS) else np.asarray(part)


def _rows(part: Any) -> int:
    if isinstance(part, tf.RaggedTensor):
        return int(part.nrows())
    return int(part.shape[0])


def _slice(part: Any, low: int, high: int) -> Tensor:
    if isinstance(part, np.ndarray):
        return tf.convert_to_tensor(part[low:high])
    return slice_rows(part, low, high)
