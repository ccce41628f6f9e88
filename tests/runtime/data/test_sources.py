"""--data as files, --where, and the partitions of what Spark reads."""

import os
import struct

import numpy as np
import pandas as pd
import pytest
from support import launch
from support.feeds import prepare, spec

from ddl_magics.clusters import data_names, dataset_shape
from ddl_magics.options import parsing
from ddl_magics.runtime.data import feed, sources, tfrecord
from ddl_magics.runtime.data.feed import DataError

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


@pytest.fixture
def spark(spark_cluster):
    return spark_cluster(2)


@pytest.fixture
def files(spark, tmp_path):
    """100 Parquet files with 2,000 rows."""
    folder = f"{tmp_path}/table.parquet"
    spark.range(0, 2000, 1, 100).selectExpr("id a", "id % 3 y", "cast(id as string) unused").write.parquet(folder)
    return f"file://{folder}"


CELL = """
for a in [float(a) for batch, labels in dataset for a in batch]:
    ddl.log(row=a)
"""


def test_every_row_of_the_files_that_is_wanted_is_used_once(spark, files):
    options = {"data": f"{files}/*.parquet", "where": "a >= 1700 and y < 2", "features": ["a"], "label": "y"}
    ended = launch.run_cell(spark, CELL, workers=2, batch_size=64, **options)
    assert ended.state == "FINISHED", (ended.message, ended.failure and ended.failure["traceback"])
    rows = [e["metrics"]["row"] for e in ended.of_kind("values")]
    assert sorted(rows) == [a for a in range(1700, 2000) if a % 3 < 2]


def test_many_partitions_are_joined_and_no_row_is_lost(spark):
    frame = spark.range(0, 2000, 1, 100).selectExpr("id x", "id y")
    made = prepare(spark.sparkContext, frame, spec(), {})
    assert made.manifest["rows"] == 2000
    assert made._persisted[0].getNumPartitions() == 8, "4 for each of the 2 slots"
    made.close()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": "file:///nowhere/at_all.parquet"}, "--data file:///nowhere/at_all.parquet cannot be read: "),
        ({"where": "a >"}, "--where a >: "),
        ({"where": "b > 1"}, "--where b > 1: "),
        ({"features": ["b"]}, "--features b: "),
    ],
)
def test_mistakes_that_spark_finds_are_one_line(spark, files, changes, message):
    options = {**spec(data=files), **changes}
    with pytest.raises(DataError) as caught:
        feed.check(options["data"], options, sources.opened(spark, options, {}))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        (
            "file:///a/b.csv",
            "read it into a DataFrame first: df = spark.read.csv('file:///a/b.csv', header=True, infer",
        ),
        (
            "hdfs:///a/b.jsonl",
            "read it into a DataFrame first: df = spark.read.json('hdfs:///a/b.jsonl'), and --data df",
        ),
    ],
)
def test_other_files_are_refused_with_what_to_do(uri, message):
    with pytest.raises(DataError) as caught:
        sources.opened(None, {"data": uri}, {})
    assert str(caught.value).startswith(f"--data {uri}: {message}")


def test_pandas_filters_itself():
    frame = pd.DataFrame({"x": [1], "y": [2]})
    with pytest.raises(DataError, match=r"filter pandas' yourself: df = df\.query\('x > 1'\)$"):
        feed.check(frame, spec(where="x > 1"), {})


def test_the_notebook_leaves_files_to_spark():
    asked = parsing.parse("--data s3a://sales/*.parquet --where 'a > 1' --label y")
    assert (asked.data, asked.where) == ("s3a://sales/*.parquet", "a > 1")
    assert data_names.problem(asked, {}) is None
    assert dataset_shape.described(asked, {}) is None


# TFRecord


def written(path, examples, compression=None):
    """A TFRecord file of TensorFlow's own writer. examples: name -> bytes, or a list of bytes, floats or integers."""
    import tensorflow as tf

    def feature(values):
        values = values if isinstance(values, list) else [values]
        if isinstance(values[0], bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        if isinstance(values[0], float):
            return tf.train.Feature(float_list=tf.train.FloatList(value=values))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for example in examples:
            features = tf.train.Features(feature={name: feature(values) for name, values in example.items()})
            writer.write(tf.train.Example(features=features).SerializeToString())
    return path


def numbered(first, last):
    return [
        {"id": i, "x": [i / 2, -1.0, 1e30], "image": bytes([i % 256, 0, 0]), "y": i % 3 - 2**62, "ids": [i, -i]}
        for i in range(first, last)
    ]


def test_tfrecord_files_of_tensorflow_are_rows(spark, tmp_path):
    written(tmp_path / "b.tfrecord", numbered(100, 300))
    written(tmp_path / "a.tfrecord.gz", numbered(0, 100), "GZIP")
    frame = sources.read(spark, f"file://{tmp_path}/*.tfrecord*")
    assert frame.schema.simpleString() == ("struct<id:bigint,ids:array<bigint>,image:binary,x:array<float>,y:bigint>")
    found = {row["id"]: row.asDict() for row in frame.collect()}
    expected = {row["id"]: dict(row, x=[float(np.float32(x)) for x in row["x"]]) for row in numbered(0, 300)}
    assert found == expected
    made = prepare(spark.sparkContext, frame, spec(features=["x", "image"]), {})
    assert made.manifest["rows"] == 300
    made.close()


def test_numbers_that_are_not_packed_are_read():
    """As other writers than TensorFlow may write them: each value a field of its own."""

    def message(number, data):
        return bytes([number << 3 | 2, len(data)]) + data

    floats = message(2, b"".join(b"\x0d" + struct.pack("<f", value) for value in (0.5, -2.0)))
    integers = message(3, b"\x08\x05\x08" + b"\xff" * 9 + b"\x01")
    entries = [message(1, message(1, name) + message(2, values)) for name, values in ((b"f", floats), (b"i", integers))]
    assert tfrecord.example(message(1, b"".join(entries))) == {"f": (2, [0.5, -2.0]), "i": (3, [5, -1])}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: b"PAR1" + content, "f is damaged at byte 0, or no TFRecord file"),
        (lambda content: content[:-7], "f is cut off in its last record"),
        (lambda content: content + b"12", "f is damaged at byte"),
        (lambda content: content[:12] + b"\xff" * (len(content) - 12), "a record is no tf.train.Example"),
    ],
)
def test_damaged_files_are_one_line(change, message, tmp_path):
    content = change(written(tmp_path / "f", numbered(0, 1)).read_bytes())
    with pytest.raises(ValueError, match="^" + message):
        list(tfrecord.rows(content, "f", {"id": (3, False)}))


@pytest.mark.parametrize(
    ("example", "message"),
    [
        ({"id": [1, 2]}, "f, record 1: id has 2 values, and one in the first records of the first file"),
        ({"id": 1.0}, "f, record 1: id is of another type than in the first file"),
    ],
)
def test_records_unlike_the_first_are_one_line(example, message, tmp_path):
    content = written(tmp_path / "f", [{"id": 1}, example]).read_bytes()
    with pytest.raises(ValueError, match=f"^{message}$"):
        list(tfrecord.rows(content, "f", tfrecord.first_columns(content, "f", 1)))


def test_a_missing_value_is_none(tmp_path):
    content = written(tmp_path / "f", [{"id": 1, "x": [1.0, 2.0]}, {"id": 2}]).read_bytes()
    columns = tfrecord.first_columns(content, "f", 100)
    assert columns == {"id": (3, False), "x": (2, True)}
    assert list(tfrecord.rows(content, "f", columns)) == [(1, [1.0, 2.0]), (2, None)]
