"""What a cell makes of its share of --data can be made again of all rows."""

import numpy as np
import pytest
import tensorflow as tf

from ddl_magics.runtime.training import derived_datasets, share
from ddl_magics.runtime.training.derived_datasets import Origin


@pytest.fixture(scope="module", autouse=True)
def following():
    before = {name: value for name, value in vars(tf.data.Dataset).items() if callable(value) or name == "zip"}
    derived_datasets.follow()
    yield
    for name, value in before.items():
        if vars(tf.data.Dataset)[name] is not value:
            setattr(tf.data.Dataset, name, value)


def numbers(dataset):
    return np.concatenate([np.ravel(value) for value in dataset.as_numpy_iterator()]).tolist()


@pytest.fixture
def dataset():
    """Every second of twelve numbers, in batches of two instead of four."""
    every = tf.data.Dataset.range(12)
    made = share.mark_local(every.shard(2, 1).batch(2))
    derived_datasets.mark(made, Origin(lambda: every.batch(4), True))
    return made


@pytest.mark.parametrize(
    ("derive", "expected"),
    [
        (lambda dataset: dataset, range(12)),
        (lambda dataset: dataset.map(lambda batch: -batch).take(2), range(0, -8, -1)),
        (lambda dataset: dataset.unbatch().filter(lambda n: n % 3 == 0).batch(5).prefetch(1), range(0, 12, 3)),
        (lambda dataset: dataset.skip(1).enumerate().map(lambda index, batch: batch), range(4, 12)),
        (lambda dataset: dataset.apply(lambda source: source.unbatch().take(3)), range(3)),
        (lambda dataset: tf.data.Dataset.zip((dataset, dataset.skip(2))).map(lambda a, b: a + b), range(8, 16, 2)),
        (lambda dataset: tf.data.Dataset.range(1).batch(1).concatenate(dataset), [0, *range(12)]),
    ],
    ids=["itself", "map", "unbatch", "enumerate", "apply", "zip", "concatenate"],
)
def test_derived_of_all_rows(dataset, derive, expected):
    derived = derive(dataset)
    assert derived_datasets.is_part(derived) and numbers(derived) != list(expected)
    whole = derived_datasets.all_rows(derived)
    assert numbers(whole) == list(expected)
    assert not derived_datasets.is_part(whole) and not share.is_local(whole)


def test_a_dataset_that_every_rank_has_is_as_it_is():
    dataset = tf.data.Dataset.range(3).map(lambda n: n + 1)
    assert derived_datasets.all_rows(dataset) is dataset and not derived_datasets.is_part(dataset)


def test_a_part_is_known_within_a_function_of_tensorflow(dataset):
    known = []

    @tf.function
    def count(argument):
        known.append((derived_datasets.is_part(argument), derived_datasets.is_part(dataset.take(1))))
        return argument.reduce(np.int64(0), lambda total, batch: total + 1)

    assert count(dataset) == 3 and count(tf.data.Dataset.range(3).map(tf.strings.as_string)) == 3
    assert known == [(True, True), (False, True)]


def test_what_cannot_be_made_of_all_rows_is_refused(dataset):
    own = share.mark_local(tf.data.Dataset.range(3))
    for derived in (own.repeat(2), tf.data.Dataset.sample_from_datasets([dataset, dataset])):
        with pytest.raises(ValueError, match=r"begin with all_data = ddl.all_rows\(dataset\)"):
            derived_datasets.all_rows(derived)
