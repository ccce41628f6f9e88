"""n workers learn what one process learns: equality/cases.py against plain Keras in a process of its own."""

import comparison
import pytest

#: What every mechanism needs at least once; the rest runs with `make test-slow`.
ALWAYS = (
    "sgd_momentum",
    "adamw_clipnorm",
    "accumulation",
    "callbacks",
    "weighted",
    "two_by_two",
    "embedding",
    "own_step",
    "pipeline",
    "rich_metrics",
    "two_fits",
    "summed_loss",
    "adversaries",
    "masked_sequences",
    "masked_losses",
    "masked_losses_compiled",
    "masked_in_its_own_step",
    "compiled",
    "compiled_many_steps",
    "four_steps_and_a_remainder",
)
#: Of these, what is cut, weighted, summed or rounded otherwise with four workers or in float32.
FEW = (
    "sgd_momentum",
    "adamw_clipnorm",
    "accumulation",
    "weighted",
    "embedding",
    "own_step",
    "pipeline",
    "masked_sequences",
    "masked_losses",
    "four_steps_and_a_remainder",
)
MORE = (
    "adam",
    "global_clipnorm",
    "moving_average",
    "schedule",
    "lstm",
    "sequence",
    "regularised",
    "multi_step_execution",
    "generator",
    "endless_pipeline",
    "weighted_pipeline",
    "eager",
    "added_loss",
    "own_loss",
    "list_of_outputs",
    "precise_metrics",
    "callbacks_of_all_kinds",
    "convolutions",
    "trained_twice",
    "built_by_its_data",
    "own_reduction",
    "unreduced_loss",
)


@pytest.mark.timeout(600)
def test_float64(spark_cluster, reference):
    comparison.check(spark_cluster(2), reference, ALWAYS, "float64", 2)


@pytest.mark.timeout(600)
def test_float32(spark_cluster, reference):
    comparison.check(spark_cluster(2), reference, FEW, "float32", 2)


@pytest.mark.timeout(300)
def test_the_comparison_can_fail(spark_cluster, reference):
    """Negative control: the same test with the sum over ranks left out."""
    names = ("sgd_momentum", "pipeline")
    ended = comparison.distributed(spark_cluster(2), names, "float64", 2, prologue=comparison.SILENCE)
    assert len(comparison.differences(ended.result, reference(names, "float64"), names, "float64")) >= 2
    with pytest.raises(AssertionError):
        comparison.assert_ranks_equal(ended, names, 2)


@pytest.mark.timeout(600)
def test_four_workers(spark_cluster, reference):
    """The last batch has two rows."""
    comparison.check(spark_cluster(4), reference, FEW, "float64", 4)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_full_matrix(spark_cluster, reference, workers, dtype):
    comparison.check(spark_cluster(workers), reference, ALWAYS + MORE, dtype, workers)
