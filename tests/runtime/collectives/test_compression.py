"""Compressed gradients: rounding by value, residuals that lose nothing, and sums with equal bits on all ranks."""

import numpy as np
import pytest
from support.rings import ThreadRing

from ddl_magics.runtime.collectives import compression
from ddl_magics.runtime.collectives.announcement import STEP
from ddl_magics.runtime.collectives.collective import Announcement, Diverged

#: The transports in which data cross a network.
BETWEEN_HOSTS = ("tcp", "hosts of two", "two hosts in turn")


@pytest.mark.parametrize(
    ("word", "half"),
    [
        (0x3F800000, 0x3F80),  # 1
        (0x3F807FFF, 0x3F80),  # just below the middle
        (0x3F808000, 0x3F80),  # the middle: to the even one, below
        (0x3F808001, 0x3F81),  # just above it
        (0x3F818000, 0x3F82),  # the middle: to the even one, above
        (0xBF818000, 0xBF82),  # negative
        (0x00000001, 0x0000),  # the least there is
        (0x80000000, 0x8000),  # -0
        (0x7F7FFFFF, 0x7F80),  # the largest number: infinite
        (0x7F800000, 0x7F80),  # infinite
        (0xFF800000, 0xFF80),
        (0x7FC00000, 0x7FC0),  # NaN
        (0x7F800001, 0x7FC0),  # NaN that rounding would make infinite
        (0xFFFFFFFF, 0x7FC0),  # NaN that rounding would make zero
    ],
)
def test_rounding_to_bfloat16_by_value(word, half):
    values = np.array([word], np.uint32).view(np.float32)
    assert compression.to_bfloat16(values) == [half]


def test_rounding_equals_that_of_tensorflow():
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    random = np.random.default_rng(0)
    values = (random.normal(size=100_000) * 10.0 ** random.integers(-30, 30, 100_000)).astype(np.float32)
    halves = compression.to_bfloat16(values)
    np.testing.assert_array_equal(halves, values.astype(bfloat16).view(np.uint16))
    np.testing.assert_array_equal(compression.from_bfloat16(halves), values.astype(bfloat16).astype(np.float32))


@pytest.mark.parametrize("text", ["bf16:2", "topk", "topk:0", "topk:1.5", "topk:x", "topk:nan", "gzip", ""])
def test_an_unknown_compression_is_refused(text):
    with pytest.raises(ValueError, match=r"bf16, or topk with the share"):
        compression.read(text)


@pytest.mark.parametrize(("text", "read"), [("bf16", ("bf16", 1.0)), ("topk:0.01", ("topk", 0.01))])
def test_compressions_are_read_and_shown_alike(text, read):
    assert compression.read(text) == read
    assert compression.read(text).text == text


@pytest.mark.parametrize("transport", BETWEEN_HOSTS)
@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("length", [0, 1, 4, 100_003, 3_000_000])
def test_rounded_sums_are_near_and_equal_to_the_bit(transport, size, length):
    values = np.random.default_rng(length).normal(size=(size, length)).astype(np.float32)
    buffers, residuals = values.copy(), np.zeros_like(values)
    with ThreadRing(size, transport) as ring:
        announcements = ring.allreduce(buffers, residuals=residuals)
    assert [[announcement.weight for announcement in each] for each in announcements] == [list(range(size))] * size
    assert all(buffer.tobytes() == buffers[0].tobytes() for buffer in buffers)
    exact = values.sum(axis=0, dtype=np.float64)
    # one rounding, of at most 1/256, for each partial sum
    bound = np.abs(values).cumsum(axis=0).sum(axis=0) / 256 + 1e-6
    assert (np.abs(buffers[0] - exact) <= size * bound).all()
    # the residuals hold all that was rounded away
    np.testing.assert_allclose(buffers[0] + residuals.sum(axis=0, dtype=np.float64), exact, rtol=1e-5, atol=1e-5)
    alone = size == 2 and transport == "hosts of two"
    assert residuals.any() == (length > 0 and not alone)


def test_residuals_make_up_for_rounding_over_many_steps():
    """The mean over steps converges to the sum. Without residuals it would stay off by up to 1/256."""
    values = np.random.default_rng(2).uniform(1, 2, size=(3, 1000)).astype(np.float32)
    residuals, total, steps = np.zeros_like(values), np.zeros(1000), 50
    with ThreadRing(3) as ring:
        for step in range(steps):
            buffers = values.copy()
            ring.allreduce(buffers, step, residuals)
            total += buffers[0]
    error = np.abs(total / steps - values.sum(axis=0))
    assert error.max() < 6 / 256 / 5


def test_nothing_is_rounded_within_a_host():
    buffers = np.full((2, 1000), 1 / 3, np.float32)
    residuals = np.zeros_like(buffers)
    with ThreadRing(2, "shared memory") as ring:
        ring.allreduce(buffers, residuals=residuals)
    assert (buffers == np.float32(2 / 3)).all()
    assert not residuals.any()


def test_nan_and_infinity_arrive_but_do_not_stay_in_residuals():
    buffers = np.array([[np.nan, np.inf, 1], [1, 1, 1 / 3]], np.float32)
    residuals = np.zeros_like(buffers)
    with ThreadRing(2) as ring:
        ring.allreduce(buffers, residuals=residuals)
    for buffer in buffers:
        assert np.isnan(buffer[0])
        assert np.isinf(buffer[1])
    assert np.isfinite(residuals).all()


def test_only_float32_is_rounded():
    with ThreadRing(2) as ring:
        outcomes = ring.allreduce(np.zeros((2, 3)), residuals=np.zeros((2, 3)))
        assert [str(error) for error in outcomes] == ["only float32 can be sent as bfloat16"] * 2


def topk(ring, buffers, residuals, share, step=0):
    """`ThreadRing.allreduce` of the `share` of largest values."""

    def reduce(rank):
        announcement = Announcement(STEP, step=step, weight=rank.rank)
        return compression.topk_allreduce(rank, buffers[rank.rank], announcement, residuals[rank.rank], share)

    return ring.each(reduce)


def test_ranks_diverge_with_compression_too():
    with ThreadRing(3) as ring:
        zeros = np.zeros((2, 3, 9), np.float32)
        outcomes = ring.each(lambda r: r.allreduce(zeros[0, r.rank], Announcement(STEP, step=r.rank), zeros[1, r.rank]))
        assert all(isinstance(outcome, Diverged) for outcome in outcomes)


@pytest.mark.parametrize("transport", [*BETWEEN_HOSTS, "shared memory"])
def test_the_largest_values_of_each_rank_are_summed_and_the_others_kept(transport):
    buffers = np.array([[5, 1, -7, 0, 2, 0, 0, 0], [1, 0, -6, 1, 0, 0, 9, 0]], np.float32)
    given, residuals = buffers.copy(), np.zeros_like(buffers)
    residuals[1, 7] = 8  # of an earlier step: larger than what this one has
    with ThreadRing(2, transport) as ring:
        announcements = topk(ring, buffers, residuals, 0.25)
    assert [[announcement.weight for announcement in each] for each in announcements] == [[0, 1], [0, 1]]
    np.testing.assert_array_equal(buffers, [[5, 0, -7, 0, 0, 0, 9, 8]] * 2)
    np.testing.assert_array_equal(residuals[0], [0, 1, 0, 0, 2, 0, 0, 0])
    np.testing.assert_array_equal(residuals[1], [1, 0, -6, 1, 0, 0, 0, 0])
    np.testing.assert_array_equal(buffers[0] + residuals.sum(axis=0), given.sum(axis=0) + [0, 0, 0, 0, 0, 0, 0, 8])


@pytest.mark.parametrize("length", [0, 1, 7])
def test_the_largest_of_few_values(length):
    buffers, residuals = np.ones((2, length), np.float32), np.zeros((2, length), np.float32)
    with ThreadRing(2) as ring:
        for step in range(3):
            topk(ring, buffers, residuals, 0.01, step)
            assert np.count_nonzero(buffers[0]) <= 2
            np.testing.assert_array_equal(buffers[0], buffers[1])


@pytest.mark.parametrize("way", ["bf16", "topk:0.01"])
def test_least_squares_converge(way):
    """Gradient descent on 400 points in 200 dimensions, half on each rank, finds the weights that made the points."""
    name, share = compression.read(way)
    random = np.random.default_rng(1)
    x, weights = random.normal(size=(2, 200, 200)).astype(np.float32), random.normal(size=200).astype(np.float32)
    found, residuals = np.zeros(200, np.float32), np.zeros((2, 200), np.float32)
    with ThreadRing(2) as ring:
        for step in range(1500):
            gradients = np.array([half.T @ (half @ (found - weights)) / 400 for half in x])
            if name == "topk":
                topk(ring, gradients, residuals, share, step)
            else:
                ring.allreduce(gradients, step, residuals)
            found -= (0.3 if name == "bf16" else 0.02) * gradients[0]
    assert np.abs(found - weights).max() < 0.05 * np.abs(weights).max()
