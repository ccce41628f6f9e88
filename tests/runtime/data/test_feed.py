"""--data: every row in exactly one share, equal steps, columns of every kind, and one line for each mistake.

What Spark has a part in runs on a real one, with executors that are processes. What happens to rows after they are
packed is the same for pandas and runs here, on a stand-in for the few operations of an RDD.
"""

import ctypes
import errno
import importlib
import json
import mmap
import os
import re
import shutil
import sys
import tempfile
import zlib
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from pyspark.ml.linalg import Vectors
from support.feeds import LocalSpark, batches, open_rank, prepare, refusal, shares, spec
from support.paths import ROOT

from ddl_magics.runtime import package, scratch
from ddl_magics.runtime.data import arrow, by_value, packing, rank_data, reader, row_order, share_files
from ddl_magics.runtime.data.columns import DataError, numbered, quoted, selected
from ddl_magics.runtime.data.plan import DataPlan


@pytest.fixture
def local():
    return LocalSpark()


def numbers(spark, rows):
    """A DataFrame of `rows` rows: id 0.., x = id / 2, y = id % 3; Spark's in 3 partitions, or pandas'."""
    if isinstance(spark, LocalSpark):
        ids = np.arange(rows)
        return pd.DataFrame({"id": ids, "x": ids / 2, "y": (ids % 3).astype(np.int32)})
    return spark.range(0, rows, 1, 3).selectExpr("id", "id / 2.0D x", "cast(id % 3 as int) y")


# Shares


@pytest.mark.timeout(240)
def test_columns_of_spark_are_not_asked_for_one_by_one(spark, monkeypatch, tmp_path):
    """A call of the JVM for each of 3,000 columns takes a minute, as it looks up each among all."""
    from py4j.clientserver import ClientServerConnection

    kinds = "cast(id + %d as double)", "cast(id %% 7 + %d as int)", "id %% 2 = %d %% 2"
    columns = [kinds[k % 3] % k + f" as `x.{k}`" for k in range(arrow.WIDE)]
    frame = spark.range(0, 24, 1, 3).selectExpr("id", *columns, "cast(id % 2 as int) y")
    send, calls = ClientServerConnection.send_command, []
    monkeypatch.setattr(ClientServerConnection, "send_command", lambda *arguments: calls.append(1) or send(*arguments))
    manifest, folders, made = shares(spark, frame, tmp_path, workers=2)
    assert len(calls) < 1.5 * arrow.WIDE, "some 300 for any frame"
    rows = [row for rank in range(2) for batch in batches(open_rank(manifest, folders, rank, 8)[0]) for row in batch[0]]
    expected = frame.drop("y").toPandas().astype("float32").to_numpy()
    np.testing.assert_array_equal(sorted(map(list, rows)), expected)
    made.close()


def test_columns_of_any_name_go_through_one_call_of_the_jvm(spark):
    names = ["a.b", "a", "a`b", "a,b", "a\nb", "\uffff", "\ufffe", "ä 😀", "*", "a.*", "\\Q[", '"']
    frame = spark.range(2).selectExpr(*(f"id + {k} as {quoted(name)}" for k, name in enumerate(names)))
    assert selected(frame, names[::-1]).columns == names[::-1]
    assert [tuple(row) for row in selected(frame, names[3:8]).collect()] == [(3, 4, 5, 6, 7), (4, 5, 6, 7, 8)]
    assert selected(frame, names[:1]).columns == names[:1]
    assert numbered(frame).columns == [f"c{k}" for k in range(len(names))]
    assert numbered(frame).first() == tuple(range(len(names)))


def test_vectors_become_arrays_at_once(spark):
    rows = [(Vectors.dense([1, 2]), 3, Vectors.sparse(3, {1: 4.0})), (None, 5, Vectors.dense([6, 7, 8]))]
    frame = spark.createDataFrame(rows, ["v", "id", "a.b"])
    columns = [{"vector": True}, {"vector": False}, {"vector": True}]
    made = arrow._with_arrays(frame, columns)
    assert [tuple(row) for row in made.collect()] == [([1, 2], 3, [0, 4, 0]), (None, 5, [6, 7, 8])]
    assert made._jdf.queryExecution().analyzed().toString().count("Project") == 2, "with the new names"


def test_rows_too_large_for_a_batch_of_arrow_go_one_by_one(spark):
    frame, rows = spark.range(1).selectExpr("id", "id b"), "spark.sql.execution.arrow.maxRecordsPerBatch"
    columns = [{"name": name, "dtype": "i8", "depth": 0, "vector": False} for name in frame.columns]
    bound = arrow.MOST_BYTES // 10_000
    assert arrow.takes(frame, columns) and arrow.fits(frame, bound) and not arrow.fits(frame, bound + 1)
    for number in ("0", "-1", str(arrow.MOST_BYTES // 16 + 1)):
        spark.conf.set(rows, number)
        try:
            assert not arrow.takes(frame, columns)
        finally:
            spark.conf.unset(rows)


def test_a_column_is_not_looked_for_among_all_others(local):
    """A table of pandas with n columns takes a time that grows with n, and not with its square."""
    looks = []

    class Name:
        def __init__(self, number):
            self.number = number

        def __str__(self):
            looks.append(self.number)
            return f"c{self.number}"

    columns = 300
    frame = pd.DataFrame(np.zeros((9, columns)), columns=list(map(Name, range(columns))))
    made = prepare(local, frame, spec(label="c0"), {})
    assert made.manifest["tensors"][0]["shape"] == [columns - 1] and len(looks) < 20 * columns


@pytest.mark.parametrize(("rows", "workers"), [(9001, 2), (10, 3)])
def test_every_row_is_in_exactly_one_share(spark, tmp_path, rows, workers):
    manifest, folders, _ = shares(spark, numbers(spark, rows), tmp_path, features=["id", "x"], workers=workers)
    assert manifest["rows"] == rows
    stored = [np.load(os.path.join(folder, "train-0.npy")) for folder in folders]
    assert max(map(len, stored)) - min(map(len, stored)) <= 1
    together = np.concatenate(stored)
    assert sorted(together[:, 0]) == list(range(rows))
    np.testing.assert_array_equal(together[:, 1], together[:, 0] / 2)
    labels = np.concatenate([np.load(os.path.join(folder, "train-1.npy")) for folder in folders])
    np.testing.assert_array_equal(labels, together[:, 0] % 3)


def test_an_epoch_is_every_row_once_in_a_new_order(local, tmp_path):
    manifest, folders, _ = shares(local, numbers(local, 103), tmp_path, features=["id"])
    seen = []
    for rank in range(2):
        dataset, validation = open_rank(manifest, folders, rank, 20)
        assert validation is None
        assert int(dataset.cardinality()) == 6
        seen.append([[features for features, _ in batches(dataset)] for _ in range(2)])
    assert [[len(batch) for batch in epoch] for epoch in seen[0]] == [[10] * 5 + [2]] * 2
    assert [[len(batch) for batch in epoch] for epoch in seen[1]] == [[10] * 5 + [1]] * 2
    orders = [[np.concatenate(epochs[epoch]).tolist() for epochs in seen] for epoch in range(2)]
    for order in orders:
        assert sorted(order[0] + order[1]) == list(range(103))
    assert orders[0] != orders[1]
    assert orders[0][0] != sorted(orders[0][0])


def global_batches(local, folder, workers, rows=1000, seed=7, iterations=2):
    """The ids of each step, sorted, of all ranks together."""
    manifest, folders, _ = shares(local, numbers(local, rows), folder, features=["id"], workers=workers, seed=seed)
    ranks = []
    for rank in range(workers):
        dataset, _ = open_rank(manifest, folders, rank, 48, seed=seed)
        ranks.append([ids for _ in range(iterations) for ids, _ in batches(dataset)])
    return [sorted(np.concatenate(parts).tolist()) for parts in zip(*ranks, strict=True)]


def test_global_batches_depend_on_seed_and_epoch_alone(local, tmp_path):
    one = global_batches(local, tmp_path / "1", 1)
    assert one == global_batches(local, tmp_path / "again", 1)
    assert one == global_batches(local, tmp_path / "2", 2)
    assert one == global_batches(local, tmp_path / "3", 3)
    assert one != global_batches(local, tmp_path / "other", 1, seed=8)
    assert one[:21] != one[21:]


@pytest.mark.parametrize("batch_size", [48, 50, 3000])
def test_batches_across_windows(local, tmp_path, monkeypatch, batch_size):
    """Data beyond `WINDOW_BYTES`: batches that begin in one window and end in the next, or in one after that."""
    monkeypatch.setattr(row_order, "WINDOW_BYTES", 12 * 1000)
    monkeypatch.setattr(row_order, "BLOCK_BYTES", 12 * 48)
    manifest, folders, _ = shares(local, numbers(local, 9001), tmp_path, features=["id"])
    assert row_order.RowOrder(9001, 0, 2, rank_data.row_bytes(manifest), 7).windows == 10
    ranks = [open_rank(manifest, folders, rank, batch_size)[0] for rank in range(2)]
    for _ in range(2):
        parts = [batches(dataset) for dataset in ranks]
        sizes = [len(ids) + len(others) for (ids, _), (others, _) in zip(*parts, strict=True)]
        assert sizes == [batch_size] * (9001 // batch_size) + [9001 % batch_size]
        assert sorted(np.concatenate([ids for part in parts for ids, _ in part])) == list(range(9001))
        assert all((labels == ids % 3).all() for part in parts for ids, labels in part)


def anonymous_bytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon"))


def test_reading_makes_no_copy_of_the_rows(tmp_path):
    size, rows = 256 << 20, 1 << 16
    shape = [size // rows // 4]
    manifest = one_column(rows, "<f4", "floatx", shape)
    np.lib.format.open_memmap(share_files.path(str(tmp_path), "train", 0), "w+", np.float32, (rows, *shape))
    dataset = open_rank(manifest, [str(tmp_path)], 0, 64)[0]
    before = anonymous_bytes()
    assert sum(len(batch) for batch in dataset) == rows
    assert anonymous_bytes() - before < size / 2


def resident_bytes(path):
    """How much of a file is in the page cache."""
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        flags = (ctypes.c_ubyte * -(-len(mapped) // mmap.PAGESIZE))()
        first = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        assert ctypes.CDLL(None).mincore(ctypes.c_void_p(first), ctypes.c_size_t(len(mapped)), flags) == 0
        return sum(flag & 1 for flag in flags) * mmap.PAGESIZE


def test_of_data_in_windows_a_missing_page_is_read_alone(tmp_path, monkeypatch):
    """As where memory had no room for what was read ahead: the kernel would read a page's neighbours, too."""
    monkeypatch.setattr(reader.StoredShare, "read_ahead", lambda *_: None)
    rows, window = 1 << 18, 2 << 20
    monkeypatch.setattr(row_order, "WINDOW_BYTES", window)
    manifest = one_column(rows, "<f4", "floatx", [32])
    path = share_files.path(str(tmp_path), "train", 0)
    np.save(path, np.zeros((rows, 32), np.float32))
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if resident_bytes(path) > window:
        pytest.skip("the folder for temporary files is in memory")
    assert sum(len(batch) for batch in open_rank(manifest, [str(tmp_path)], 0, 256)[0].take(16)) == 16 * 256
    assert resident_bytes(path) < 2 * window


def test_of_an_empty_share_nothing_is_read_ahead(tmp_path):
    import tensorflow as tf

    share = reader.StoredShare(tf, [(str(tmp_path / "none.npy"), "")], one_column(0), "")
    share.read_ahead([(0, 0)], 1)
    assert len(share.arrays[0]) == 0


def test_tensors_share_the_memory_of_the_files(tmp_path):
    import tensorflow as tf

    np.save(tmp_path / "array.npy", np.arange(40, dtype=np.float32).reshape(10, 4))
    array = np.load(tmp_path / "array.npy", mmap_mode="r+")
    tensor = reader._as_tensor(tf, array)
    askew = np.zeros(41, np.float32)[1:]
    assert reader._as_tensor(tf, askew)[3:5].numpy().tolist() == [0, 0], "a copy: it is not aligned"
    array[5] = 3
    assert tensor[5, 0] == 3


@pytest.mark.parametrize("rows", [1, 5, 64, 65, 100, 129])
@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("batch", [1, 2, 5, 64])
def test_the_ranks_batches_make_up_the_global_batches(rows, size, batch):
    """Position p of an epoch is row p // size of rank p % size: the batches of all ranks make up the global ones."""
    all_edges = [rank_data.edges(rows, rank, size, batch, global_batch=True) for rank in range(size)]
    assert {len(edges) - 1 for edges in all_edges} == {-(-rows // batch)}
    for step in range(-(-rows // batch)):
        positions = [
            local * size + rank for rank, edges in enumerate(all_edges) for local in range(edges[step], edges[step + 1])
        ]
        assert sorted(positions) == list(range(step * batch, min((step + 1) * batch, rows)))


@pytest.mark.parametrize(("rows", "size", "batch"), [(65, 2, 32), (64, 2, 32), (100, 3, 7), (10, 3, 64), (9, 2, 2)])
def test_workers_of_a_parameter_server_make_equal_steps_over_their_shares(rows, size, batch):
    steps = set()
    for rank in range(size):
        edges = rank_data.edges(rows, rank, size, batch, global_batch=False).tolist()
        lengths = np.diff(edges)
        assert edges[0] == 0
        assert edges[-1] == len(range(rank, rows, size))
        assert lengths.min() > 0
        assert lengths.max() <= batch
        steps.add(len(lengths))
    assert len(steps) == 1


def test_batches_of_one_row_are_never_empty_for_a_parameter_server():
    edges = [rank_data.edges(5, rank, 2, 1, global_batch=False).tolist() for rank in range(2)]
    assert edges == [[0, 1, 2, 3], [0, 1, 2]]


@pytest.mark.parametrize(
    ("given", "global_batch", "expected"), [(None, True, 128), (None, False, 32), (10, True, 10), (10, False, 10)]
)
def test_the_default_batch(given, global_batch, expected):
    assert rank_data.batch_rows(given, 4, global_batch) == expected


def test_a_rank_may_have_an_empty_batch(local, tmp_path):
    manifest, folders, _ = shares(local, numbers(local, 9), tmp_path, features=["id", "x"])
    features, labels = batches(open_rank(manifest, folders, 1, 8)[0])[1]
    assert (features.shape, labels.shape) == ((0, 2), (0,))


# Columns


def test_columns_of_every_kind(spark, tmp_path):
    from pyspark.ml.linalg import Vectors

    rows = [
        (
            i,
            float(i),
            i % 2 == 0,
            "text %s" % ("ü" * i),
            [float(i), 1.0, 2.0],
            [[i, 1], [2, 3]],
            Vectors.dense([i, 0.5]) if i % 2 else Vectors.sparse(2, {0: float(i)}),
            ["a", "b" * i],
        )
        for i in range(7)
    ]
    names = ["whole", "real", "flag", "text", "array", "nested", "vector", "texts", "content"]
    schema = (
        "whole int, real float, flag boolean, text string, array array<double>, nested array<array<bigint>>, "
        "texts array<string>"
    )
    plain = spark.createDataFrame([row[:6] + row[7:] for row in rows], schema)
    vectors = spark.createDataFrame([(row[0], row[6]) for row in rows], ["whole", "vector"])
    frame = plain.join(vectors, "whole").selectExpr("*", "cast(text as binary) content", "bigint(whole) y")
    manifest, folders, made = shares(spark, frame, tmp_path, features=names)
    assert made.notices == []
    seen = {}
    for rank in range(2):
        dataset, _ = open_rank(manifest, folders, rank, 7)
        specs, label_spec = dataset.element_spec
        for features, labels in batches(dataset):
            for row, label in enumerate(labels):
                seen[int(label)] = {name: value[row] for name, value in features.items()}
    assert {name: (spec.dtype.name, spec.shape.as_list()) for name, spec in specs.items()} == {
        "whole": ("int32", [None]),
        "real": ("float32", [None]),
        "flag": ("bool", [None]),
        "text": ("string", [None]),
        "array": ("float32", [None, 3]),
        "nested": ("int64", [None, 2, 2]),
        "vector": ("float32", [None, 2]),
        "texts": ("string", [None, 2]),
        "content": ("string", [None]),
    }
    assert (label_spec.dtype.name, label_spec.shape.as_list()) == ("int64", [None])
    assert sorted(seen) == list(range(7))
    for i, features in seen.items():
        assert (features["whole"], features["real"], features["flag"]) == (i, i, i % 2 == 0)
        assert features["text"] == features["content"] == ("text %s" % ("ü" * i)).encode()
        assert features["texts"].tolist() == [b"a", b"b" * i]
        assert features["array"].tolist() == [i, 1, 2]
        assert features["nested"].tolist() == [[i, 1], [2, 3]]
        assert features["vector"].tolist() == ([i, 0.5] if i % 2 else [i, 0])


def test_text_and_bytes_arrive_whole(local, tmp_path):
    """Of any length, with NULs at the end, and as arrays; a long one costs its own length."""
    texts = ["ab\0\0", "", "ü" * 100_000] + [f"t{i}" for i in range(9000)]
    frame = pd.DataFrame({"id": range(9003), "text": texts, "y": 0})
    frame["bytes"] = [text.encode()[::-1] for text in texts]
    frame["pair"] = [[text[:3], "\0"] for text in texts]
    manifest, folders, _ = shares(local, frame, tmp_path, validation=0.1)
    assert sum(os.path.getsize(entry) for folder in folders for entry in os.scandir(folder)) < 3_000_000
    seen = {}
    for rank in range(2):
        for dataset in open_rank(manifest, folders, rank, 512):
            for features, _ in batches(dataset):
                for row, key in enumerate(features["id"]):
                    seen[int(key)] = [features[name][row] for name in ("text", "bytes", "pair")]
    assert sorted(seen) == list(range(9003))
    for key, (text, content, pair) in seen.items():
        expected = texts[key].encode()
        assert (text, content, pair.tolist()) == (expected, expected[::-1], [texts[key][:3].encode(), b"\0"])


def test_blocks_of_long_text_are_small():
    rows = [("a", 1)] + [("b" * (1 << 20), 2)] * 20
    columns = [{"name": "t", "dtype": "S", "depth": 0, "vector": False}, {"name": "y", "dtype": "i4", "depth": 0}]
    columns[1]["vector"] = False
    packed = list(packing.pack(0, iter(rows), columns, [[0], [1]]))
    assert [report["rows"] for _, _, report, _ in packed] == [9, 8, 4]
    assert sum(report["text_bytes"][0] for _, _, report, _ in packed) == (20 << 20) + 1


def only_batch(local, folder, **changes):
    """What rank 0 of two has of 20 rows."""
    manifest, folders, _ = shares(local, numbers(local, 20), folder, **changes)
    (batch,) = batches(open_rank(manifest, folders, 0, 40)[0])
    return batch


def test_scalars_make_a_matrix_in_the_order_given(local, tmp_path):
    features, labels = only_batch(local, tmp_path, features=["x", "id"])
    assert (features.dtype, features.shape, labels.dtype) == (np.float32, (10, 2), np.int64)
    np.testing.assert_array_equal(features[:, 0], features[:, 1] / 2)


def test_whole_numbers_alone_make_a_matrix_of_floats(local, tmp_path):
    assert only_batch(local, tmp_path, features=["id", "y"], label=None).dtype == np.float32


def test_without_features_all_columns_but_the_label(local, tmp_path):
    features, labels = only_batch(local, tmp_path, label="x")
    assert (features.shape, labels.dtype) == ((10, 2), np.float32)


def test_weights_are_the_third_element(local, tmp_path):
    frame = numbers(local, 20).assign(w=np.arange(20) % 5)
    manifest, folders, _ = shares(local, frame, tmp_path, label="y", weight="w", validation=0.2)
    for dataset in open_rank(manifest, folders, 0, 40):
        features, labels, weights = batches(dataset)[0]
        assert (features.shape[1], labels.dtype, weights.dtype) == (2, np.int64, np.float32)
        np.testing.assert_array_equal(features[:, 0] % 5, weights)


def test_without_label_features_only(local, tmp_path):
    ids = only_batch(local, tmp_path, features=["id"], label=None)
    assert (ids.dtype, ids.shape) == (np.int64, (10,))


def test_floats_have_keras_floatx(local, tmp_path, monkeypatch):
    import tensorflow as tf

    plain, plain_folders, _ = shares(local, numbers(local, 20), tmp_path / "plain", features=["id", "y"], label="x")
    (tmp_path / "keras.json").write_text('{"floatx": "float64"}')
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    manifest, folders, _ = shares(local, numbers(local, 20), tmp_path, features=["id", "y"], label="x")
    tf.keras.backend.set_floatx("float64")
    try:
        with pytest.raises(ValueError, match=r"features is stored as float32: call keras.backend.set_floatx"):
            open_rank(plain, plain_folders, 0, 40)
        features, labels = batches(open_rank(manifest, folders, 0, 40)[0])[0]
    finally:
        tf.keras.backend.set_floatx("float32")
    assert (features.dtype, labels.dtype) == (np.float64, np.float64)


def test_keras_learns_from_it(local, tmp_path):
    import tensorflow as tf

    x = np.random.default_rng(0).normal(size=(100, 2))
    labels = x @ [1.0, -2.0] + 0.5
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": labels})
    manifest, folders, _ = shares(local, frame, tmp_path, workers=1, strategy="single", validation=0.2)
    dataset, validation = open_rank(manifest, folders, 0, 16, "single")
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile(tf.keras.optimizers.SGD(0.1), "mse")
    history = model.fit(dataset, validation_data=validation, epochs=8, verbose=0, shuffle=False).history
    assert len(history["loss"]) == 8
    assert history["val_loss"][-1] < 1e-3


def test_odd_names_decimals_and_nan(spark, tmp_path):
    """Dots and backticks in names, a name twice but unused, decimals, and NaN, which passes with a notice."""
    frame = spark.range(10).selectExpr(
        "id `a.b`",
        "cast(id as decimal(10,2)) / 4 `c``d`",
        "if(id = 3, double('NaN'), 1.0D) x",
        "id twice",
        "id twice",
        "id y",
    )
    manifest, folders, made = shares(spark, frame, tmp_path, features=["a.b", "c`d", "x"])
    assert made.notices == ["--data df: column 'x' holds NaN, and so will the loss: fill these rows, or leave them out"]
    features, labels = batches(open_rank(manifest, folders, 0, 20)[0])[0]
    assert features.dtype == np.float32
    np.testing.assert_array_equal(features[:, 0], labels)
    np.testing.assert_array_equal(features[:, 1], labels / 4)


# Validation


@pytest.mark.parametrize(("rows", "fraction", "held_out"), [(2500, 0.2, 500), (37, 0.1, 4), (9001, 0.5, 4501)])
def test_a_fraction_is_held_out(local, tmp_path, rows, fraction, held_out):
    manifest, folders, _ = shares(local, numbers(local, rows), tmp_path, features=["id"], validation=fraction)
    assert (manifest["rows"], manifest["validation_rows"]) == (rows - held_out, held_out)
    parts = {"train": [], "validation": []}
    for folder in folders:
        for name, ids in parts.items():
            ids.append(np.load(os.path.join(folder, name + "-0.npy")))
    for ids in parts.values():
        assert abs(len(ids[0]) - len(ids[1])) <= 1
    train, validation = (np.concatenate(parts[name]) for name in ("train", "validation"))
    assert sorted([*train, *validation]) == list(range(rows))
    assert sorted(validation) != list(range(min(validation), min(validation) + held_out)), "drawn, not cut off"


def test_validation_is_dealt_in_order_and_the_same_each_time(local, tmp_path):
    manifest, folders, _ = shares(local, numbers(local, 500), tmp_path, features=["id"], validation=0.2)
    both = [open_rank(manifest, folders, rank, 30)[1] for rank in range(2)]
    assert [int(validation.cardinality()) for validation in both] == [4, 4]
    for validation in both:
        first, second = (np.concatenate([ids for ids, _ in batches(validation)]) for _ in range(2))
        np.testing.assert_array_equal(first, second)


def test_another_frame_for_validation(spark, tmp_path):
    other = spark.range(1000, 1009).selectExpr("id", "cast(id % 3 as bigint) y")
    manifest, folders, _ = shares(
        spark, numbers(spark, 50), tmp_path, {"other": other}, features=["id"], validation="other"
    )
    assert (manifest["rows"], manifest["validation_rows"]) == (50, 9)
    ids = [ids for rank in range(2) for ids, _ in batches(open_rank(manifest, folders, rank, 4)[1])]
    assert sorted(np.concatenate(ids)) == list(range(1000, 1009))
    assert [len(batch) for batch in ids] == [2, 2, 1, 2, 2, 0]


def test_workers_of_a_parameter_server_have_all_of_the_validation(local, tmp_path):
    manifest, folders, _ = shares(local, numbers(local, 100), tmp_path, features=["id"], validation=0.2, strategy="ps")
    rows = [np.concatenate([ids for ids, _ in batches(open_rank(manifest, folders, k, 8, "ps")[1])]) for k in range(2)]
    assert len(rows[0]) == 20
    np.testing.assert_array_equal(rows[0], rows[1])


# pandas


def test_a_pandas_frame_is_fed_as_a_spark_frame(local, tmp_path):
    count = 5000
    frame = pd.DataFrame(
        {
            0: np.arange(count),
            "x": np.arange(count) / 2,
            "text": [f"t{i}" for i in range(count)],
            "array": [[i, i + 1] for i in range(count)],
            "image": [np.full((2, 2), i % 256, np.uint8) for i in range(count)],
            "maybe": pd.array(range(count), dtype="Int64"),
            "y": np.arange(count) % 2 == 0,
        }
    )
    manifest, folders, _ = shares(local, frame, tmp_path, validation=0.1)
    assert (manifest["rows"], manifest["validation_rows"]) == (4500, 500)
    seen = {}
    for rank in range(2):
        for dataset in open_rank(manifest, folders, rank, 512):
            for features, labels in batches(dataset):
                assert labels.dtype == np.int64
                for row, key in enumerate(features["0"]):
                    seen[int(key)] = {name: value[row] for name, value in features.items()} | {"y": labels[row]}
    assert sorted(seen) == list(range(count))
    for i in (0, 1, 4096, 4999):
        row = seen[i]
        assert (row["x"], row["text"], row["maybe"], row["y"]) == (i / 2, b"t%d" % i, i, i % 2 == 0)
        assert row["array"].tolist() == [i, i + 1]
        assert row["image"].tolist() == np.full((2, 2), i % 256, np.uint8).tolist()


# The path through Spark


def test_a_barrier_stage_reads_its_ranks_share(spark, tmp_path):
    made = prepare(spark.sparkContext, numbers(spark, 101), spec(features=["id"]), {})
    decode = by_value.functions_of(packing)["decode"]

    def rows(blobs):
        from pyspark import BarrierTaskContext

        context = BarrierTaskContext.get()
        context.barrier()
        yield context.partitionId(), sum(len(decode(blob)[1][0]) for blob in blobs)

    for _ in range(2):  # a later attempt reads it again
        assert sorted(made.rdd.barrier().mapPartitions(rows).collect()) == [(0, 51), (1, 50)]
    made.close()
    assert not made._persisted[0].is_cached


@pytest.fixture
def shipped_feed(tmp_path, monkeypatch):
    """The feed module of a copy of the runtime that this process can import, and the executors cannot."""
    name = "shipped_runtime_of_test_feed"
    shutil.copytree(package.FOLDER, tmp_path / "driver" / name)
    monkeypatch.syspath_prepend(str(tmp_path / "driver"))
    yield importlib.import_module(name + ".data.feed")
    for module in [module for module in sys.modules if module.startswith(name)]:
        del sys.modules[module]


def test_executors_do_not_need_the_package(spark, shipped_feed):
    shipped_plan = importlib.import_module(".plan", shipped_feed.__package__).DataPlan
    plan = shipped_plan(numbers(spark, 30), spec(validation=0.2), {})
    made = shipped_feed.prepare(spark.sparkContext, plan, "test")
    assert made.rdd.map(len).count() >= 2
    plan = shipped_plan(numbers(LocalSpark(), 9000), spec(), {})
    made = shipped_feed.prepare(spark.sparkContext, plan, "test")
    assert made.rdd.count() >= 4
    by_reference = shipped_feed.packing.identity
    with pytest.raises(Exception, match="No module named"):  # the check can fail
        spark.sparkContext.range(2).map(by_reference).collect()


def test_large_rows_make_small_blobs():
    column = {"name": "image", "dtype": "f8", "depth": 1, "vector": False}
    rows = [(np.zeros(1 << 18).tolist(),)] * 20  # 2 MiB each
    packed = list(packing.pack(3, iter(rows), [column], [[0]]))
    assert [(partition, chunk, report["rows"]) for partition, chunk, report, _ in packed] == [
        (3, chunk, 3 if chunk < 6 else 2) for chunk in range(7)
    ]


def test_missing_and_repeated_rows_are_noticed(tmp_path):
    half = packing.encode({"set": "train"}, [np.arange(2), np.arange(2)])
    manifest = one_column(4)
    with pytest.raises(RuntimeError, match="2 rows of the train data did not come"):
        share_files.store([half], str(tmp_path / "a"), manifest, 0)
    with pytest.raises(RuntimeError, match="came twice"):
        share_files.store([half, half], str(tmp_path / "b"), manifest, 0)


def one_column(rows, dtype="<i8", use="int64", shape=()):
    """The manifest of a run of one rank."""
    tensor = {"name": "x", "shape": list(shape), "dtype": dtype, "use": use, "text_bytes": 0}
    manifest = {"data": "df", "size": 1, "rows": rows, "validation_rows": 0, "validation_whole": True}
    return manifest | {"tensors": [tensor], "features": 0, "label": None, "weight": None}


def test_a_share_is_on_sparks_disk_if_there_is_room(tmp_path, monkeypatch):
    spark_disk, temporary = tmp_path / "spark", tmp_path / "tmp"
    spark_disk.mkdir(), temporary.mkdir()
    free = {str(spark_disk): 10 << 30, str(temporary): 1 << 30}
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=free[folder]))
    environment = {"SPARK_LOCAL_DIRS": f"/missing,{spark_disk}"}
    folders = [share_files.make_folder(one_column(100), rank, environment) for rank in range(2)]
    folders.append(share_files.make_folder(one_column(100), 0, {}))
    free[str(spark_disk)] = 1 << 20
    folders.append(share_files.make_folder(one_column(100), 0, environment))
    assert [os.path.dirname(folder) for folder in folders] == [str(spark_disk)] * 2 + [str(temporary)] * 2
    for folder in folders:
        scratch.remove(folder)
    assert not list(spark_disk.iterdir())
    with pytest.raises(share_files.NoRoom) as caught:
        share_files.make_folder(one_column(1 << 28), 0, environment)
    assert str(caught.value) == (
        f"--data df: this worker's share needs 2.15 GB of disk, and there are 1.05 MB free in {spark_disk}, 1.07 GB "
        f"free in {temporary}: make room, have spark.local.dir name a larger disk, or use more workers than 1"
    )


def test_the_room_for_all_rows_is_reserved_before_the_first(tmp_path, monkeypatch):
    def no_room(descriptor, offset, size):
        raise OSError(errno.ENOSPC, "-")

    monkeypatch.setattr(os, "posix_fallocate", no_room)
    with pytest.raises(
        share_files.NoRoom, match=r"--data df: the rows cannot be stored in .*: No space left on device; make room"
    ):
        share_files.store(iter(lambda: pytest.fail("a row is read"), None), str(tmp_path), one_column(4), 0)


@pytest.mark.parametrize(("floatx", "stored"), [(None, "float32"), ("float32", "float32"), ("float64", "float64")])
def test_floats_are_stored_as_keras_wants_them(tmp_path, monkeypatch, floatx, stored):
    (tmp_path / "keras.json").write_text(json.dumps({"floatx": floatx} if floatx else {}))
    environment = {"KERAS_HOME": str(tmp_path)}
    blob = packing.encode({"set": "train"}, [np.arange(4), np.array([0.1, 1, 2, 3])])
    share_files.store([blob], str(tmp_path), one_column(4, "<f8", "floatx"), 0, environment)
    found = np.load(tmp_path / "train-0.npy")
    assert (found.dtype, found[0]) == (stored, np.dtype(stored).type(0.1))
    of_session = {**one_column(4, "<f8", "floatx"), "floatx": "float64"}
    share_files.store([blob], str(tmp_path / "session"), of_session, 0, environment)
    assert np.load(tmp_path / "session" / "train-0.npy")[0] == 0.1


def test_a_frame_that_changes_between_passes_is_noticed():
    """Also where there are as many rows, in another order."""
    record = (0, 0, None, packing.encode({}, [np.arange(3)]))
    other = zlib.crc32(packing.encode({}, [np.arange(3)[::-1]]))
    plan = {"fraction": 0, "starts": {0: [0]}, "checksums": {0: [other]}, "dtypes": ["<i8"], "ragged": [False]}
    with pytest.raises(RuntimeError, match=r"cache\(\) the DataFrame"):
        list(packing.deal([record], plan))


# Mistakes


@pytest.fixture(scope="module")
def pandas_frame():
    return pd.DataFrame({"x1": [1.0, 2.0, 3.0], "x2": [1, 2, 3], "label": [0, 1, 0]})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label": "labl"}, "--label labl: df has no such column; did you mean 'label'?"),
        ({"label": "Label"}, "--label Label: df has no such column; did you mean 'label'?"),
        ({"label": "zzz"}, "--label zzz: df has no such column; it has x1, x2, label"),
        ({"features": ["x1", "x22"]}, "--features x22: df has no such column; did you mean 'x2'?"),
        ({"features": ["x1", "x1"]}, "--features names x1 twice"),
        ({"features": ["x1", "label"]}, "--label label is also among --features; take it out of one"),
        ({"features": ["x1"], "weight": "x"}, "--weight x: df has no such column; did you mean 'x2'?"),
        ({"features": ["x1"], "weight": "x1"}, "--weight x1 is also among --features; take it out of one"),
        ({"weight": "label"}, "--weight label is also the --label; name a column of its own"),
        ({"label": None, "weight": "x1"}, "--weight x1 needs --label: it weighs the loss of a row"),
        ({"validation": 1.5}, "--validation 1.5: give a fraction between 0 and 1, or the name of a DataFrame"),
        ({"validation": "othr"}, "--validation othr: there is no such DataFrame in the session; did you mean 'other'?"),
        ({"validation": "other"}, "--validation other: it has no column 'x1', which df has and the training uses"),
        ({"validation": 0.01}, "--validation 0.01 of the 3 rows of df leaves one part empty"),
        ({"workers": 4}, "df has 3 rows to train on, too few for 4 workers: use --workers 3"),
    ],
)
def test_wrong_options_are_refused_in_one_line(local, pandas_frame, changes, message):
    namespace = {"other": pd.DataFrame({"label": [1]}), "df": pandas_frame}
    assert refusal(local, pandas_frame, spec(**{"label": "label", **changes}), namespace) == message


def test_of_a_column_with_a_comma_it_is_said_how_to_write_it(local):
    frame = pd.DataFrame({"width,cm": [1.0, 2.0], "y": [0, 1]})
    message = (
        r"""--features width cm: df has no such column; did you mean 'width,cm'? Write 'width\,cm', with the quotes"""
    )
    assert refusal(local, frame, spec(features=["width cm"])) == message


@pytest.mark.parametrize(("values", "kind"), [(["a", "b"], "text"), ([[1.0], [2.0]], "arrays")])
def test_weights_are_numbers(values, kind):
    frame = pd.DataFrame({"x": [1, 2], "y": [0, 1], "w": values})
    with pytest.raises(DataError, match=f"^--weight w is a column of {kind}, and must be one of numbers$"):
        DataPlan(frame, spec(weight="w"), {})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([None, "a"], "df, column 'x': it has empty values (null): fill them or drop their rows first"),
        (pd.array([1, None], dtype="Int64"), "df, column 'x': it has empty values (null)"),
        ([True, None], "df, column 'x': it has empty values (null)"),
        (pd.array([True, None], dtype="boolean"), "df, column 'x': it has empty values (null)"),
        ([np.zeros(0), np.zeros(0)], "column 'x' of df holds empty arrays"),
        ([[[1, 2]], [[1]]], "df, column 'x': its lengths differ (1 and 2): pad or cut them to one length"),
        ([None, None], "column 'x' of df has no values at all: fill or drop it"),
        (
            pd.to_datetime(["2020-01-01", "2020-01-02"]),
            "column 'x' of df is of type datetime64[ns]: turn it into numbers, as in "
            "df['x'] = (df['x'] - pd.Timestamp(0)).dt.total_seconds(), or leave it out of --features",
        ),
        (
            pd.to_datetime(["2020-01-01", "2020-01-02"]).tz_localize("Europe/Berlin"),
            "column 'x' of df is of type datetime64[ns, Europe/Berlin]: turn it into numbers, as in "
            "df['x'] = (df['x'] - pd.Timestamp(0, tz=df['x'].dt.tz)).dt.total_seconds(), or leave it out of --features",
        ),
        (pd.Categorical(["a", "b"]), "column 'x' of df is of type category: turn it into"),
        ([{}, {}], "column 'x' of df is of type dict: turn it into"),
        ([1, "a"], "df, column 'x': it has 'a', a text in place of a number: make all values numbers, or all texts"),
    ],
)
def test_unusable_columns_of_pandas(local, values, message):
    frame = pd.DataFrame({"x": values, "y": [0, 1]})
    said = refusal(local, frame, spec(workers=1))
    assert said.startswith(message)
    if "as in df['x']" in said:
        exec(said.partition("as in ")[2].partition(", or leave")[0], {"df": frame, "pd": pd})
        assert frame["x"].dtype == "float64"


def test_a_label_that_int64_does_not_hold_is_refused(local, tmp_path):
    frame = pd.DataFrame({"x": [1.0, 2.0], "y": np.array([1, 2**63], "uint64")})
    assert refusal(local, frame, spec(workers=1)).startswith(
        "df, column 'y': it has 9223372036854775808, which int64 does not hold: drop these rows"
    )
    manifest, folders, _ = shares(local, frame[:1], tmp_path, workers=1)
    assert batches(open_rank(manifest, folders, 0, 1)[0])[0][1].tolist() == [1]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("if(id = 77, null, id)", "df, column 'x': it has empty values (null): fill them or drop their rows first"),
        ("if(id = 77, array(1.0D, null), array(1.0D, 2.0D))", "df, column 'x': it has empty values (null)"),
        (
            "if(id = 77, array(array(1)), array(array(1, 2)))",
            "df, column 'x': its lengths differ (1 and 2): pad or cut",
        ),
        (
            "if(id < 50, array(array(1)), array(array(1, 2)))",
            "df, column 'x': its lengths differ (1x1 and 1x2): pad or cut",
        ),
        (
            "current_date()",
            "column 'x' of df is of type date: turn it into numbers, as in df = df.withColumn('x', "
            "df['x'].cast('timestamp').cast('double')), or leave it out of --features",
        ),
    ],
)
def test_unusable_columns_of_spark(spark, expression, message):
    frame = spark.range(0, 100, 1, 2).selectExpr(expression + " x", "id y")
    assert refusal(spark.sparkContext, frame, spec()).startswith(message)


#: What columns arrive as, by the documentation's table.
ARRIVE = ("bool", "int8", "int16", "int32", "int64", "floatx", "string")
#: A value of each kind of column in the documentation's table, where casting text or a number does not make one.
VALUES = {
    "binary": "cast('a' as binary)",
    "array<double>": "array(1.0D, 2.0D)",
    "array<array<bigint>>": "array(array(id, id))",
    "array<string>": "array('a', 'b')",
    "date": "current_date()",
    "timestamp": "current_timestamp()",
    "timestamp_ntz": "cast('2020-01-01' as timestamp_ntz)",
    "interval day to second": "interval '1 2:03:04' day to second",
    "interval year to month": "interval '1-2' year to month",
    "void": "null",
    "map<string,bigint>": "map('a', id)",
    "struct<a:bigint>": "named_struct('a', id)",
    "array<struct<a:bigint>>": "array(named_struct('a', id))",
}


def test_the_table_of_the_documentation_is_true(spark, tmp_path):
    """Of every kind of column: how it arrives, or that it is refused, in one line with its type and the way out."""
    table = dict(re.findall(r"^\| `([^`]+)` \| ([^|]+) \|$", (ROOT / "docs" / "data.md").read_text(), re.MULTILINE))
    table = {kind: says for kind, says in table.items() if says.split(",")[0].split(" ")[0] in (*ARRIVE, "refused")}
    assert set(VALUES) <= set(table) and len(table) == 24
    arrive = {kind: says for kind, says in table.items() if not says.startswith("refused")}
    columns = {kind: VALUES.get(kind, f"cast(id % 2 as {kind})") for kind in table}
    frame = spark.range(4).selectExpr(*[f"{columns[kind]} as c{i}" for i, kind in enumerate(arrive)], "id y")
    manifest, folders, _ = shares(spark, frame, tmp_path, features=[f"c{i}" for i in range(len(arrive))])
    dataset, _ = open_rank(manifest, folders, 0, 4)
    found = {name: spec.dtype.name for name, spec in dataset.element_spec[0].items()}
    assert found == {f"c{i}": says.replace("floatx", "float32") for i, says in enumerate(arrive.values())}
    for kind, says in table.items():
        if kind in arrive:
            continue
        refused = spark.range(4).selectExpr(f"{columns[kind]} as x", "id y")
        with pytest.raises(
            DataError, match=r"^column 'x' of df is of type .*: turn it into numbers.*--features$"
        ) as it:
            DataPlan(refused, spec(features=["x"]), {"df": refused})
        assert ("cast('double')" in str(it.value)) == says.endswith("with the cast to write")


def test_a_frame_that_spark_cannot_compute(spark):
    from pyspark.sql.functions import udf

    broken = udf(lambda value: 1 // (value - 5), "int")
    frame = spark.range(10).select(broken("id").alias("x"), "id").toDF("x", "y")
    message = "df cannot be computed: ZeroDivisionError: integer division or modulo by zero"
    assert refusal(spark.sparkContext, frame, spec()) == message


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1, 2], "--data df is a list, and must be a Spark or a pandas DataFrame"),
        ("missing", "--data missing: there is no such DataFrame in the session; did you mean 'df'?"),
        (pd.DataFrame({"x": [], "y": []}), "df has no rows"),
        (pd.DataFrame({"y": [1]}), "df has no column besides the label y to be a feature"),
        (pd.DataFrame([[1, 2, 3]], columns=["x", "x", "y"]), "--features x: df has more than one column of that name"),
    ],
)
def test_unusable_data(local, value, message):
    namespace = {"df": pd.DataFrame({"x": [1]}), "n": 3}
    assert refusal(local, value, spec(workers=1), namespace).startswith(message)


def test_an_empty_spark_frame(spark):
    assert refusal(spark.sparkContext, spark.range(0).selectExpr("id x", "id y"), spec()) == "df has no rows"
