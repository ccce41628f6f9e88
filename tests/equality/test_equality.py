"""n workers learn what one process learns: equality/cases.py against plain Keras in a process of its own."""

import pytest
from support import comparison
from support.comparison import ALWAYS, LENGTHS, LOOPS, MORE, MORE_LOOPS, NOISY

from ddl_magics.runtime.gradients import sync_batchnorm
from ddl_magics.runtime.training import step

pytestmark = pytest.mark.timeout(900)

#: Of these, what is summed and rounded otherwise in float32; the rest of it with `make test-slow`.
FLOAT32 = ("sgd_momentum", "accumulation", "embedding", "four_steps_and_a_remainder")

#: What a worker alone does in another way than several.
ALONE = ("own_step", "tape_in_a_function", "single_batches_and_fits")

#: The negative control: with the sum over ranks left out.
SILENT = ("sgd_momentum", "pipeline")


#: Of these, whose gradients a GPU would exchange in another way.
ON_GPU = ("sgd_momentum", "accumulation", "callbacks", "embedding", "own_optimizers", "compiled")

#: Of these, whose gradients may be summed where they are.
IN_PARTS = ("sgd_momentum", "accumulation", "embedding", "own_step", "own_optimizers", "one_weight_eagerly", "compiled")

#: Models whose BatchNormalization asks for the rows of all workers, and some that would need --sync-batchnorm.
SYNCHRONIZED = ("synchronized", "synchronized_by_its_data", "synchronized_compiled", "synchronized_images")
NOT_SYNCHRONIZED = ("normalized", "normalized_images")


@pytest.fixture(scope="module")
def learned(rank_pool):
    """{part: what two workers have learned}, in one run.

    Another type of numbers needs a run of its own: the weights that Keras draws depend on the first type of a process.
    """
    parts = {name: (of, "float64") for name, of in {"float64": ALWAYS, "loops": LOOPS}.items()}
    parts |= {"synchronized": (SYNCHRONIZED, "float64"), "not synchronized": (NOT_SYNCHRONIZED + NOISY, "float64")}
    parts["in parts"] = (IN_PARTS, "float64", comparison.IN_PARTS)
    parts["silent"] = (SILENT, "float64", comparison.SILENCE)
    return comparison.learn_parts(rank_pool(2), parts, 2, seconds=700)


@pytest.mark.parametrize("part", ["float64", "loops", "synchronized", "in parts"])
def test_float64(learned, reference, part):
    comparison.check(learned[part], reference)


@pytest.mark.parametrize(
    "names", [ALONE, pytest.param(ALWAYS + MORE + LOOPS + MORE_LOOPS + LENGTHS, marks=pytest.mark.slow)]
)
def test_one_worker(rank_pool, reference, names):
    comparison.check(comparison.learn(rank_pool(1), names, "float64", 1, seconds=700), reference)


@pytest.mark.slow
def test_as_on_a_gpu(rank_pool, reference):
    comparison.check(comparison.learn(rank_pool(2), ON_GPU, "float64", 2, comparison.AS_ON_GPU), reference)


@pytest.mark.slow
def test_float32(rank_pool, reference):
    comparison.check(comparison.learn(rank_pool(2), FLOAT32, "float32", 2), reference)


def test_what_is_exchanged_is_told_once_for_each_loss(learned):
    """A sum that rows weigh is among them: it is multiplied by the mean of the weights."""
    notices = [e["message"] for e in learned["float64"].ended.of_kind("notice")]
    said = [message.split(" looks")[0] for message in notices if "looks at the whole batch: outputs are" in message]
    named = ["the loss 'contrast'", "the loss 'loss'", "the loss 'sum_of_squares'"]
    assert sorted(said) == [*named, "the loss compute_loss of the model 'Own'"]


def test_a_list_that_an_eager_step_fills_with_rows_is_named(rank_pool, reference):
    """And not the lists of metrics, which have the rows of all workers."""
    learned = comparison.learn(rank_pool(2), ("step_that_lists",), "float64", 2)
    comparison.check(learned, reference)
    notices = [event["message"] for event in learned.ended.of_kind("notice")]
    assert [message.split(" in Python")[0] for message in notices if "in Python" in message] == [
        "train_step of the model 'Listing' sets 'outputs_seen'"
    ]


def test_loops_are_told_what_to_write(learned):
    """One that shares nothing, and one with a loss of its own, which may be a sum."""
    notices = [e["message"] for e in learned["loops"].ended.of_kind("notice") if "ddl.distribute" in e["message"]]
    assert sum("the same on all 2 workers" in message for message in notices) == 1
    assert sum("is taken for a mean over the rows of a batch" in message for message in notices) == 1
    assert len(notices) == 2


def test_without_the_options_slices_and_noise_are_another_model_and_the_run_says_so(learned, reference):
    """Negative control, and what a reader is told; of `synchronized_compiled` too, which XLA would not synchronize."""
    others = learned["not synchronized"]
    others.assert_ranks_equal()  # also in the moving statistics of slices, which are averaged
    found = others.differences(reference)
    assert all(any(f"{name}: weights" in difference for difference in found) for name in others.results)
    said = [(e["level"], e["message"]) for e in others.ended.of_kind("notice") if "BatchNormalization" in e["message"]]
    assert sorted(said) == sorted([("info", sync_batchnorm._SLICES), ("info", step.NOT_COMPILED)])


def test_the_comparison_can_fail(learned, reference):
    assert len(learned["silent"].differences(reference)) >= 2
    with pytest.raises(AssertionError):
        learned["silent"].assert_ranks_equal()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_full_matrix(spark_cluster, reference, workers, dtype):
    comparison.check(comparison.learn(spark_cluster(workers), ALWAYS + MORE, dtype, workers), reference)


@pytest.mark.slow
def test_all_loops(spark_cluster, reference):
    comparison.check(comparison.learn(spark_cluster(2), LOOPS + MORE_LOOPS, "float64", 2), reference)
