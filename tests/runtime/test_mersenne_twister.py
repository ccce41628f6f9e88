"""A state of a Mersenne Twister leads back to its seed, if it has one."""

import random

import numpy as np
import pytest

from ddl_magics.runtime import mersenne_twister
from ddl_magics.runtime.mersenne_twister import MAX_BLOCKS, SeedSearch

WORDS = 624


def words(generator):
    return generator.getstate()[1][:-1]


def draw(generator, blocks):
    generator.getrandbits(32 * WORDS * blocks)


@pytest.mark.parametrize("seed", [0, 7, -(2**31), 2**40, 1.5, "digits", "sixteen letters.", b"bytes", None])
def test_what_random_was_seeded_with(seed):
    generator, is_seeded = random.Random(seed), seed is not None
    for blocks in (0, 1, 30):
        draw(generator, blocks)
        generator.random()
        assert SeedSearch().is_seeded(words(generator)) is is_seeded


@pytest.mark.parametrize("seed", [0, 2**32 - 1, [1, 2, 3], None])
def test_what_numpy_was_seeded_with(seed):
    generator = np.random.RandomState(seed)
    for numbers in (1, 10_000):
        generator.rand(numbers)
        assert SeedSearch().is_seeded(generator.get_state()[1]) is (seed is not None)


def test_a_search_goes_back_to_the_one_before(monkeypatch):
    monkeypatch.setattr(mersenne_twister, "MAX_BLOCKS", 3)
    generator, search = random.Random(1), SeedSearch()
    for _ in range(4):
        assert search.is_seeded(words(generator))
        draw(generator, 2)
    draw(generator, 2)
    assert not search.is_seeded(words(generator))
    search.note_seeded(words(generator))
    draw(generator, 2)
    assert search.is_seeded(words(generator))
    generator.seed()
    assert not search.is_seeded(words(generator))


def test_how_far_a_search_goes():
    generator = random.Random(1)
    draw(generator, MAX_BLOCKS - 1)
    assert SeedSearch().is_seeded(words(generator))
    draw(generator, 2)
    assert not SeedSearch().is_seeded(words(generator))
