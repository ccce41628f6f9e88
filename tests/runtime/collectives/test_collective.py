"""Collectives over every transport: correct sums with equal bits, and ranks that diverge, leave or die."""

import random
import signal
import socket
import time

import numpy as np
import pytest
from support.rings import CREDENTIALS, HOSTS, ProcessRing, ThreadRing, together

from ddl_magics.runtime.collectives import rendezvous
from ddl_magics.runtime.collectives.announcement import EPOCH, STEP, USER, WEIGHTS
from ddl_magics.runtime.collectives.collective import Announcement, Diverged, PeerLost
from ddl_magics.runtime.collectives.hierarchy import Hierarchy
from ddl_magics.runtime.collectives.peer_listener import RING, PeerListener
from ddl_magics.runtime.collectives.ring import BLOCK_BYTES, CHUNK_BYTES, LOOPBACK_CHUNK_BYTES, Ring
from ddl_magics.runtime.collectives.shared_memory import PIECE_BYTES, SharedMemory
from ddl_magics.runtime.transport import wire

DTYPES = ["float16", "float32", "float64", "int8", "uint16", "int64", "complex64", ">f4", "longdouble"]


@pytest.fixture(params=HOSTS)
def transport(request):
    """The name of each transport in turn: every guarantee holds over all of them."""
    return request.param


def slow(*values):
    """What shows nothing else over any transport: with `make test-slow`."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


def gone(outcome):
    assert isinstance(outcome, PeerLost), repr(outcome)
    return outcome.rank, outcome.reason


@pytest.mark.parametrize("size", [1, 2, 3, 5, *slow(4, 6, 7, 8)])
def test_sums_of_any_length_and_type_are_right_and_equal_to_the_bit(size, transport):
    chance = random.Random(size)
    lengths = [0, 1, size - 1, size, size + 1, chance.randrange(100), chance.randrange(10_000)]
    with ThreadRing(size, transport) as ring:
        for step, (length, dtype) in enumerate([(length, dtype) for length in lengths for dtype in DTYPES]):
            # integers: their sums are exact in every dtype
            values = np.random.default_rng(step).integers(0, 15, (size, length))
            buffers = [row.astype(dtype) for row in values]
            expected = values.sum(axis=0).astype(dtype)
            sent = [Announcement(STEP, 1, 2, step, rank + 0.5, 1 << rank, -rank, 2.0) for rank in range(size)]
            received = ring.each(lambda rank, data=buffers, sent=sent: rank.allreduce(data[rank.rank], sent[rank.rank]))
            assert received == [sent] * size
            for buffer in buffers:
                assert buffer.dtype == np.dtype(dtype)
                np.testing.assert_array_equal(buffer, expected)


def test_rounding_is_the_same_on_every_rank_over_many_blocks(transport):
    length = 3 * PIECE_BYTES + 12_345
    values = np.random.default_rng(1).normal(size=(3, length)).astype(np.float32) * 1e3
    buffers = values.copy()
    with ThreadRing(3, transport) as ring:
        ring.allreduce(buffers)
        assert all(rank.elapsed > 0 for rank in ring.ranks)
    assert buffers[0].tobytes() == buffers[1].tobytes() == buffers[2].tobytes()
    np.testing.assert_allclose(buffers[0], values.astype(np.float64).sum(axis=0), rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("size", [3, *slow(2)])
def test_lengths_around_the_bounds_of_pieces_chunks_and_blocks(size, transport):
    # eight bytes a value
    cuts = {PIECE_BYTES, BLOCK_BYTES * size, CHUNK_BYTES * size, LOOPBACK_CHUNK_BYTES * size}
    lengths = [cut // 8 * k + d for cut in sorted(cuts) for k in (1, 2) for d in (-1, 0, 1)]
    lengths += np.random.default_rng(size).integers(1, 2e6, 5).tolist()
    with ThreadRing(size, transport) as ring:
        for step, length in enumerate(lengths):
            values = np.random.default_rng(step).integers(0, 1 << 40, (size, length))
            buffers = values.copy()
            ring.allreduce(buffers, step)
            assert (buffers == values.sum(axis=0)).all(), length


def test_nan_and_infinity_arrive_without_a_warning(recwarn, transport):
    buffers = [np.array([np.inf, np.nan, 3e38], np.float32), np.array([-np.inf, 1, 3e38], np.float32)]
    with ThreadRing(2, transport) as ring:
        ring.allreduce(buffers)
    np.testing.assert_array_equal(buffers[1], np.array([np.nan, np.nan, np.inf], np.float32))
    assert not recwarn.list


def test_bfloat16_as_tensorflow_has_it(transport):
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    buffers = [np.full(1000, rank + 1, bfloat16) for rank in range(3)]
    with ThreadRing(3, transport) as ring:
        ring.allreduce(buffers)
    assert all((buffer == 6).all() for buffer in buffers)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_broadcast_gives_the_bits_of_the_root(size, transport):
    sent = [Announcement(WEIGHTS, weight=rank) for rank in range(size)]
    with ThreadRing(size, transport) as ring:
        for length, root in [(0, 0), (1, size - 1), (200_001, size // 2)]:
            buffers = [np.random.default_rng(rank).normal(size=length) for rank in range(size)]
            expected = buffers[root].copy()
            received = ring.each(lambda r, data=buffers, root=root: r.broadcast(data[r.rank], sent[r.rank], root))
            assert received == [sent] * size
            for buffer in buffers:
                np.testing.assert_array_equal(buffer, expected)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_gather_brings_payloads_of_different_lengths(size, transport):
    payloads = [b"", b"x", b"y" * 70_000, b"z" * 3][:size]
    with ThreadRing(size, transport) as ring:
        gathered = ring.each(lambda rank: rank.gather(payloads[rank.rank], Announcement(USER), 100_000))
    assert gathered == [payloads] * size


@pytest.mark.parametrize("size", [1, 2, 4, *slow(3, 5)])
def test_scatter_brings_each_rank_its_payload(size, transport):
    """Short and empty ones; some of several pieces and blocks."""
    chance = np.random.default_rng(size)
    sent = [[b"", b"x", chance.bytes(70_000), b"z" * 3, b""][:size], [b""] * size]
    sent.append([chance.bytes(PIECE_BYTES + 1000 * rank) for rank in range(size)])
    with ThreadRing(size, transport) as ring:
        for payloads in sent:
            outcomes = ring.each(
                lambda rank, sent=payloads: rank.scatter([] if rank.rank else sent, Announcement(USER), 1 << 30)
            )
            assert outcomes == payloads


def test_scatter_beyond_the_limit_is_refused_on_all_ranks_and_later_ones_work(transport):
    with ThreadRing(3, transport) as ring:
        long, short = [b"a", b"bc", b"d" * 20], [b"a", b"bc", b"d"]
        refusals = ring.each(lambda rank: rank.scatter([] if rank.rank else long, Announcement(USER), 15))
        message = "rank 0 has 20 bytes for a rank, at most 15 can be scattered"
        assert [str(error) for error in refusals] == [message] * 3
        assert ring.each(lambda rank: rank.scatter([] if rank.rank else short, Announcement(USER), 15)) == short


def test_gather_beyond_the_limit_is_refused_on_all_ranks_and_later_ones_work(transport):
    with ThreadRing(3, transport) as ring:
        refusals = ring.each(lambda rank: rank.gather(b"x" * 10 * rank.rank, Announcement(USER), 15))
        assert [str(error) for error in refusals] == ["rank 2 brings 20 bytes, at most 15 can be gathered"] * 3
        assert ring.each(lambda rank: rank.gather(b"x", Announcement(USER), 15)) == [[b"x"] * 3] * 3


@pytest.mark.parametrize(
    "buffer", [np.zeros((2, 2)), np.zeros(8)[::2], np.array(["a"]), np.array([None]), np.zeros(2, bool)]
)
def test_an_array_that_cannot_be_summed_is_refused_before_anything_is_sent(buffer, transport):
    with ThreadRing(2, transport) as ring:
        outcomes = ring.each(lambda rank: rank.allreduce(buffer, Announcement(STEP)))
        assert all(isinstance(outcome, ValueError) for outcome in outcomes)
        ring.each(lambda rank: rank.allreduce(np.zeros(3), Announcement(STEP)))


# Ranks in different collectives, and ranks that end.

IN_STEP_12 = Announcement(STEP, 0, 2, 11), "is at step 12 of epoch 3"
CALLS = [
    (*IN_STEP_12, Announcement(EPOCH, 0, 2, 11), "has ended epoch 3"),
    (*IN_STEP_12, Announcement(STEP, 0, 2, 12), "is at step 13 of epoch 3"),
    (
        Announcement(WEIGHTS, 1),
        "begins fit 2",
        Announcement(USER, step=4),
        "is in ddl.allreduce() (call 5 of the cell)",
    ),
    (
        *(Announcement(STEP, 0, 0, 0), "is at step 1 of epoch 1 of fit 1"),
        *(Announcement(STEP, 1, 0, 0), "is at step 1 of epoch 1 of fit 2"),
    ),
]


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(("common", "doing", "odd", "other"), CALLS)
def test_ranks_in_different_collectives_are_named_on_every_rank(size, common, doing, odd, other, transport):
    with ThreadRing(size, transport) as ring:
        outcomes = ring.each(lambda rank: rank.allreduce(np.zeros(500_000), odd if rank.rank == 1 else common))
        for outcome in outcomes:
            assert isinstance(outcome, Diverged)
            assert 1 in (outcome.rank, outcome.other_rank)
            (neighbour,) = {outcome.rank, outcome.other_rank} - {1}
            assert f"rank 1 {other}" in str(outcome)
            assert f"rank {neighbour} {doing}" in str(outcome)
        again = ring.each(lambda rank: rank.allreduce(np.zeros(1), Announcement(STEP)))
        assert [str(error) for error in again] == [str(error) for error in outcomes]


def test_different_sizes_are_named(transport):
    with ThreadRing(2, transport) as ring:
        outcomes = ring.each(lambda rank: rank.allreduce(np.zeros(10 + rank.rank, np.float32), Announcement(STEP)))
        for outcome in outcomes:
            assert "rank 0 is at step 1 of epoch 1 with 40 bytes of float32" in str(outcome)
            assert "rank 1 is at step 1 of epoch 1 with 44 bytes of float32" in str(outcome)


def test_different_operations_diverge(transport):
    with ThreadRing(2, transport) as ring:
        outcomes = ring.each(
            lambda rank: (rank.broadcast if rank.rank else rank.allreduce)(np.zeros(10_000), Announcement(USER))
        )
        assert all(isinstance(outcome, Diverged) for outcome in outcomes)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_a_rank_that_leaves_is_named_with_its_reason(size, transport):
    with ThreadRing(size, transport) as ring:
        ring.each(lambda rank: rank.allreduce(np.ones(1000), Announcement(STEP)))
        ring.ranks[1].close("its cell has ended")
        others = [rank for rank in range(size) if rank != 1]
        start = time.monotonic()
        outcomes = ring.each(lambda rank: rank.allreduce(np.zeros(1_000_000), Announcement(STEP, step=1)), others)
        assert [gone(outcome) for outcome in outcomes] == [(1, "its cell has ended")] * len(others)
        assert time.monotonic() - start < 1


@pytest.mark.parametrize("size", [2, 6, *slow(3)])
def test_the_last_collective_is_complete_although_ranks_leave_right_after_it(size, transport):
    """A rank that is done may be gone before its neighbours have read all of its data."""
    for attempt in range(10):
        buffers = [np.ones(300_000, np.float32) for _ in range(size)]
        with ThreadRing(size, transport) as ring:

            def last(rank, buffers=buffers):
                rank.allreduce(buffers[rank.rank], Announcement(EPOCH))
                rank.close("its cell has ended")

            assert ring.each(last) == [None] * size, f"attempt {attempt}"
        assert all((buffer == size).all() for buffer in buffers)


def test_close_ends_a_wait_from_another_thread(transport):
    with ThreadRing(3, transport) as ring:

        def stop():
            time.sleep(0.2)
            ring.ranks[0].close("it was stopped")

        waiting = [lambda r=r: ring.ranks[r].allreduce(np.zeros(2_000_000), Announcement(STEP)) for r in (0, 1)]
        start = time.monotonic()
        outcomes = together([*waiting, stop])[:2]  # rank 2 does not come
        assert gone(outcomes[0]) == (0, "it was stopped")
        assert outcomes[1].rank == 0  # without the reason: only rank 2, which is away, could forward it
        assert time.monotonic() - start < 2
        (again,) = ring.each(lambda rank: rank.allreduce(np.zeros(1), Announcement(STEP)), [0])
        assert gone(again) == (0, "it was stopped")


def test_timings_separate_waiting_from_the_wire(transport):
    """All others wait for a late rank, also those that are not its neighbours."""
    with ThreadRing(4, transport) as ring:

        def late(rank):
            time.sleep(0.6 if rank.rank == 1 else 0)
            rank.allreduce(np.zeros(100_000), Announcement(STEP))
            assert sum(rank.timings) == pytest.approx(rank.elapsed)
            return rank.timings

        spent = ring.each(late)
        for other in (0, 2, 3):
            assert spent[other].wait > 0.3
        assert all(min(each) >= 0 for each in spent)
        if transport.startswith("shared memory"):
            assert all(each.wire == 0 for each in spent)


def test_a_second_thread_in_a_collective_is_refused(transport):
    with ThreadRing(2, transport) as ring:

        def second():
            time.sleep(0.1)
            try:
                ring.ranks[0].allreduce(np.zeros(1), Announcement(STEP))
            finally:
                ring.ranks[1].allreduce(np.zeros(1), Announcement(STEP))

        first, refused = together([lambda: ring.ranks[0].allreduce(np.zeros(1), Announcement(STEP)), second])
        assert isinstance(refused, RuntimeError)
        assert len(first) == 2


def test_a_single_rank_has_its_own_sums():
    with ThreadRing(1) as ring:
        (alone,) = ring.ranks
        buffer = np.arange(3)
        assert alone.allreduce(buffer, Announcement(STEP, weight=2)) == [Announcement(STEP, weight=2)]
        assert alone.gather(b"a", Announcement(USER), 1) == [b"a"]
        assert alone.scatter([b"a"], Announcement(USER), 1) == b"a"
        alone.close("done")
        with pytest.raises(PeerLost):
            alone.allreduce(buffer, Announcement(STEP))


# The rendezvous.


@pytest.mark.parametrize(
    ("transport", "size", "kind"),
    [
        ("tcp", 3, Ring),
        ("shared memory", 3, SharedMemory),
        ("hosts of two", 2, SharedMemory),
        ("hosts of two", 3, Hierarchy),
        ("two hosts in turn", 2, Ring),
        ("two hosts in turn", 5, Hierarchy),
    ],
)
def test_the_location_of_the_ranks_decides_the_transport(transport, size, kind):
    with ThreadRing(size, transport) as ring:
        assert {type(rank) for rank in ring.ranks} == {kind}


def test_a_rank_that_does_not_connect_is_named_in_time():
    listeners = [PeerListener("127.0.0.1", CREDENTIALS, rank, 0, 3) for rank in range(3)]
    addresses = [listener.address for listener in listeners]
    outcomes = together([lambda r=r: rendezvous.connect(listeners[r], addresses, timeout=0.5) for r in (0, 1)])
    listeners[2].close()
    assert [gone(outcome) for outcome in outcomes] == [(2, "it did not connect in time")] * 2


def test_a_rank_that_is_there_and_does_not_answer_may_be_stopped():
    listener = PeerListener("127.0.0.1", CREDENTIALS, 0, 0, 2)
    with socket.create_server(("127.0.0.1", 0)) as stopped, pytest.raises(PeerLost) as lost:
        listener.connect_to(1, stopped.getsockname(), RING, time.monotonic() + 0.3)
    listener.close()
    assert lost.value.rank == 1 and "no answer in time; is its process stopped, or the way " in lost.value.reason


def test_only_the_other_ranks_of_this_attempt_are_admitted():
    listener = PeerListener("127.0.0.1", CREDENTIALS, 2, 1, 4)
    me = wire.Identity("rank", 2, 1)
    strangers = [("rank", 1, 0), ("rank", 4, 1), ("rank", -1, 1), ("rank", 2, 1), ("server", 1, 1), ("driver", -1, 1)]
    for stranger in strangers:
        with pytest.raises(wire.PeerRefused, match="only the other ranks of attempt 1 may connect here"):
            wire.connect(listener.address, CREDENTIALS, wire.Identity(*stranger), me, 5)
    channel = wire.connect(listener.address, CREDENTIALS, wire.Identity("rank", 0, 1), me, 5)
    channel.send(RING)
    deadline = time.monotonic() + 5
    accepted = listener.wait_for(0, RING, deadline)
    assert accepted.peer.rank == 0
    accepted.close(0)
    channel.close(0)
    channel = wire.connect(listener.address, CREDENTIALS, wire.Identity("rank", 1, 1), me, 5)
    channel.send(99)  # no purpose
    with pytest.raises(wire.ConnectionLost):
        channel.recv()
    channel.close(0)
    listener.close()


# Ranks in processes of their own.


@pytest.mark.parametrize("size_and_elements", [(3, 10), (3, 8_000_000), *slow((2, 8_000_000))])
def test_a_killed_rank_is_named_within_a_second(size_and_elements, transport):
    size, elements = size_and_elements
    with ProcessRing(size, elements, transport) as ring:
        ring.train()
        time.sleep(0.05)  # somewhere in the middle of a collective
        ring.kill(1)


def test_a_slow_rank_is_waited_for(transport):
    with ProcessRing(3, 1_000_000, transport) as ring:
        ring.processes[1].send_signal(signal.SIGSTOP)
        for rank in range(3):
            ring.send(rank, steps=1)
        time.sleep(1)
        ring.processes[1].send_signal(signal.SIGCONT)
        assert [ring.receive(rank) for rank in range(3)] == [{"steps": 1}] * 3  # the process checks the values


def test_the_first_rank_that_died_is_named_although_its_neighbour_ended_too(transport):
    """Rank 2 ends because rank 1 died. Rank 3 sees only rank 2 end, and waits for the notice by way of rank 0."""
    with ProcessRing(4, 1_000_000, transport) as ring:
        ring.train()
        ring.processes[0].send_signal(signal.SIGSTOP)
        ring.processes[1].send_signal(signal.SIGKILL)
        time.sleep(0.2)
        ring.processes[0].send_signal(signal.SIGCONT)
        assert [ring.receive(rank)["lost"] for rank in (0, 2, 3)] == [1, 1, 1]
