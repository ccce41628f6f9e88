"""Every rank can have the rows of all ranks, in the order of the DataFrame."""

import functools

import numpy as np
import pandas as pd
import pytest
from support.feeds import LocalSpark, shares
from support.rings import CREDENTIALS, ThreadRing, together

from ddl_magics.runtime.collectives.announcement import ROWS, STEP, Announcement, Diverged
from ddl_magics.runtime.collectives.peer_listener import PeerListener
from ddl_magics.runtime.data import all_rows, share_files
from ddl_magics.runtime.data.all_rows import AllRows
from ddl_magics.runtime.rank import peers
from ddl_magics.runtime.rank.progress import Progress

TABLE_ROWS = 2113
VOCABULARY = ["", "oak", "birch tree", "\u00e4sche", "a\0"]


def table(rows=TABLE_ROWS):
    numbers = np.arange(rows)
    return pd.DataFrame(
        {
            "number": numbers.astype(np.float32),
            "square": (numbers % 97) ** 2.0,
            "word": [VOCABULARY[n * n % 5] for n in numbers],
            "pair": [np.float32([n, -n]) for n in numbers],
            "y": numbers % 3,
        }
    )


@pytest.fixture
def local(monkeypatch):
    monkeypatch.setattr("ddl_magics.runtime.data.packing.BLOB_ROWS", 77)
    monkeypatch.setattr(all_rows, "BLOCK_BYTES", 4000)  # some blocks for each rank
    return LocalSpark()


def gather(collective, name, number, payload):
    return collective.gather(payload, Announcement(ROWS, fit=int(name == "validation"), step=number), 1 << 20)


def elements(manifest, folders, sets, batch_size=50):
    """Of each rank, for each set its elements."""
    import tensorflow as tf

    def read(collective):
        rank = collective.rank
        rows = AllRows(manifest, folders[rank], rank, batch_size, functools.partial(gather, collective))
        return [list(rows.dataset(tf, name).as_numpy_iterator()) for name in sets for _ in range(2)][::2]

    with ThreadRing(len(folders)) as ring:
        results = ring.each(read)
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


def joined(batches):
    """The rows of batches, in one array for each tensor."""
    import tensorflow as tf

    return tf.nest.map_structure(lambda *parts: np.concatenate(parts), *batches)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_they_are_in_the_order_of_the_table_on_every_rank(local, tmp_path, workers):
    """Numbers, arrays and texts, of which some are empty and some end in NUL; in batches of --batch-size rows."""
    frame = table()
    manifest, folders, _ = shares(local, frame, tmp_path, workers=workers)
    for (batches,) in elements(manifest, folders, ["train"]):
        assert [len(labels) for _, labels in batches] == [50] * 42 + [13]
        features, labels = joined(batches)
        np.testing.assert_array_equal(labels, frame["y"])
        np.testing.assert_array_equal(features["square"], np.float32(frame["square"]))
        np.testing.assert_array_equal(features["pair"], np.stack(frame["pair"]))
        assert [word.decode() for word in features["word"]] == list(frame["word"])


def test_what_a_rank_has_whole_is_not_exchanged(local, tmp_path):
    for workers, name in ((1, "train"), (2, "validation")):
        options = {"workers": workers, "validation": 0.25, "strategy": "ps"}
        manifest, folders, _ = shares(local, table()[["number", "y"]], tmp_path / name, **options)
        rows = AllRows(manifest, folders[0], 0, 50, gather=None)
        assert rows.is_whole(name) and rows.dataset(tf_of_tests(), name).cardinality() > 1


def tf_of_tests():
    import tensorflow as tf

    return tf


@pytest.mark.parametrize("strategy", ["allreduce", "ps"])
def test_validation_is_apart(local, tmp_path, strategy):
    """With a parameter server every rank has all rows for validation, and brings none."""
    frame = table()[["number", "y"]]
    manifest, folders, _ = shares(local, frame, tmp_path, workers=2, validation=0.25, strategy=strategy)
    for train, validation in elements(manifest, folders, ["train", "validation"]):
        numbers, held_out = (joined(batches)[0].tolist() for batches in (train, validation))
        assert numbers == sorted(numbers) and held_out == sorted(held_out) and len(held_out) == 528
        assert sorted(numbers + held_out) == frame["number"].tolist()


@pytest.mark.parametrize("workers", [1, 3])
def test_windows_are_in_their_order(local, tmp_path, workers):
    rows = 400
    frame = pd.DataFrame({"time": np.arange(rows), "x": np.arange(rows, dtype=np.float32)})
    frame["y"] = -frame["x"]
    options = {"features": ["x"], "sequence_length": 6, "order_by": "time", "validation": 0.25, "workers": workers}
    manifest, folders, _ = shares(local, frame.sample(frac=1, random_state=1), tmp_path, **options)
    for sets in elements(manifest, folders, ["train", "validation"]):
        windows, labels = (np.concatenate(parts) for parts in zip(*map(joined, sets), strict=True))
        np.testing.assert_array_equal(windows.reshape(-1, 6)[:, 0], np.arange(rows - 6))
        np.testing.assert_array_equal(labels, -np.arange(6, rows))


def test_without_a_batch_size_there_are_as_many_as_in_a_run_of_one_worker(local, tmp_path):
    manifest, folders, _ = shares(local, table(500)[["word", "y"]], tmp_path, workers=2, features=["word"])
    for (batches,) in elements(manifest, folders, ["train"], None):
        assert len(batches[0][1]) == 32


def test_a_rank_that_does_something_else_ends_all(local, tmp_path):
    """As after `if ddl.is_chief: layer.adapt(dataset)`: in one line, and without waiting."""
    import tensorflow as tf

    manifest, folders, _ = shares(local, table(100)[["number", "y"]], tmp_path, workers=2)

    def act(collective):
        if collective.rank:
            return collective.gather(b"", Announcement(STEP), 1 << 20)
        return AllRows(manifest, folders[0], 0, 10, functools.partial(gather, collective)).dataset(tf, "train")

    with ThreadRing(2) as ring:
        for error in ring.each(act):
            assert isinstance(error, Diverged)
            assert "rank 0 reads all rows of --data, for adapt() or ddl.all_rows(), rank 1 is at step 1" in str(error)


def test_a_full_disk_is_named(local, tmp_path, monkeypatch):
    import tensorflow as tf

    manifest, folders, _ = shares(local, table(100)[["number", "y"]], tmp_path, workers=2)

    def no_room(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", no_room)
    with pytest.raises(share_files.NoRoom, match="No space left on device; make room"):
        AllRows(manifest, folders[0], 0, 10, lambda *_: [b"", b""]).dataset(tf, "train")


@pytest.mark.parametrize("comes", [True, False])
def test_ranks_that_do_not_meet_otherwise(monkeypatch, comes):
    """As those of a parameter server. One that does not come is named, after a while."""
    monkeypatch.setattr(peers, "MEET_SECONDS", 30.0 if comes else 0.5)
    listeners = [PeerListener("127.0.0.1", CREDENTIALS, rank, 0, 2) for rank in range(2)]
    addresses = [listener.address for listener in listeners]

    def bring(rank):
        rank_peers = peers.Peers(None, Progress(), None)
        rank_peers.stay_apart(listeners[rank], addresses)
        try:
            return [rank_peers.gather_rows("train", number, b"%d" % rank) for number in range(2)]
        finally:
            rank_peers.close("the test is over")

    results = together([functools.partial(bring, rank) for rank in range(2 if comes else 1)])
    if comes:
        assert results == [[[b"0", b"1"]] * 2] * 2
    else:
        (error,) = results
        assert isinstance(error, RuntimeError)
        assert str(error).startswith("the rows of --data of all workers cannot be had: rank 1 is gone: ")
        listeners[1].close()
