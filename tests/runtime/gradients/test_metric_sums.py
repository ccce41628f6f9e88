"""The states of metrics, summed over the ranks."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from ddl_magics.runtime.collectives.announcement import EPOCH
from ddl_magics.runtime.gradients.metric_sums import MetricSums


class Kept(keras.metrics.Metric):
    """Counts rows in a variable, which begins at `begin`, and keeps them in a list."""

    def __init__(self, begin):
        super().__init__(name="kept")
        self.begin, self.rows = begin, []
        self.count = self.add_weight(shape=(), initializer=keras.initializers.Constant(begin), name="count")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.rows.extend(np.ravel(y_pred).tolist())
        self.count.assign_add(len(y_pred))

    def reset_state(self):
        self.rows.clear()
        self.count.assign(self.begin)


def of_two_ranks(begin):
    """(the metric, the sums) where the other rank has the same states."""

    def allreduce(flat, kind, repeats):
        flat *= 2
        return ["of rank 0", "of rank 1"]

    sums = MetricSums(SimpleNamespace(position=0, allreduce=allreduce))
    metric = Kept(begin)
    metric.update_state([0, 0, 0], [5.0, 6.0, 7.0])
    return metric, sums


def test_whether_a_metric_adds_up_is_asked_without_a_trace():
    metric, sums = of_two_ranks(begin=0)
    sums.reduce(EPOCH, [metric], [])
    assert float(metric.count) == 6
    assert metric.rows == [5, 6, 7]


def test_variables_are_averaged_beside_the_sums():
    metric, sums = of_two_ranks(begin=0)
    variable = tf.Variable([3.0, 5.0])
    sums.reduce(EPOCH, [metric], [variable])
    assert float(metric.count) == 6 and variable.numpy().tolist() == [3.0, 5.0]


def test_a_mean_is_of_the_ranks_that_are_in_the_sum():
    """One was lost before the sum was complete, so that the others have made it alone."""
    metric, sums = of_two_ranks(begin=0)
    variable = tf.Variable([3.0, 5.0])

    sums._peers.allreduce = lambda flat, kind, repeats: ["of rank 0"]
    sums.reduce(EPOCH, [metric], [variable])
    assert float(metric.count) == 3 and variable.numpy().tolist() == [3.0, 5.0]


def test_one_that_does_not_is_named_and_left_as_it_was():
    metric, sums = of_two_ranks(begin=1)
    with pytest.raises(ValueError, match="metric 'kept' has a state that does not start at zero"):
        sums.reduce(EPOCH, [metric], [])
    assert float(metric.count) == 4
    assert metric.rows == [5, 6, 7]
