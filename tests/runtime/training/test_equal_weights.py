"""Weights are compared over ranks: here, with what a second rank would send."""

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from ddl_magics.runtime.training.equal_weights import EqualWeights


@pytest.fixture
def rank():
    """Of two, whose weights are the first one's times `factor`."""
    made = SimpleNamespace(config=SimpleNamespace(reduces_gradients=True), factor=1.0, gathered=0, said=[])

    def gather(payload, announcement, most_bytes):
        made.gathered += 1
        return [payload, (np.frombuffer(payload, np.float64) * made.factor).tobytes()]

    made.peers = SimpleNamespace(
        collective=SimpleNamespace(gather=gather),
        announcement=lambda kind: kind,
        complete=lambda make, repeats: make(),
    )
    made.reporter = SimpleNamespace(notice_once=lambda level, message: made.said.append(message))
    return made


def test_ranks_compare_as_often_whatever_they_have_found(rank):
    """One that has joined has found nothing yet, and compares with the others."""
    weights = EqualWeights(rank)
    variables = [tf.Variable(np.arange(1.0, 4.0), name="first"), tf.Variable([2.0], name="second")]
    weights.compare(variables)
    assert rank.said == []
    rank.factor = 1.0 + 1e-7  # rounding of unlike processors
    weights.compare(variables)
    assert rank.said == []
    rank.factor = 1.1
    weights.compare(variables)
    weights.compare(variables)
    assert rank.gathered == 4 and len(rank.said) == 2  # of which the reporter shows one
    assert "the weight 'first" in rank.said[0]
