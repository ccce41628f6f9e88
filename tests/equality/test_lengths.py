"""Workers agree on the lengths that a model takes from the rows of a batch: equality/lengths.py."""

import pytest
from support import comparison

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("workers", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_lengths_are_those_of_the_whole_batch(rank_pool, reference, workers):
    """Three workers share out a last batch of two rows."""
    comparison.check(comparison.learn(rank_pool(workers), comparison.LENGTHS, "float64", workers), reference)
