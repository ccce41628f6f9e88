"""Spark's DataFrames as TFRecord files, and these as --data: TensorFlow reads what Spark writes, and the other way."""

import decimal
import gzip
import json
import os
import random
import struct
import zlib

import numpy as np
import pytest
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.sql import types as t
from support import launch
from support.feeds import LOGGED, spec
from support.refusals import one_line

import ddl_magics
from ddl_magics.runtime.data import file_share, sources, tfrecord, tfrecord_encoding, tfrecord_folder
from ddl_magics.runtime.data.columns import DataError

from .test_file_feed import assert_equal, prepared, stored

SCHEMA = t.StructType(
    [
        t.StructField("byte", t.ByteType()),
        t.StructField("short", t.ShortType()),
        t.StructField("integer", t.IntegerType()),
        t.StructField("long", t.LongType()),
        t.StructField("boolean", t.BooleanType()),
        t.StructField("float", t.FloatType()),
        t.StructField("double", t.DoubleType()),
        t.StructField("decimal", t.DecimalType(9, 2)),
        t.StructField("string", t.StringType()),
        t.StructField("binary", t.BinaryType()),
        t.StructField("array", t.ArrayType(t.LongType())),
        t.StructField("texts", t.ArrayType(t.StringType())),
        t.StructField("vector", VectorUDT()),
    ]
)


def row(n):
    dense = Vectors.dense(n, 0.5) if n % 2 else Vectors.sparse(2, [0], [float(n)])
    money, blob = decimal.Decimal(n) / 4, bytes([n % 256, 0, 10, 255]) * (n % 3) + b"\0"
    texts = [f"ü{n}", ""]
    values = (-1, -n, n, n - 2**62, n % 2 == 0, n / 2, n / 3, money, f"é{n}\n\0", blob, [n, -n, 2**63 - 1], texts)
    return (*values, dense)


def parsed(files, compression):
    """What TensorFlow alone reads."""
    import tensorflow as tf

    kinds = {name: ([], tf.int64) for name in ("byte", "short", "integer", "long", "boolean")}
    kinds.update({name: ([], tf.float32) for name in ("float", "double", "decimal")})
    kinds.update({name: ([], tf.string) for name in ("string", "binary")})
    kinds.update(array=([3], tf.int64), texts=([2], tf.string), vector=([2], tf.float32))
    features = {name: tf.io.FixedLenFeature(*kind) for name, kind in kinds.items()}
    (records,) = tf.data.TFRecordDataset(files, compression).batch(1000)
    return {name: values.numpy().tolist() for name, values in tf.io.parse_example(records, features).items()}


@pytest.mark.slow
def test_tensorflow_reads_every_type_that_spark_writes(spark, tmp_path):
    frame = spark.createDataFrame(spark.sparkContext.parallelize(map(row, range(501)), 3), SCHEMA)
    for name, compression in (("out.tfrecord", None), ("packed.tfrecord", "gzip")):
        folder = tmp_path / name
        assert ddl_magics.write_tfrecord(frame, f"file://{folder}", compression=compression) == 501
        assert_tensorflow_reads(folder, compression)
    assert sorted(os.listdir(tmp_path)) == ["out.tfrecord", "packed.tfrecord"]
    again = {each["long"]: each for each in sources.source(spark, f"file://{folder}").frame.collect()}
    assert len(again) == 501 and again[500 - 2**62]["array"] == [500, -500, 2**63 - 1]


def assert_tensorflow_reads(folder, compression):
    index = json.loads((folder / "_index.json").read_text())
    assert (folder / "_SUCCESS").exists()
    end = ".tfrecord.gz" if compression else ".tfrecord"
    assert [file["name"] for file in index["files"]] == [f"part-0000{k}{end}" for k in range(3)]
    assert [file["bytes"] for file in index["files"]] == [(folder / f["name"]).stat().st_size for f in index["files"]]
    assert [file["records"] for file in index["files"]] == [167, 167, 167]
    assert index["columns"]["double"] == "float" and index["columns"]["texts"] == "bytes"
    found = parsed([str(folder / file["name"]) for file in index["files"]], "GZIP" if compression else None)
    for place, field in enumerate(SCHEMA):
        expected = [row(n)[place] for n in range(501)]
        if field.name == "vector":
            expected = [value.toArray().tolist() for value in expected]
        elif field.name in ("float", "double", "decimal"):
            expected = [float(np.float32(value)) for value in expected]
        elif field.name == "string":
            expected = [value.encode() for value in expected]
        elif field.name == "texts":
            expected = [[text.encode() for text in value] for value in expected]
        assert found[field.name] == expected, field.name


def test_values_that_are_missing_and_long_ones(spark, tmp_path):
    blob = random.Random(0).randbytes(70_001)
    frame = spark.createDataFrame([(1, None), (None, blob), (3, blob[:9])], "a long, b binary").coalesce(1)
    folder = tmp_path / "out.tfrecord"
    ddl_magics.write_tfrecord(frame.repartition(2), f"file://{folder}")
    import tensorflow as tf

    files = [str(folder / name) for name in os.listdir(folder) if name.startswith("part")]
    examples = [tf.train.Example.FromString(one.numpy()) for one in tf.data.TFRecordDataset(files)]
    features = [dict(example.features.feature) for example in examples]
    found = {tuple(each["a"].int64_list.value) if "a" in each else (): each for each in features}
    assert set(found) == {(1,), (), (3,)}
    assert list(found[1,]) == ["a"] and list(found[()]) == ["b"]
    assert found[()]["b"].bytes_list.value[0] == blob


def test_a_table_without_rows_is_a_folder_without_files(spark, tmp_path):
    assert ddl_magics.write_tfrecord(spark.range(5).where("id > 9"), f"file://{tmp_path}/none.tfrecord") == 0
    assert json.loads((tmp_path / "none.tfrecord" / "_index.json").read_text())["files"] == []


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (t.DateType(), "turn it into numbers, as in df = df.withColumn('x', df['x'].cast('timestamp').cast('double'))"),
        (t.TimestampType(), "turn it into numbers, as in df = df.withColumn('x', df['x'].cast('timestamp')"),
        (t.MapType(t.StringType(), t.LongType()), "column 'x' of df is of type map<string,bigint>: turn it into"),
        (t.StructType([t.StructField("f", t.LongType())]), "column 'x' of df is of type struct<f:bigint>: turn it"),
        (
            t.ArrayType(t.ArrayType(t.LongType())),
            "column 'x' has arrays of arrays, and TFRecord has none: flatten them",
        ),
    ],
)
def test_other_types_are_refused_in_one_line(spark, tmp_path, kind, problem):
    frame = spark.createDataFrame([], t.StructType([t.StructField("x", kind)]))
    message = one_line(ValueError, ddl_magics.write_tfrecord, frame, f"file://{tmp_path}/out.tfrecord")
    assert message.startswith("write_tfrecord: ") and problem in message and "--features" not in message


def test_a_value_that_cannot_be_written_leaves_nothing(spark, tmp_path):
    frame = spark.range(3).selectExpr("id", "array(1, null) as x").coalesce(1)
    message = one_line(ValueError, ddl_magics.write_tfrecord, frame, f"file://{tmp_path}/out.tfrecord")
    assert message.startswith("write_tfrecord to ")
    assert message.endswith("column 'x' has arrays with empty values (null): fill them first")
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("depth", [0, 1])
def test_a_number_beyond_float32_is_refused(depth):
    column = {"name": "x", "dtype": "f8", "depth": depth, "vector": False}
    with pytest.raises(ValueError, match=r"^column 'x' has numbers beyond those of float32, which TFRecord has$"):
        tfrecord_encoding.entry_maker(column)([1e39] if depth else 1e39)


def test_a_file_that_spark_has_lost_is_noticed(spark, tmp_path, monkeypatch):
    files = tfrecord_folder._rename_files
    monkeypatch.setattr(tfrecord_folder, "_rename_files", lambda *arguments: files(*arguments)[1:])
    frame = spark.range(0, 10, 1, 2)
    with pytest.raises(ValueError, match=r"Spark has not written the bytes that it was given$"):
        ddl_magics.write_tfrecord(frame, f"file://{tmp_path}/lost", compression="gzip")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_exists_is_kept(spark, tmp_path):
    with pytest.raises(ValueError, match=r"exists, and is not written over: name another folder$"):
        ddl_magics.write_tfrecord(spark.range(3), f"file://{tmp_path}")
    came = tmp_path / "came.tfrecord"
    frame = spark.range(3).rdd.map(lambda row: (os.makedirs(came, exist_ok=True), (row[0],))[1]).toDF("id long")
    with pytest.raises(ValueError, match=r"came\.tfrecord exists, and is not written over: name another folder$"):
        ddl_magics.write_tfrecord(frame, f"file://{came}")
    assert os.listdir(tmp_path) == ["came.tfrecord"] and os.listdir(came) == [], "it came while the files were written"
    with pytest.raises(ValueError, match=r"^write_tfrecord takes a Spark DataFrame, not a list$"):
        ddl_magics.write_tfrecord([1], f"file://{tmp_path}/x")
    with pytest.raises(ValueError, match=r"^write_tfrecord: compression is None or 'gzip', not 'zip'$"):
        ddl_magics.write_tfrecord(spark.range(3), f"file://{tmp_path}/x", compression="zip")


@pytest.fixture(scope="module")
def folder(spark_cluster, tmp_path_factory):
    """TFRecord files in two forms."""
    spark, tmp_path = spark_cluster(2), tmp_path_factory.mktemp("tfrecord")
    frame = spark.range(0, 900, 1, 1).selectExpr("id", "id / 7 x", "array(id, -id) a", "string(id) s", "id % 3 y")
    for name, compression in (("plain", None), ("packed", "gzip")):
        ddl_magics.write_tfrecord(frame, f"file://{tmp_path}/{name}.tfrecord", compression=compression)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("plain", {"workers": 2, "features": ["id", "x"], "validation": 0.2}),
        ("packed", {"workers": 4, "features": ["x", "a", "s"], "weight": "id"}),
    ],
)
def test_a_rank_reads_of_tfrecord_what_spark_deals_it(spark, folder, tmp_path, name, changes):
    own, dealt = stored(spark, tmp_path / "shares", spec(data=f"file://{folder}/{name}.tfrecord", **changes))
    assert_equal(own, dealt)


def test_a_run_reads_tfrecord_files(spark, folder):
    data = f"file://{folder}/plain.tfrecord,file://{folder}/packed.tfrecord"
    ended = launch.finished(spark, LOGGED, workers=2, batch_size=64, data=data, features=["id"], label="y")
    assert sorted(ended.logged("row")) == sorted([*range(900)] * 2)
    assert not [e for e in ended.of_kind("notice") if "Spark" in e["message"]]


def test_a_list_of_another_length_is_refused_or_padded(spark, tmp_path):
    """Padded as through Spark."""
    frame = spark.range(0, 200, 1, 1).selectExpr("id", "if(id = 150, array(id), array(id, id)) a")
    ddl_magics.write_tfrecord(frame, f"file://{tmp_path}/t.tfrecord")
    options = spec(data=f"file://{tmp_path}/t.tfrecord", features=["a"], label="id", workers=1)
    _, made = prepared(spark, options)
    own = one_line(DataError, lambda: list(file_share.FileShare(made.manifest, 0).blocks()))
    line = "column 'a': its lengths differ (1 and 2): pad or cut them to one length, as --pad a=LENGTH does"
    assert own == f"{options.data}, {line}"
    for length in (1, 3):
        padding = {"features": ["a"], "label": "id", "pad": [f"a={length}"], "workers": 2}
        own, dealt = stored(spark, tmp_path / f"{length}", spec(data=options.data, **padding))
        assert_equal(own, dealt)


def test_where_of_tfrecord_goes_through_spark(spark, folder):
    _, made = prepared(spark, spec(data=f"file://{folder}/plain.tfrecord", features=["x"], where="id > 5"))
    assert made.manifest["rows"] == 894 and made.manifest["files"] is None and "go through Spark" in made.notices[0]
    made.close()


@pytest.mark.parametrize("damage", [lambda c: b"PAR1" + c, lambda c: c[:-7], lambda c: c + b"12", lambda c: c[:5]])
def test_a_damaged_file_has_the_same_line_in_the_index(spark, folder, damage):
    content = damage((folder / "plain.tfrecord" / "part-00000.tfrecord").read_bytes())
    with pytest.raises(ValueError) as one:
        list(tfrecord.records(content, "f"))
    with pytest.raises(ValueError) as other:
        tfrecord.record_spans(tfrecord.plain(gzip.compress(content), "f"), "f")
    assert str(one.value) == str(other.value)


@pytest.mark.parametrize("size", [3, 900, 17_000])
def test_a_last_record_ends_in_zero_whatever_it_has(size):
    """In a time that does not grow with the tries: a checksum goes on from the record's own."""
    for seed in range(20):
        record = random.Random(seed).randbytes(size)
        padded = tfrecord_encoding.last_record(record, tfrecord.checksums_behind)
        assert padded.startswith(record) and tfrecord.checksums([padded])[0] >> 24 == 0


def test_one_number_of_two_bytes_makes_any_checksum_end_in_zero():
    """The 14 free bits of a number reach all values of the first 10 bits of a checksum, wherever it starts."""
    numbers = range(1 << 7, 1 << 14)
    data = np.array([[0x78, number & 127 | 128, number >> 7] for number in numbers], np.uint8)
    states = tfrecord.advanced(np.zeros(len(data), np.uint32), data) ^ np.uint32(0xFFFFFFFF)
    rotated = states >> np.uint32(15) | states << np.uint32(17)
    assert len(set((rotated >> np.uint32(22)).tolist())) == 1 << 10


@pytest.mark.parametrize(
    ("value", "encoded"), [(0, "00"), (127, "7f"), (128, "8001"), (256, "8002"), (-1, "ff" * 9 + "01")]
)
def test_a_varint_is_that_of_protobuf(value, encoded):
    assert tfrecord_encoding.varint(value).hex() == encoded


def test_the_lines_of_a_file_are_its_records_and_zeros():
    def checksums(records):
        return [zlib.crc32(record) & 0xFFFFFF for record in records]  # whose last byte is zero: the last one needs none

    records = [bytes([number % 256]) * (number % 5) for number in range(tfrecord_encoding.BLOCK_RECORDS + 3)]
    lines = list(tfrecord_encoding.lines(records, checksums, lambda record, fields: [0] * len(fields)))
    records[-1] += tfrecord_encoding.UNKNOWN_FIELD + tfrecord_encoding.varint(1 << 7)
    frames = []
    for record in records:
        length = struct.pack("<Q", len(record))
        (of_length,), (of_data,) = checksums([length]), checksums([record])
        frames.append(length + struct.pack("<I", of_length) + record + struct.pack("<I", of_data))
    assert b"".join(line + b"\0" for line in lines) == b"".join(frames)
    assert list(tfrecord_encoding.lines([], checksums, None)) == []


def test_records_come_in_blocks_of_a_number_or_a_size(monkeypatch):
    monkeypatch.setattr(tfrecord_encoding, "BLOCK_RECORDS", 3)
    monkeypatch.setattr(tfrecord_encoding, "BLOCK_BYTES", 10)
    records = [b"a" * size for size in (1, 2, 3, 9, 1, 11, 4)]
    assert [list(map(len, block)) for block in tfrecord_encoding.blocks(records)] == [[1, 2, 3], [9, 1], [11], [4]]
    assert list(tfrecord_encoding.blocks([])) == []
