"""Whose part is which, and the exchange of a sharded update between ranks that are threads here.

Training with it: tests/equality/test_sharded.py.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf
from support.rings import ThreadRing

from ddl_magics.runtime.gradients.sharded_exchange import Clipping, ShardedExchange
from ddl_magics.runtime.gradients.sharding import Spec, shards
from ddl_magics.runtime.stopping import NotANumber

from .test_exchange import ROWS, Ranks, cut, dense, local, mean

SHAPES = ((3, 5), (), (17,), (0, 2), (40, 7))
F32, F64 = np.dtype("float32"), np.dtype("float64")


def specs(shapes=SHAPES, may_split=True):
    return [Spec(shape, F64 if i == 2 else F32, may_split) for i, shape in enumerate(shapes)]


def elements(segments):
    """Of all variables, each as (its number, its place)."""
    return [(segment.number, place) for segment in segments for place in range(segment.begin, segment.stop)]


def of_all(some, size):
    return [segment for rank in range(size) for shard in shards(some, size, rank) for segment in shard.segments]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 400])
@pytest.mark.parametrize("may_split", [True, False])
def test_each_element_is_in_the_part_of_one_rank(size, may_split):
    some = specs(may_split=may_split)
    found = elements(of_all(some, size))
    assert sorted(found) == [(i, place) for i, spec in enumerate(some) for place in range(int(np.prod(spec.shape)))]
    if not may_split:
        assert all(
            segment.stop - segment.begin == np.prod(some[segment.number].shape) for segment in of_all(some, size)
        )


def test_parts_are_of_equal_size_where_variables_may_be_split():
    some = specs(((1000, 10), (3,), (70_000,)))
    sizes = [sum(p.stop - p.begin for shard in shards(some[:2], 4, r) for p in shard.segments) for r in range(4)]
    assert max(sizes) - min(sizes) <= 32


def test_bounds_are_the_same_on_all_ranks_and_aligned():
    of_ranks = [[shard.bounds for shard in shards(specs(), 3, rank)] for rank in range(3)]
    assert of_ranks[0] == of_ranks[1] == of_ranks[2]
    assert all(bound * 4 % 64 == 0 for bound in of_ranks[0][0][:-1])


def sharded(rank, check_finite=True, shapes=SHAPES[:4], clipping=None, apply=lambda sums: sums):
    """Behind the sums of each rank's segments, `apply` is the update."""
    collective, some = rank.peers.collective, specs(shapes)
    of_rank = shards(some, collective.size, collective.position)
    exchange = ShardedExchange(rank.peers, rank.errors, check_finite, some, of_rank, clipping)

    def step(gradients, share):
        sums = exchange.segments(gradients, share)
        segments = [segment for shard in of_rank for segment in shard.segments]
        updated = {
            segment: apply(sums[segment]) if segment in sums else tf.zeros([segment.stop - segment.begin])
            for segment in segments
        }
        whole = exchange.gathered(updated)
        whole.update({segment.number: updated[segment] for segment in segments if segment.is_whole})
        return [whole[number] for number in range(len(some))]

    return step


@pytest.fixture
def ring():
    with ThreadRing(len(ROWS)) as ring:
        yield ring


def gradients_of(rows=ROWS):
    return [of_rank[1:] for of_rank in dense(rows)]


def test_all_ranks_have_the_means_over_all_rows_behind_an_update(ring):
    gradients = gradients_of()
    ranks = Ranks(ring, functools.partial(sharded, apply=lambda segment: 2 * segment))
    for _ in range(3):
        for answer in ranks.step(gradients, cut()):
            for found, *of_ranks in zip(answer, *gradients, strict=True):
                np.testing.assert_allclose(found, 2 * mean(of_ranks), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("clipping", [Clipping(0.4, None), Clipping(None, 0.7), Clipping(None, 1e9)])
def test_norms_are_those_of_whole_variables(ring, clipping):
    gradients = gradients_of()
    means = [mean(of_ranks) for of_ranks in zip(*gradients, strict=True)]
    norms = [np.linalg.norm(each) for each in means]
    bounds = [min(1, 0.4 / norm) for norm in norms if norm] if clipping.clipnorm else None
    together = 1 if clipping.clipnorm else min(1, clipping.global_clipnorm / np.linalg.norm(norms))
    for answer in Ranks(ring, functools.partial(sharded, clipping=clipping)).step(gradients, cut()):
        for i, found in enumerate(answer[:3]):
            factor = bounds[i] if bounds else together
            np.testing.assert_allclose(found, means[i] * factor, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("infinite", [np.nan, np.inf])
def test_ranks_whose_gradient_is_no_number_are_named_to_all_before_the_update(ring, infinite):
    bad = [[tf.constant([1.0, infinite if rank else 1.0])] for rank in range(3)]

    def update(segment):
        raise AssertionError("an update with it")

    make = functools.partial(sharded, shapes=((2,),), apply=update)
    for error in Ranks(ring, make).step(bad, cut((1, 1, 1))):
        assert isinstance(error, NotANumber) and error.rank == 1
        assert "the gradient of ranks 1, 2 is NaN or infinite at step 1 of epoch 1; " in str(error)


def test_a_sum_that_overflows_is_told_to_all(ring):
    largest = [[tf.constant([np.finfo("float32").max])] for _ in range(3)]
    for error in Ranks(ring, functools.partial(sharded, shapes=((1,),))).step(largest, local((1, 1, 1))):
        assert isinstance(error, NotANumber) and "the sum of the gradients is NaN or infinite" in str(error)
    for answer in Ranks(ring, functools.partial(sharded, shapes=((1,),), check_finite=False)).step(
        largest, local((1, 1, 1))
    ):
        assert np.isinf(answer[0])
