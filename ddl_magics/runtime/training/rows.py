"""Rows that a rank has trained on, counted inside of the training step."""

from __future__ import annotations

import tensorflow as tf

from ..keras_types import Tensor
from ..rank.data_wait import value_of


class RowCounter:
    """total: of the run; in_last_step: of the last step, also of one that only evaluates."""

    def __init__(self) -> None:
        self._total = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._in_last_step = tf.Variable(0, dtype=tf.int64, trainable=False)

    def count(self, rows: Tensor, training: bool) -> None:
        """Called in a step, also while it is traced. rows: a scalar int64."""
        if training:
            self._total.assign_add(rows)
        self._in_last_step.assign(rows)

    @property
    def total(self) -> int:
        return int(value_of(self._total))

    @property
    def in_last_step(self) -> int:
        return int(value_of(self._in_last_step))
