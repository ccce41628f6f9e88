"""The two halves of an all-reduce over every transport: a reduce-scatter, and an all-gather of its parts."""

import itertools
import time

import numpy as np
import pytest
from support.rings import HOSTS, ProcessRing, ThreadRing

from ddl_magics.runtime.collectives import parts, ring_link
from ddl_magics.runtime.collectives.announcement import RECORD_BYTES, STEP
from ddl_magics.runtime.collectives.collective import Announcement, Diverged, PeerLost
from ddl_magics.runtime.collectives.shared_memory import PIECE_BYTES

DTYPES = ["float32", "float64", "float16", "bfloat16", "int64"]


#: With three ranks two hosts are unequal, and ranks of a host are not neighbours.
WAYS = ["tcp", "shared memory", "two hosts in turn"]
SIZES_AND_WAYS = [(1, "tcp"), (2, "tcp"), (2, "shared memory")]
SIZES_AND_WAYS += [(size, way) for size in (3, 4) for way in HOSTS if not way.startswith("encrypted")]


def dtype_of(name):
    return np.dtype(pytest.importorskip("ml_dtypes").bfloat16 if name == "bfloat16" else name)


def bounds_of(length, size, chance):
    """Equal parts, all in one part, and parts of any length, the second of them empty if there are more than two."""
    cuts = sorted(chance.integers(0, length + 1, size - 1).tolist())
    if size > 2:
        cuts[1] = cuts[0]
    return [0, *cuts, length], parts.even(length, size), [0, *[length] * size]


def halves(ring, buffers, bounds, step=0):
    """Both halves, on all ranks; between them only its own part of a rank's buffer stays. The announcements of both."""

    def both(rank):
        buffer, own = buffers[rank.rank], slice(bounds[rank.position], bounds[rank.position + 1])
        announced = rank.reduce_scatter(buffer, bounds, Announcement(STEP, step=step, weight=rank.rank))
        kept = buffer[own].copy()
        buffer.fill(7)
        buffer[own] = kept
        return announced, rank.all_gather(buffer, bounds, Announcement(STEP, step=step, weight=-rank.rank))

    return ring.each(both)


@pytest.mark.parametrize(("size", "transport"), SIZES_AND_WAYS)
def test_parts_of_any_length_and_type_are_summed_and_gathered(size, transport):
    chance = np.random.default_rng(size)
    cases = [(bounds_of(5001, size, chance)[0], name) for name in DTYPES]
    cases += [(bounds, "float32") for length in (0, 1, size + 1) for bounds in bounds_of(length, size, chance)]
    longest = 5 * PIECE_BYTES // 8 * size // 2 + 3  # some pieces over each transport
    cases += [(bounds, "int64") for bounds in bounds_of(longest, size, chance)]
    with ThreadRing(size, transport) as ring:
        for step, (bounds, name) in enumerate(cases):
            values = chance.integers(0, 15, (size, bounds[-1]))  # their sums are exact in every dtype
            buffers = [row.astype(dtype_of(name)) for row in values]
            received = halves(ring, buffers, bounds, step)
            sent = [[Announcement(STEP, step=step, weight=sign * r) for r in range(size)] for sign in (1, -1)]
            assert received == [tuple(sent)] * size
            for buffer in buffers:
                np.testing.assert_array_equal(buffer, values.sum(axis=0).astype(buffer.dtype))


@pytest.mark.parametrize(
    ("transport", "size", "positions"),
    [
        ("tcp", 3, [0, 1, 2]),
        ("shared memory", 3, [0, 1, 2]),
        ("hosts of two", 3, [0, 1, 2]),
        ("two hosts in turn", 3, [0, 2, 1]),
        ("two hosts in turn", 5, [0, 3, 1, 4, 2]),
    ],
)
def test_the_parts_of_a_host_are_adjacent(transport, size, positions):
    with ThreadRing(size, transport) as ring:
        assert [rank.position for rank in ring.ranks] == positions


@pytest.mark.parametrize(("transport", "size"), [("shared memory", 2), ("shared memory", 4), ("tcp", 3)])
def test_halves_round_as_an_allreduce(transport, size):
    """On one host whatever the parts are, as all sums are in order of rank; in a ring with equal parts."""
    length = 2 * PIECE_BYTES // 4 + 12_345
    values = np.random.default_rng(1).normal(size=(size, length)).astype(np.float32) * 1e3
    even, uneven = parts.even(length, size), [0, *[length // 3 + i for i in range(size - 1)], length]
    with ThreadRing(size, transport) as ring:
        expected = values.copy()
        ring.allreduce(expected)
        for bounds in (even, uneven) if transport == "shared memory" else (even,):
            buffers = values.copy()
            halves(ring, buffers, bounds)
            for buffer in buffers:
                assert buffer.tobytes() == expected[0].tobytes()


@pytest.mark.parametrize("size", [2, 4])
def test_halves_have_as_many_barriers_as_an_allreduce(size):
    with ThreadRing(size, "shared memory") as ring:
        buffers = np.ones((size, 12 * PIECE_BYTES // 8))
        barriers = [ring.ranks[0].link._number]
        for exchange in (
            lambda: ring.allreduce(buffers),
            lambda: halves(ring, buffers, parts.even(len(buffers[0]), size)),
        ):
            exchange()
            barriers.append(ring.ranks[0].link._number)
    assert barriers[2] - barriers[1] <= barriers[1] - barriers[0] == 13


@pytest.mark.parametrize(("transport", "size", "members"), [("tcp", 3, 3), ("two hosts in turn", 3, 2)])
def test_halves_send_as_much_as_an_allreduce(transport, size, members, monkeypatch):
    sent = []
    drop = ring_link.drop_sent
    monkeypatch.setattr(ring_link, "drop_sent", lambda queue, count: (sent.append(count), drop(queue, count)))
    with ThreadRing(size, transport) as ring:
        sent.clear()
        buffers = np.ones((size, 600_000))
        ring.allreduce(buffers)
        of_allreduce = sum(sent)
        sent.clear()
        halves(ring, buffers, [0, 100_000, 450_000, 600_000])
    calls = size * (members - 1) * RECORD_BYTES
    assert of_allreduce - calls == 2 * (members - 1) * buffers[0].nbytes
    assert sum(sent) - 2 * calls == of_allreduce - calls


@pytest.mark.parametrize("bounds", [[], [0, 3], [0, 1, 1, 3], [0, 2, 4], [1, 2, 3], [0, 4, 3]])
def test_bounds_of_other_parts_are_refused_before_anything_is_sent(bounds):
    with ThreadRing(2) as ring:
        for half in ("reduce_scatter", "all_gather"):
            refusals = ring.each(lambda rank, half=half: getattr(rank, half)(np.ones(3), bounds, Announcement(STEP)))
            assert [str(error) for error in refusals] == ["2 parts need 3 ascending bounds from 0 to 3"] * 2
        strided = ring.each(lambda rank: rank.reduce_scatter(np.ones(6)[::2], [0, 1, 3], Announcement(STEP)))
        assert all(isinstance(error, ValueError) for error in strided)
        buffers = np.ones((2, 3))
        halves(ring, buffers, [0, 1, 3])
        assert (buffers == 2).all()


@pytest.mark.parametrize("transport", WAYS)
@pytest.mark.parametrize(
    "pair", [("reduce_scatter", "all_gather"), ("allreduce", "all_gather"), ("broadcast", "reduce_scatter")]
)
def test_other_collectives_diverge(pair, transport):
    def call(rank):
        name = pair[rank.rank % 2]
        bounds = () if name in ("allreduce", "broadcast") else ([0, 1, 2, 900_000],)
        return getattr(rank, name)(np.zeros(900_000), *bounds, Announcement(STEP))

    with ThreadRing(3, transport) as ring:
        assert all(isinstance(outcome, Diverged) for outcome in ring.each(call))


@pytest.mark.parametrize("transport", WAYS)
@pytest.mark.parametrize("half", ["reduce_scatter", "all_gather"])
def test_other_parts_and_sizes_diverge(half, transport):
    own = "rank {} is at step 1 of epoch 1 with 80 bytes of float64 in parts of its own"
    with ThreadRing(2, transport) as ring:
        outcomes = ring.each(lambda rank: getattr(rank, half)(np.zeros(10), [0, 3 + rank.rank, 10], Announcement(STEP)))
        for outcome in outcomes:
            assert isinstance(outcome, Diverged)
            assert own.format(0) in str(outcome) and own.format(1) in str(outcome)
    with ThreadRing(2, transport) as ring:
        sizes = [10, 11]
        outcomes = ring.each(
            lambda rank: getattr(rank, half)(np.zeros(sizes[rank.rank]), [0, 3, sizes[rank.rank]], Announcement(STEP))
        )
        for outcome in outcomes:
            assert "rank 0 is at step 1 of epoch 1 with 80 bytes of float64, rank 1 " in str(outcome)


@pytest.mark.parametrize("transport", WAYS)
@pytest.mark.parametrize("half", ["reduce_scatter", "all_gather"])
def test_a_rank_that_leaves_is_named_with_its_reason(half, transport):
    with ThreadRing(3, transport) as ring:
        ring.ranks[1].close("its cell has ended")
        bounds = parts.even(1_000_000, 3)
        outcomes = ring.each(lambda rank: getattr(rank, half)(np.zeros(1_000_000), bounds, Announcement(STEP)), [0, 2])
        for outcome in outcomes:
            assert isinstance(outcome, PeerLost)
            assert (outcome.rank, outcome.reason) == (1, "its cell has ended")


@pytest.mark.parametrize("transport", WAYS)
def test_a_killed_rank_is_named_within_a_second(transport):
    with ProcessRing(3, 3_000_000, transport, halves=True) as ring:
        ring.train()
        time.sleep(0.05)  # somewhere in the middle of a half
        ring.kill(1)


@pytest.mark.parametrize("bounds", [[0, 0], [0, 7], [0, 3, 3, 4], [0, 10, 11, 11]])
@pytest.mark.parametrize("step", [1, 3, 20])
def test_pieces_have_each_element_once_in_its_part(bounds, step):
    pieces = parts.pieces(bounds, step)
    for part, (begin, stop) in enumerate(itertools.pairwise(bounds)):
        elements = [element for piece in pieces for element in range(piece[part].start, piece[part].stop)]
        assert elements == list(range(begin, stop))
    assert all(0 < max(part.stop - part.start for part in piece) <= step for piece in pieces)
