"""Workers agree on the lengths that a model takes from the rows of a batch: equality/lengths.py."""

import pytest
from support import comparison

pytestmark = pytest.mark.timeout(600)


#: In a model, in one of ragged rows, and in a loop of the cell's own.
ALWAYS = ("vectorized_in_the_model", "ragged_rows", "tape_of_ragged_rows")
MORE = tuple(name for name in comparison.LENGTHS if name not in ALWAYS)


@pytest.mark.parametrize(
    ("workers", "names"),
    [
        (3, ALWAYS),
        pytest.param(3, MORE, marks=pytest.mark.slow),
        pytest.param(2, comparison.LENGTHS, marks=pytest.mark.slow),
    ],
)
def test_lengths_are_those_of_the_whole_batch(rank_pool, reference, workers, names):
    """Three workers share out a last batch of two rows."""
    comparison.check(comparison.learn(rank_pool(workers), names, "float64", workers), reference)
