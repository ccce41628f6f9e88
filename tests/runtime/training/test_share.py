"""How a dataset is cut for the ranks, by value: together they see every batch, in order."""

import itertools

import numpy as np
import pytest

from ddl_magics.runtime.gradients import batch as batches
from ddl_magics.runtime.training import chief_feed, share, single_batch

tf = pytest.importorskip("tensorflow")


def dataset(rows=11, batch=4):
    x = np.arange(rows * 2, dtype="float32").reshape(rows, 2)
    return tf.data.Dataset.from_tensor_slices(({"x": x}, np.arange(rows))).batch(batch)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_the_shares_of_a_batch_are_the_batch(size):
    shares = [list(share.cut(dataset(), rank, size)) for rank in range(size)]
    for step, (_, labels) in enumerate(dataset()):
        mine = [shares[rank][step] for rank in range(size)]
        rows = [one.batch[1][: int(one.rows)].numpy() for one in mine]
        assert np.concatenate(rows).tolist() == labels.numpy().tolist()
        assert {int(one.total) for one in mine} == {len(labels)}
        assert max(map(len, rows)) - min(map(len, rows)) <= 1
        assert all(
            len(one.batch[1]) == max(1, int(one.rows)) for one in mine
        )  # one row of no weight where there is none


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_batch_at_hand_is_cut_like_one_of_a_dataset(size):
    batch = {
        "x": np.arange(8.0).reshape(4, 2),
        "ragged": tf.ragged.constant([[1], [], [2, 3], [4]]),
        "sparse": tf.sparse.from_dense([[0, 1], [2, 0], [0, 0], [0, 3]]),
        "text": np.array(["a", "b", "c", "d"]),
    }
    for rank in range(size):
        (expected,) = share.cut(tf.data.Dataset.from_tensors(batch), rank, size)
        mine = single_batch.cut({**batch, "nothing": None}, rank, size)
        assert mine.batch.pop("nothing") is None
        dense = [tf.sparse.to_dense(each.batch.pop("sparse")) for each in (mine, expected)]
        np.testing.assert_array_equal(*dense)
        tf.nest.map_structure(np.testing.assert_array_equal, *(tf.nest.flatten(e[:1], True) for e in (mine, expected)))
        assert (int(mine.rows), int(mine.total)) == (int(expected.rows), int(expected.total))
    assert single_batch.cut((batch["x"], batch["x"][:3]), 0, size) is None
    assert single_batch.cut((batch["x"], 1.0), 0, size) is None


@pytest.mark.parametrize("shuffle", [False, True, "batch"])
def test_arrays_are_cut_before_they_are_gathered(shuffle):
    keras = pytest.importorskip("keras")
    if keras.__version__.startswith("2."):
        pytest.skip("of Keras 3")
    from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter

    def made():
        keras.utils.set_random_seed(1)
        x = np.arange(22.0).reshape(11, 2)
        return ArrayDataAdapter({"x": x}, np.arange(11), batch_size=4, shuffle=shuffle).get_tf_dataset()

    for take, rank in itertools.product((share.cut, share.shard), range(2)):
        early, late = list(take(made(), rank, 2, of_arrays=True)), list(take(made(), rank, 2))
        assert [one.rows.numpy() for one in early] == [one.rows.numpy() for one in late]
        for one, other in zip(early, late, strict=True):
            tf.nest.map_structure(np.testing.assert_array_equal, one.batch, other.batch)
            tf.nest.map_structure(np.testing.assert_array_equal, one.sample, other.sample)


def random_crop(image):
    return tf.image.random_crop(image, [2, 1])


PIPELINES = {
    "augmented": (True, lambda data: data.map(random_crop).batch(2).prefetch(1)),
    "by batch": (True, lambda data: data.batch(2).map(lambda images: tf.map_fn(random_crop, images))),
    "inside": (True, lambda data: data.interleave(lambda row: tf.data.Dataset.from_tensors(row).map(random_crop))),
    "shuffled": (False, lambda data: data.shuffle(4).map(lambda row: row + 1).batch(2)),
    "of another seed": (False, lambda data: data.map(lambda row: row + tf.random.stateless_uniform([], (1, 2)))),
    "of Python": (
        False,
        lambda data: data.map(lambda row: tf.numpy_function(np.random.permutation, [row], tf.float32)),
    ),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_randomness_of_a_seed_is_found(name):
    expected, made = PIPELINES[name]
    assert share.is_random(made(tf.data.Dataset.from_tensor_slices(np.zeros((4, 3, 2), np.float32)))) == expected


def test_randomness_goes_on_over_epochs():
    tf.random.set_seed(1)
    drawn = tf.data.Dataset.range(4).map(lambda _: tf.random.uniform([]))
    going_on = share.ContinuingDataset(drawn.repeat())
    epochs = [[float(next(iterator)) for _ in range(4)] for iterator in map(iter, [going_on] * 3)]
    assert len({value for epoch in epochs for value in epoch}) == 12
    assert list(drawn) == list(drawn), "what it is for"


def test_static_batches_stay_static():
    fixed = tf.data.Dataset.from_tensor_slices(np.zeros((8, 3))).batch(4, drop_remainder=True)
    assert share.cut(fixed, 0, 2).element_spec.batch.shape == (2, 3)


def test_ragged_sparse_and_text_are_cut():
    ragged = tf.data.Dataset.from_tensors(tf.ragged.constant([[1], [2, 3], [], [4]]))
    assert [part.batch.to_list() for part in share.cut(ragged, 1, 2)] == [[[], [4]]]
    sparse = tf.data.Dataset.from_tensors(tf.sparse.from_dense(np.diag([1, 2, 3, 4])))
    (part,) = share.cut(sparse, 1, 2)
    assert tf.sparse.to_dense(part.batch).numpy().tolist() == [[0, 0, 3, 0], [0, 0, 0, 4]]
    text = tf.data.Dataset.from_tensors(np.array(["a", "b", "c"]))
    assert [part.batch.numpy().tolist() for part in share.cut(text, 0, 2)] == [[b"a"]]


def fingerprint(one):
    return batches.fingerprint([part.numpy() for part in one.sample], one.total.numpy())


def test_fingerprints_tell_batches_apart():
    x = np.random.default_rng(0).normal(size=(32, 5))
    first, again, other, swapped = (
        fingerprint(next(iter(share.cut(tf.data.Dataset.from_tensors(rows), 0, 2))))
        for rows in (x, x + 1e-7, np.random.default_rng(1).normal(size=(32, 5)), x[::-1])
    )

    assert batches.same_batch(*first, *again)
    assert not batches.same_batch(*first, *other) and not batches.same_batch(*first, *swapped)


def test_an_empty_batch_becomes_one_row_of_zeros():
    local = tf.data.Dataset.from_generator(
        lambda: [np.ones((2, 3)), np.ones((0, 3))], output_signature=tf.TensorSpec((None, 3), tf.float64)
    )
    full, empty = share.uncut(local)
    assert int(full.rows) == 2 and int(empty.rows) == 0
    assert empty.batch.numpy().tolist() == [[0.0, 0.0, 0.0]]


def test_an_empty_batch_of_ragged_or_sparse_rows_becomes_one_row():
    ragged = tf.data.Dataset.from_tensors(tf.ragged.constant([[1], [2, 3]]))
    sparse = tf.data.Dataset.from_tensors(tf.sparse.from_dense([[1.0, 0.0], [0.0, 2.0]]))
    sliced = [
        each.map(lambda batch: share.slice_rows(batch, 0, tf.random.uniform([], 0, 1, tf.int64)))
        for each in (ragged, sparse)
    ]
    full = [next(iter(share.uncut(each))).batch for each in (ragged, sparse)]
    assert (full[0].to_list(), tf.sparse.to_dense(full[1]).numpy().tolist()) == (
        [[1], [2, 3]],
        [[1.0, 0.0], [0.0, 2.0]],
    )
    empty = [next(iter(share.uncut(each))) for each in sliced]
    assert [int(part.rows) for part in empty] == [0, 0]
    assert (empty[0].batch.to_list(), tf.sparse.to_dense(empty[1].batch).numpy().tolist()) == ([[0]], [[0.0, 0.0]])


def test_batches_are_dealt_in_turn():
    labels = [
        [part.batch[1].numpy().tolist() for part in share.shard(dataset(20, 4), rank, 2)] for rank in range(2)
    ]  # fmt: skip
    assert labels == [[[0, 1, 2, 3], [8, 9, 10, 11], [16, 17, 18, 19]], [[4, 5, 6, 7], [12, 13, 14, 15]]]
    assert [share.shard_steps(5, rank, 2) for rank in range(2)] == [3, 2]
    assert share.shard_steps(None, 0, 2) is None


def test_own_shares_are_recognised_through_transformations():
    marked = share.mark_local(dataset())
    assert share.is_local(marked.map(lambda x, y: (x, y)).prefetch(1))
    assert share.is_local(tf.data.Dataset.zip((marked, dataset())))
    assert not share.is_local(dataset().map(lambda x, y: (x, y)))


def calls_python(made):
    return made.map(lambda row: tf.numpy_function(np.negative, [row], row.dtype))


def test_iterations_may_have_orders_of_their_own():
    numbers = tf.data.Dataset.range(8)
    assert not share.reorders(numbers.batch(2).map(tf.identity))
    assert share.reorders(numbers.shuffle(8).batch(2)) and share.reorders(calls_python(numbers).batch(2))


def test_what_all_ranks_read_alike_is_left_out():
    """And what is made of it is not."""
    alike = calls_python(tf.data.Dataset.range(8))
    assert chief_feed.runs_python(alike)
    share.mark_alike(alike)
    assert not chief_feed.runs_python(alike.batch(2)) and chief_feed.runs_python(calls_python(alike))
    assert share.reorders(alike)


def test_shares_of_epochs_go_on_when_ranks_come_and_go():
    """Of arrays that are shuffled: the batches of each epoch are those of one process, whoever is there."""
    from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter

    from ddl_magics.runtime.training.epoch_shares import EpochShares

    tf.random.set_seed(3)
    rows = np.arange(22.0)
    dataset = ArrayDataAdapter(rows, batch_size=4, shuffle=True).get_tf_dataset()
    alone = [batch.numpy().tolist() for batch, *_ in dataset.repeat().take(24)]
    epochs = [alone[begin : begin + 6] for begin in range(0, 24, 6)]
    assert epochs[0] != epochs[1]
    places: dict[int, tuple[int, int]] = {}
    ranks = [EpochShares(dataset, 6, lambda rank=rank: places[rank], of_arrays=True) for rank in range(3)]
    ranks[2].skip(2)  # it joins
    for epoch, members in enumerate([[0, 1], [0, 1], [2, 0, 1], [0, 2]]):
        places.update({rank: (members.index(rank), len(members)) for rank in members})
        shares = {}
        for rank in members:
            ranks[rank].begin_epoch()
            batches = iter(ranks[rank])
            shares[rank] = [next(batches).batch for _ in epochs[epoch][members.index(rank) :: len(members)]]
        for number, batch in enumerate(epochs[epoch]):
            (found,) = [shares[rank].pop(0) for rank in members if number % len(members) == members.index(rank)]
            assert found[0].numpy().tolist() == batch
