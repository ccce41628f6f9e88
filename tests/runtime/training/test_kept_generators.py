"""Generators of batches that fits read ahead: what was not used is read again."""

import itertools

import pytest

from ddl_magics.runtime.training.kept_generators import KeptGenerators


def fit(kept, arguments, ahead, epochs):
    """Read so many batches ahead, use as many as the epochs say; the batches read and whether an earlier fit began."""
    given = dict(arguments)
    used, goes_on = kept.pass_on(given)
    read = list(itertools.islice(given["x"], sum(epochs) + ahead))
    for epoch, batches in enumerate(epochs):
        used.on_epoch_begin(epoch)
        for batch in range(batches):
            used.on_train_batch_end(batch)
    return read, goes_on, given


def test_what_was_read_ahead_is_read_again():
    kept, arguments = KeptGenerators(), {"x": (number for number in range(12))}
    assert fit(kept, arguments, 2, [2, 2])[:2] == ([0, 1, 2, 3, 4, 5], False)
    read, goes_on, given = fit(kept, arguments, 1, [3])
    assert (read, goes_on) == ([4, 5, 6, 7], True)
    again, goes_on, _ = fit(kept, arguments, 5, [0])
    assert (again, goes_on) == ([7, 8, 9, 10, 11], True)
    assert next(given["x"], None) is None, "the reader of a fit that has ended"


@pytest.mark.parametrize("rank", range(3))
def test_batches_that_other_ranks_train_on_are_used(rank):
    """Of three, each of which reads ahead as it pleases: after two epochs of five batches, the next is number 10."""
    kept, numbers = KeptGenerators(), (number for number in itertools.count())
    for fits, ahead in enumerate((0, 7)):
        arguments = {"x": numbers, "steps_per_epoch": 5}
        used, _ = kept.pass_on(arguments, 3)
        own = itertools.islice(arguments["x"], rank, None, 3)
        for epoch in range(2):
            used.on_epoch_begin(epoch)
            for batch in range(len(range(rank, 5, 3))):
                next(own)
                used.on_train_batch_end(batch)
            used.on_epoch_end(epoch)
        list(itertools.islice(arguments["x"], ahead))
        given = {"x": numbers}
        kept.pass_on(given)
        assert next(given["x"]) == 10 * (fits + 1)


def test_validation_data_are_kept_too_and_other_arguments_as_they_are():
    kept, data = KeptGenerators(), [1, 2]
    validation = (number for number in range(9))
    arguments = {"x": data, "validation_data": validation}
    used, _ = kept.pass_on(arguments)
    assert arguments["x"] is data
    assert list(itertools.islice(arguments["validation_data"], 5)) == [0, 1, 2, 3, 4]
    for _ in range(2):  # evaluations, of one execution for both batches
        used.on_test_begin()
        used.on_test_batch_end(1)
    arguments = {"x": data, "validation_data": validation}
    kept.pass_on(arguments)
    assert next(arguments["validation_data"]) == 4
    both = {"x": validation, "validation_data": validation}
    kept.pass_on(both)
    assert both["x"] is both["validation_data"] is validation
