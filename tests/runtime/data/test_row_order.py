"""The order of an epoch: every row once, the same for many numbers of ranks, and as good as a full permutation."""

import itertools

import numpy as np
import pytest

from ddl_magics.runtime.data import packing, rank_data, reader, row_order
from ddl_magics.runtime.data.row_order import RowOrder


def epoch_of(rows, size, row_bytes=100, epoch=0, seed=7):
    """The rows of all ranks, by their position in the epoch."""
    together = np.full(rows, -1)
    for rank in range(size):
        order = RowOrder(rows, rank, size, row_bytes, seed)
        mine = np.concatenate([order.draw(epoch, window) for window in range(order.windows)])
        edges = order.window_edges()
        assert (edges[0], edges[-1], len(edges)) == (0, len(mine), order.windows + 1)
        assert [len(order.draw(epoch, window)) for window in range(order.windows)] == np.diff(edges).tolist()
        together[rank::size] = mine * size + rank
    return together


@pytest.fixture
def small_windows(monkeypatch):
    monkeypatch.setattr(row_order, "WINDOW_BYTES", 1 << 20)
    monkeypatch.setattr(row_order, "BLOCK_BYTES", 1 << 13)


@pytest.mark.parametrize("rows", [1, 2, 5, 191, 192, 767, 768, 1000, 9001])
@pytest.mark.parametrize("size", [1, 2, 5, 12])
def test_an_epoch_has_every_row_once(rows, size):
    if rows >= size:
        first, second = (epoch_of(rows, size, epoch=epoch) for epoch in range(2))
        assert sorted(first) == sorted(second) == list(range(rows))
        assert rows <= size or not np.array_equal(first, second) or rows < 10


@pytest.mark.parametrize("rows", [50_000, 50_049, 77_777])
@pytest.mark.parametrize("size", [1, 3, 7, 16])
def test_an_epoch_in_windows_has_every_row_once(small_windows, rows, size):
    assert RowOrder(rows, 0, size, 100, 7).windows > 4
    assert sorted(epoch_of(rows, size)) == list(range(rows))


def test_the_order_is_the_same_for_each_number_of_ranks(small_windows):
    for rows in (300, 1000, 50_001):
        one = epoch_of(rows, 1)
        for size in (2, 3, 4, 6, 12) + ((8, 16, 24, 48) if rows > 768 else ()):
            np.testing.assert_array_equal(one, epoch_of(rows, size))
        assert not np.array_equal(one, epoch_of(rows, 1, seed=8))
    assert not np.array_equal(epoch_of(50_001, 1), epoch_of(50_001, 5))  # 5 does not divide 48


@pytest.mark.parametrize("windows", [1, 10])
def test_the_shuffle_is_as_good_as_a_permutation(monkeypatch, windows):
    """Of sorted rows: no correlation of position and index, and neighbours' labels as of a permutation."""
    rows = 1_000_000
    monkeypatch.setattr(row_order, "WINDOW_BYTES", rows * 20 // windows)
    monkeypatch.setattr(row_order, "BLOCK_BYTES", row_order.WINDOW_BYTES // 2048)
    assert RowOrder(rows, 0, 1, 20, 7).windows == windows
    order = epoch_of(rows, 1, 20)
    # The standard deviation is 0.001 for rows, and 0.01 for some 10,000 blocks that are drawn as a whole.
    assert abs(np.corrcoef(order, np.arange(rows))[0, 1]) < (0.01 if windows == 1 else 0.03)
    for labels in (order * 2 // rows, order * 10 // rows):
        drawn = np.random.default_rng(0).permutation(labels)
        equal, expected = (np.mean(each[1:] == each[:-1]) for each in (labels, drawn))
        assert abs(equal / expected - 1) < 0.01


def test_rows_are_shuffled_before_they_are_dealt():
    """A period in the data, as of the hours of a day, is not one of the ranks or of the classes."""
    rows = 24_123
    places = packing.shuffled(0, rows, rows, 7)
    assert sorted(places) == list(range(rows))
    pieces = [packing.shuffled(first, min(first + 700, rows), rows, 7) for first in range(0, rows, 700)]
    np.testing.assert_array_equal(places, np.concatenate(pieces))
    hours = np.empty(rows, int)
    hours[places] = np.arange(rows) % 24
    of_rank = hours[::24]
    counts = np.bincount(of_rank, minlength=24)
    assert counts.max() < 80  # of 1006 rows; all of them, were the rows dealt as they come
    assert np.abs(places - np.arange(rows)).max() < packing.SHUFFLE_ROWS


@pytest.mark.parametrize(
    ("rows", "size", "batch"), [(1000, 1, 32), (1000, 3, 32), (10, 4, 2), (0, 1, 32), (1001, 2, 7)]
)
def test_batches_are_gathered_in_groups_of_equal_size(rows, size, batch):
    for rank in range(size):
        steps = rank_data.edges(rows, rank, size, batch, global_batch=True)
        parts = np.array([0, len(steps) // 3, len(steps) // 3, len(steps) - 1])
        edges = reader.group_edges(steps, parts, 5)
        assert (edges[0], edges[-1]) == (0, len(steps) - 1)
        assert set(parts.tolist()) <= set(edges.tolist())
        for first, last in itertools.pairwise(edges):
            assert 0 < last - first <= 5
            assert len(set(np.diff(steps[first : last + 1]))) == 1
