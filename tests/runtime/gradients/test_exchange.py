"""The exchange of gradients between ranks that are threads here. Training on it: tests/equality."""

import functools
import tracemalloc

import numpy as np
import pytest
import tensorflow as tf
from support.channels import SentFrames
from support.rings import ThreadRing, rank_on

from ddl_magics.runtime.collectives import buckets, compression
from ddl_magics.runtime.collectives.announcement import Diverged
from ddl_magics.runtime.collectives.collective import SingleRank
from ddl_magics.runtime.gradients import exchange, overlap
from ddl_magics.runtime.gradients.batch import LocalShare, Share
from ddl_magics.runtime.gradients.exchange import FINGERPRINT_EVERY, FIRST_FINGERPRINTS, GradientExchange
from ddl_magics.runtime.gradients.flat_exchange import FlatExchange
from ddl_magics.runtime.gradients.overlap import OverlappedExchange
from ddl_magics.runtime.stopping import NotANumber
from ddl_magics.runtime.transport.buffers import ALIGNMENT_BYTES

#: Of each rank. The one without rows computes on a row that does not count.
ROWS = (3, 0, 5)
SHAPES = ((3, 5), (), (17,), (0, 2))


@pytest.fixture
def ring():
    with ThreadRing(len(ROWS)) as ring:
        yield ring


def in_one_buffer(rank, check_finite=True):
    return GradientExchange(rank.peers, rank.errors, check_finite)


def on_a_gpu(rank, check_finite=True):
    return FlatExchange(rank.peers, rank.errors, check_finite)


def in_buckets(rank, check_finite=True, compressed=None):
    return OverlappedExchange(rank, check_finite, compressed)


class Ranks:
    """Ranks that exchange gradients, step by step."""

    def __init__(self, ring, make=in_one_buffer):
        self.ring, self.ranks = ring, [rank_on(each) for each in ring.ranks]
        self.exchanges = [make(rank) for rank in self.ranks]

    def step(self, gradients, shares):
        """What each has afterwards, or what it raised."""

        def exchanged(ring):
            return list(self.exchanges[ring.rank](gradients[ring.rank], shares[ring.rank]))

        return self.ring.each(exchanged)


def cut(rows=ROWS, samples=None):
    """Shares of one global batch."""
    samples = samples or [()] * len(rows)
    tensors = [[tf.constant(value, tf.int64) for value in (each, sum(rows))] for each in rows]
    return [Share(None, *of_rank, tuple(sample)) for of_rank, sample in zip(tensors, samples, strict=True)]


def local(rows=ROWS, sample=()):
    """Shares of data that each rank has of its own."""
    return [LocalShare(None, tf.constant(each, tf.int64), tf.constant(-1, tf.int64), tuple(sample)) for each in rows]


def dense(rows=ROWS, seed=0):
    """Gradients of each rank, of two dtypes, one None; no numbers where there are no rows."""
    random = np.random.default_rng(seed)
    of_ranks = [[random.normal(size=shape) * (1 if count else np.nan) for shape in SHAPES] for count in rows]
    return [
        [None, *(tf.constant(value, "float64" if i == 2 else "float32") for i, value in enumerate(values))]
        for values in of_ranks
    ]


def mean(gradients, rows=ROWS):
    """The gradient of the mean over all rows."""
    shares = [count / sum(rows) for count in rows]
    return np.sum([np.asarray(each) * share for each, share in zip(gradients, shares, strict=True) if share], axis=0)


def assert_means(answers, gradients, rows=ROWS, bound=1e-6):
    for answer in answers:
        assert not isinstance(answer, Exception), answer
        for found, *of_ranks in zip(answer, *gradients, strict=True):
            if of_ranks[0] is None:
                assert found is None
                continue
            assert (found.dtype, found.shape) == (of_ranks[0].dtype, of_ranks[0].shape)
            np.testing.assert_allclose(found, mean(of_ranks, rows), rtol=bound, atol=bound)
            np.testing.assert_array_equal(found, answers[0][[found is each for each in answer].index(True)])


@pytest.fixture(params=[False, True], ids=["whole", "in parts"])
def in_parts(request, monkeypatch):
    """Whether buffers are summed in parts, of 64 bytes, whose bounds are within arrays."""
    if request.param:
        monkeypatch.setattr(exchange, "SECTION_BYTES", 64)
    return request.param


@pytest.mark.parametrize("make", [in_one_buffer, in_buckets, on_a_gpu])
def test_the_sum_is_the_gradient_of_the_mean_over_all_rows(ring, make, in_parts, monkeypatch):
    """Step after step; each rank has the same bits."""
    monkeypatch.setattr(buckets, "MIN_BUCKET_BYTES", 16)  # several buckets
    ranks = Ranks(ring, make)
    for step, rows in enumerate([ROWS, (1, 1, 0), (1, 0, 0)]):
        gradients = dense(rows, step)
        assert_means(ranks.step(gradients, cut(rows)), gradients, rows)
    assert [rank.progress.exchanges for rank in ranks.ranks] == [3, 3, 3]
    assert all(rank.peers.timings.waited > 0 for rank in ranks.ranks)


@pytest.mark.parametrize("make", [in_one_buffer, in_buckets])
def test_ranks_that_know_only_their_own_rows_weigh_by_those_of_all(ring, make):
    ranks = Ranks(ring, make)
    for step, rows in enumerate([ROWS, (100, 0, 7), (0, 0, 0), (1, 2, 3)]):
        gradients = dense(rows, step)
        answers = ranks.step(gradients, local(rows))
        if any(rows):
            assert_means(answers, gradients, rows)
    outside_of_fit = dense((1, 1, 1))
    assert_means(ranks.step(outside_of_fit, [None] * 3), outside_of_fit, (1, 1, 1))


def slices(indices, width=2, seed=0, dtype="float32"):
    values = np.random.default_rng(seed).normal(size=(len(indices), width)).astype(dtype)
    return tf.IndexedSlices(tf.constant(values), tf.constant(indices, tf.int64), tf.constant([10, width]))


@pytest.mark.parametrize("make", [in_one_buffer, in_buckets])
@pytest.mark.parametrize(
    ("indices", "kept"),
    [
        ([[4, 1], [7], [1, 1, 9]], [4, 1, 1, 1, 9]),  # the second rank has no rows
        ([[0, 1, 2], [7, 8], [0, 1, 2]], [0, 1, 2]),  # the same, as for position embeddings: one slice of each
        ([[0, 1], [7], [0, 1]], [0, 1, 0, 1]),  # by chance
        ([[0, 1, 1], [7], [0, 1, 1]], [0, 1, 1, 0, 1, 1]),
        ([[0, 1, 2], [7], [0, 2, 1]], [0, 1, 2, 0, 2, 1]),
        ([[], [7], []], []),
    ],
)
def test_slices_are_those_of_the_whole_batch_in_order_of_rank(ring, make, indices, kept):
    gradients = [[slices(of_rank, seed=rank), *dense()[rank]] for rank, of_rank in enumerate(indices)]
    answers = Ranks(ring, make).step(gradients, cut())
    assert_means([answer[1:] for answer in answers], [of_rank[1:] for of_rank in gradients])
    for answer in answers:
        assert answer[0].indices.numpy().tolist() == kept
        assert answer[0].values.dtype == tf.float32
        whole = mean([tf.convert_to_tensor(of_rank[0]) for of_rank in gradients])
        np.testing.assert_allclose(tf.convert_to_tensor(answer[0]), whole, rtol=1e-6)


def test_slices_alone_are_exchanged_too(ring):
    gradients = [[slices([rank], seed=rank)] for rank in range(3)]
    for (answer,) in Ranks(ring).step(gradients, cut((1, 1, 2))):
        assert answer.indices.numpy().tolist() == [0, 1, 2]
        whole = mean([tf.convert_to_tensor(each) for (each,) in gradients], (1, 1, 2))
        np.testing.assert_allclose(tf.convert_to_tensor(answer), whole, rtol=1e-6)


@pytest.mark.parametrize("make", [in_one_buffer, in_buckets, on_a_gpu])
@pytest.mark.parametrize("infinite", [np.nan, np.inf])
def test_ranks_whose_gradient_is_no_number_are_named_to_all(ring, make, in_parts, infinite):
    bad = [[tf.constant([1.0] * 20 + [infinite if rank else 1.0])] for rank in range(3)]
    for rows, named, first in (((1, 1, 1), "ranks 1, 2", 1), (ROWS, "rank 2", 2)):
        for error in Ranks(ring, make).step(bad, cut(rows)):
            assert isinstance(error, NotANumber) and error.rank == first
            assert f"the gradient of {named} is NaN or infinite at step 1 of epoch 1; " in str(error)


def test_slices_that_are_no_numbers_are_named_and_only_where_that_is_asked(ring):
    bad = [[slices([1]), tf.constant(1.0)] for _ in range(3)]
    bad[2][0] = tf.IndexedSlices(bad[2][0].values * np.nan, bad[2][0].indices, bad[2][0].dense_shape)
    for error in Ranks(ring).step(bad, cut()):
        assert isinstance(error, NotANumber) and error.rank == 2
    for answer in Ranks(ring, functools.partial(in_one_buffer, check_finite=False)).step(bad, cut()):
        assert np.isnan(answer[0].values).any() and answer[1] == 1


@pytest.mark.parametrize("make", [in_one_buffer, in_buckets])
def test_a_sum_that_overflows_is_nobody_s_fault(ring, make):
    largest = [[tf.constant([np.finfo("float32").max])] for _ in range(3)]
    for error in Ranks(ring, make).step(largest, local((1, 1, 1))):
        assert isinstance(error, NotANumber) and error.rank == 0
        assert "the sum of the gradients is NaN or infinite" in str(error)
    unchecked = functools.partial(make, check_finite=False)
    for answer in Ranks(ring, unchecked).step([[tf.constant([np.nan])]] * 3, cut()):
        assert np.isnan(answer[0])


def test_ranks_that_read_other_data_are_told_at_the_latest_after_some_steps(ring):
    """At once at the beginning, where shuffles differ; data of their own may differ."""
    same, other = [tf.constant([[1.0, -2.0]])], [tf.constant([[1.0, -2.5]])]
    gradients = [[tf.constant(1.0)]] * 3

    def found(ranks, samples, steps):
        for step in range(steps):
            answers = ranks.step(gradients, cut(ROWS, samples))
            if isinstance(answers[0], Diverged):
                assert all("rank 2 and rank 0 read different data at step 1 of epoch 1" in str(a) for a in answers)
                return step
        return None

    assert found(Ranks(ring), [same, same, other], 1) == 0
    late = Ranks(ring)
    for rank in late.ranks:
        rank.progress.exchanges = FIRST_FINGERPRINTS - 1
    assert found(late, [same, same, other], 1) == 0
    late = Ranks(ring)
    for rank in late.ranks:
        rank.progress.exchanges = 1000 * FINGERPRINT_EVERY + 1
    assert found(late, [same, same, same], 3) is None
    assert found(late, [same, same, other], FINGERPRINT_EVERY + 1) is not None
    answers = Ranks(ring).step(gradients, [local(ROWS, sample)[0] for sample in (same, same, other)])
    assert [float(answer[0]) for answer in answers] == [1, 1, 1]


def test_a_gradient_of_any_kind_is_scaled():
    half = tf.constant(0.5, tf.float64)
    assert exchange.scaled(None, half) is None
    assert exchange.scaled(tf.constant([3.0]), half).numpy().tolist() == [1.5]
    before = slices([4, 1])
    after = exchange.scaled(before, half)
    assert after.indices is before.indices and after.dense_shape is before.dense_shape
    np.testing.assert_array_equal(after.values, before.values / 2)


def test_arrays_in_a_buffer_are_aligned():
    """TensorFlow then takes them over as they are."""
    layout = exchange.Layout(np.dtype("float32"), [np.ones(3, "float32"), np.ones(2), np.ones(5, "float32")])
    flat, result = np.empty(layout.size, "float32"), [None] * 3
    layout.single_section.fill(flat, [np.ones(3, "float32"), np.ones(2), np.full(5, 2, "float32")], 0.5)
    layout.single_section.scatter(flat, [np.ones(3), None, np.ones(5)], result)
    assert result[1] is None and result[0].tolist() == [0.5] * 3 and result[2].tolist() == [1.0] * 5
    apart = result[2].ctypes.data - result[0].ctypes.data
    assert apart == ALIGNMENT_BYTES and flat.sum() == 6.5


def test_sums_in_parts_change_nothing_else(monkeypatch):
    """They are put where the gradients are: not where these are variables, constants, one tensor, or read by others."""
    monkeypatch.setattr(exchange, "SECTION_BYTES", 1 << 10)
    monkeypatch.setattr(GradientExchange, "sum", add_one)
    rank = rank_on(SingleRank())
    exchanges, variable = in_one_buffer(rank), tf.Variable(tf.range(1000.0))

    @tf.function
    def step(x):
        squared = x * x
        gradients = [variable.read_value(), tf.ones([1000]), squared, squared, x * x, x, tf.zeros([0, 3])]
        return exchanges(gradients, local((1,))[0]), squared

    x = tf.range(1000.0)
    for _ in range(2):
        after, squared = step(x)
        expected = [x, tf.ones([1000]), squared, squared, squared, x]
        np.testing.assert_array_equal(after[:-1], np.stack(expected) + 1)
        np.testing.assert_array_equal(squared, np.arange(1000.0) ** 2)
        np.testing.assert_array_equal(variable, np.arange(1000.0))


def add_one(self, number, flat, announcement):
    """In place of the sum over ranks."""
    flat += 1
    return [announcement]


def test_a_sum_takes_no_more_memory_than_a_part(monkeypatch):
    monkeypatch.setattr(exchange, "SECTION_BYTES", 1 << 20)
    exchanges = in_one_buffer(rank_on(SingleRank()))

    @tf.function
    def step(x):
        return exchanges([x * number for number in (2.0, 3.0, 4.0)], local((1,))[0])

    step(tf.ones([1 << 20]))
    tracemalloc.start()
    try:
        after = step(tf.ones([1 << 20]))
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 2 << 20 and [float(each[-1]) for each in after] == [2, 3, 4]


@pytest.mark.parametrize("method", ["bf16", "topk:0.1"])
def test_what_compression_leaves_out_comes_in_later_steps(ring, method, monkeypatch):
    monkeypatch.setattr(buckets, "MIN_BUCKET_BYTES", 16)
    ranks = Ranks(ring, functools.partial(in_buckets, compressed=compression.read(method)))
    gradients = dense((1, 1, 1))
    expected = mean([of_rank[1] for of_rank in gradients], (1, 1, 1))
    sums, steps = np.zeros(SHAPES[0]), 24
    for _ in range(steps):
        answers = ranks.step(gradients, cut((1, 1, 1)))
        sums += answers[0][1]
        np.testing.assert_allclose(answers[0][3], mean([of_rank[3] for of_rank in gradients], (1, 1, 1)))  # float64
    off = np.abs(np.asarray(answers[0][1]) - expected).max()
    assert off > 1e-4
    assert np.abs(sums / steps - expected).max() < off / 5


def test_the_way_is_chosen_by_where_the_ranks_are():
    gradients, variables = [tf.ones(3)], [tf.Variable(tf.ones(3))]
    for transport, given, kind in (
        ("tcp", "bf16", OverlappedExchange),
        ("shared memory", "bf16", GradientExchange),
        ("shared memory", None, GradientExchange),
    ):
        with ThreadRing(2, transport) as ring:
            channel = SentFrames()
            rank = rank_on(ring.ranks[0], channel, compression=given)
            assert type(overlap.exchange(rank, True, gradients, variables, cut()[0])) is kind
        said = [event["message"] for _, events in channel.sent for event in events]
        assert len(said) == (kind is GradientExchange and given is not None)
        assert all("--compression bf16 is left out" in message for message in said)
