"""--data as files, --where, and the partitions of what Spark reads."""

import dataclasses
import gzip
import random
import struct
import tempfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.feeds import prepare, refusal, spec
from support.refusals import one_line

from ddl_magics.clusters import data_names, dataset_shape
from ddl_magics.options import parsing
from ddl_magics.runtime.data import packing, parquet, sources, tfrecord
from ddl_magics.runtime.data.columns import DataError
from ddl_magics.runtime.data.plan import DataPlan


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder of Parquet files."""
    folder = tmp_path_factory.mktemp("files") / "table.parquet"
    folder.mkdir()
    for number in range(2):
        pq.write_table(pa.table({"a": [number], "y": [0]}), folder / f"part-{number}.parquet")
    for name in ("text", "empty"):
        (folder.parent / name).mkdir()
    (folder.parent / "text" / "t.txt").write_text("no Parquet")
    return f"file://{folder}"


def test_every_row_of_the_files_that_is_wanted_is_used_once(spark, tmp_path):
    """Of ORC, which Spark alone reads."""
    spark.range(0, 2000, 1, 5).selectExpr("id a", "id % 3 y", "cast(id as string) unused").write.orc(
        f"{tmp_path}/t.orc"
    )
    options = spec(data=f"file://{tmp_path}/t.orc", where="a >= 1700 and y < 2", features=["a"])
    frames = sources.with_frame({}, options, sources.opened(spark, options))
    made = prepare(spark.sparkContext, options.data, options, frames)
    rows = [packing.decode(blob)[1][1].tolist() for blob in made.rdd.collect()]
    assert sorted(a for own in rows for a in own) == [a for a in range(1700, 2000) if a % 3 < 2]
    made.close()


def test_the_code_that_reads_files_into_a_frame_names_one_file_or_several():
    assert sources.reader_code("a.parquet") == "spark.read.load('a.parquet', format='parquet')"
    assert sources.reader_code("a.csv").startswith("spark.read.csv('a.csv', header=True")
    assert sources.reader_code("file:/a.csv,/b.csv").startswith("spark.read.csv(['file:/a.csv', '/b.csv'], header=True")


@pytest.mark.parametrize(
    ("values", "sign", "value", "fulfilled"),
    [
        ([1.4, 1.6, None, float("nan")], ">", 1.5, [False, True, False, True]),
        ([1.4, 1.6, None, float("nan")], "<=", 1.5, [True, False, False, False]),
        ([2**53, 2**53 + 1, None], "==", 2**53 + 1, [False, True, False]),
        (["a", None, "b"], "!=", "a", [False, False, True]),
    ],
)
def test_workers_compare_as_spark_does(values, sign, value, fulfilled):
    batch = pa.record_batch({"a": values})
    assert parquet.fulfilled(batch, [{"column": "a", "sign": sign, "value": value}]).tolist() == fulfilled


def test_rows_of_files_come_in_batches_of_bounded_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "BATCH_BYTES", 800)
    pq.write_table(pa.table({"a": range(1000)}), tmp_path / "t", use_dictionary=False, compression="none")
    batches = list(parquet.batches(pq.ParquetFile(tmp_path / "t"), 0, [{"name": "a"}], []))
    assert [a for batch in batches for a in batch["a"].to_pylist()] == list(range(1000))
    assert 50 < max(batch.num_rows for batch in batches) <= 100


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
        ({"data": "{files}/../text"}, "t.txt is not a Parquet file: name files of other formats with their ending, as"),
        ({"data": "data:2024.parquet"}, "--data data:2024.parquet cannot be read: "),
        ({"data": "{files}/../empty"}, "/empty cannot be read: there is no file with columns"),
        ({"where": "a >"}, "--where a >: "),
        ({"where": "b > 1"}, "--where b > 1: "),
        ({"features": ["b"]}, "--features b: "),
        ({"data": "{files},{files}/*.parquet"}, "names the file {files}/part-0.parquet twice: name it once"),
    ],
)
def test_mistakes_that_spark_finds_are_one_line(spark, files, changes, message):
    options = spec(**{"data": files, **changes})
    options = dataclasses.replace(options, data=options.data.format(files=files))

    def plan():
        DataPlan(options.data, options, sources.with_frame({}, options, sources.opened(spark, options)))

    assert message.format(files=files) in one_line(DataError, plan)


def test_json_is_refused_with_what_to_do():
    assert one_line(DataError, sources.opened, None, spec(data="hdfs:///a/b.jsonl")) == (
        "--data hdfs:///a/b.jsonl: read it into a DataFrame first: df = spark.read.json('hdfs:///a/b.jsonl'), "
        "and --data df"
    )


CSV = 'a,b c,text,y\n1,0.5,"x, ""y""",0\n2,1e3,,1\n3,-2,z,0\n'


def test_csv_files_are_rows_of_the_types_that_all_values_have(spark, tmp_path):
    (tmp_path / "1.csv").write_text(CSV)
    (tmp_path / "2.csv.gz").write_bytes(gzip.compress(b"a,b c,text,y\n4.5,1,w,1\n"))
    options = spec(data=f"file://{tmp_path}/*.csv*", where="y = 0 or a > 4", features=["a", "b c", "text"])
    source = sources.opened(spark, options)
    assert source.frame.schema.simpleString() == "struct<a:double,b c:double,text:string,y:int>"
    made = prepare(spark.sparkContext, options.data, options, sources.with_frame({}, options, source))
    assert f"--data {options.data}: text is text, so that the features are a dict of columns and no matrix" in (
        made.notices
    )
    rows = [packing.decode(blob)[1][1:] for blob in made.rdd.collect()]
    found = sorted(zip(*(np.concatenate(columns).tolist() for columns in zip(*rows, strict=True)), strict=True))
    assert found == [(1.0, 0.5, b'x, "y"', 0), (3.0, -2.0, b"z", 0), (4.5, 1.0, b"w", 1)]
    made.close()
    again = dataclasses.replace(options, where=None)
    frames = sources.with_frame({}, again, source)
    assert "column 'text': it has empty values" in refusal(spark.sparkContext, again.data, again, frames)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["1.0,2,\n2.0,3,1\n"], "{uri}: the first line has numbers, and no names of columns: read it into a DataFrame: "
         "df = spark.read.csv('{uri}', inferSchema=True, escape='\"', nullValue='NA'), and --data df"),
        (["a;b\n1;2\n"], "{uri}: its columns are not separated by commas: read it into a DataFrame: "
         "df = spark.read.csv('{uri}', header=True, inferSchema=True, escape='\"', nullValue='NA', sep=';'), "
         "and --data df"),
        ([""], "{uri} cannot be read: there is no file with columns"),
        ([], "{uri} cannot be read: "),
    ],
)  # fmt: skip
def test_csv_without_names_of_columns_is_one_line(spark, tmp_path, texts, message):
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.csv").write_text(text)
    uri = f"file://{tmp_path}/*.csv"
    assert one_line(DataError, sources.source, spark, uri).startswith("--data " + message.format(uri=uri))


def test_csv_with_line_breaks_in_quotes_or_pandas_index_is_what_pandas_reads(spark, tmp_path):
    """The rest of the text has as many commas as a row, so that nothing but the quotes tells."""
    uri = f"file://{tmp_path}/1.csv"
    for index, text in ((False, "line\n7,1,second"), (True, "one line")):
        table = pd.DataFrame({"a": [1, 2], "text": [text, 'a ""quoted"" one'], "y": [0, 1]})
        table.to_csv(tmp_path / "1.csv", index=index)
        frame = sources.source(spark, uri).frame
        assert [tuple(row) for row in frame.collect()] == list(table.itertuples(index=False, name=None))
    (tmp_path / "1.csv").write_text(',a,y\n0,"1\n",0\n')
    with pytest.raises(DataError) as caught:
        sources.source(spark, uri)
    code = str(caught.value).partition("df = ")[2].removesuffix(", and --data df")
    assert eval(code, {"spark": spark}).columns == ["a", "y"]


def test_csv_of_another_encoding_is_one_line(spark, tmp_path):
    (tmp_path / "1.csv").write_bytes("a,y\nGröße,1\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"1\.csv cannot be read: its text is no UTF-8: read it with its encoding"):
        sources.source(spark, f"file://{tmp_path}/1.csv")
    (tmp_path / "1.csv").write_bytes("a,y\n1,0\n".encode("utf-16"))
    code = one_line(DataError, sources.source, spark, f"file://{tmp_path}/1.csv").partition("df = ")[2]
    assert eval(code.removesuffix(", and --data df"), {"spark": spark}).collect() == [(1, 0)]
    (tmp_path / "1.csv").write_text("_c0,y\n\ufffd,1\n", encoding="utf-8")  # as it is stored, and a name as any other
    assert sources.source(spark, f"file://{tmp_path}/1.csv").frame.columns == ["_c0", "y"]


@pytest.mark.parametrize(
    ("marker", "table"), [("_delta_log", "delta"), (".hoodie", "hudi"), ("metadata/v1.metadata.json", "iceberg")]
)
@pytest.mark.parametrize("path", ["/day=1", "/day=1/*.parquet"])
def test_files_of_a_table_with_removed_rows_are_refused(spark, tmp_path, marker, table, path):
    (tmp_path / "t" / "day=1").mkdir(parents=True)
    pq.write_table(pa.table({"a": [1], "y": [0]}), tmp_path / "t" / "day=1" / "1.parquet")
    (tmp_path / "metadata" / "sensor.metadata.json").mkdir(parents=True)  # nobody's table
    (tmp_path / "t" / marker).mkdir(parents=True)
    with pytest.raises(DataError) as caught:
        sources.source(spark, f"file://{tmp_path}/t{path}")
    assert f"have removed rows, too: df = spark.read.format('{table}').load('file:{tmp_path}/t')" in str(caught.value)


def test_summaries_and_pandas_index_are_neither_rows_nor_features(spark, tmp_path):
    table = pa.Table.from_pandas(pd.DataFrame({"a": [1, 2, 3], "b": [0.5, 1, 2]}).query("a != 2"))
    pq.write_table(table, tmp_path / "0.parquet")
    pq.write_metadata(table.schema, tmp_path / "_common_metadata")
    options = spec(data=f"file://{tmp_path}", label=None)
    source = sources.opened(spark, options)
    assert [uri.rpartition("/")[2] for uri in source.uris()] == ["0.parquet"]
    plan = DataPlan(options.data, options, sources.with_frame({}, options, source))
    assert [column["name"] for column in plan.columns] == ["a", "b"]
    named = dataclasses.replace(options, features=["__index_level_0__"])
    assert (
        DataPlan(options.data, named, sources.with_frame({}, named, source)).columns[0]["name"] == "__index_level_0__"
    )


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (
            pa.array([np.float16(1.5)], pa.float16()),
            "this Spark does not know the type of a column, as it may be of float16: write it as float32",
        ),
        (
            pa.array([1], pa.timestamp("ns")),
            "Spark does not read times in nanoseconds: write them as df.to_parquet(FILE, ",
        ),
    ],
)
def test_a_type_that_spark_does_not_have_is_one_line(spark, tmp_path, column, message):
    pq.write_table(pa.table({"a": column, "y": [0]}), tmp_path / "0.parquet")
    said = one_line(DataError, sources.source, spark, f"file://{tmp_path}/0.parquet")
    assert message in said and "awaitResult" not in said


def test_files_that_spark_cannot_read_together_are_one_line(spark, tmp_path):
    (tmp_path / "0.parquet").touch()
    said = one_line(DataError, sources.source, spark, f"file://{tmp_path}/0.parquet")
    assert said.endswith("/0.parquet is empty (0 bytes): remove it, or write it again")
    pq.write_table(pa.table({"ID": [1], "id": [2], "y": [0]}), tmp_path / "0.parquet")
    said = one_line(DataError, sources.source, spark, f"file://{tmp_path}/0.parquet")
    assert said.endswith("as upper and lower case are: set spark.conf.set('spark.sql.caseSensitive', 'true')")
    frame = spark.range(3).selectExpr("id", "id `ID`", "id `Id2`", "id y")
    for features in (["id"], ["ID"], None):
        assert "df has columns 'id' and 'ID', which are one name for Spark: rename one, or set" in refusal(
            spark.sparkContext, "df", spec(features=features), {"df": frame}
        )
    prepare(spark.sparkContext, "df", spec(features=["Id2"]), {"df": frame}).close()
    pq.write_table(pa.table({"a": [1], "y": [0]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"a": [1.5], "y": [0]}), tmp_path / "1.parquet")
    options = spec(data=f"file://{tmp_path}")
    frames = sources.with_frame({}, options, sources.opened(spark, options))
    said = refusal(spark.sparkContext, options.data, options, frames)
    assert said.endswith(
        "Expected: bigint, Found: DOUBLE. Give the column one type in all files: write those of the other type anew"
    )


def test_a_uri_of_python_is_that_of_the_file(spark, tmp_path):
    folder = tmp_path / "größe 1"
    folder.mkdir()
    pq.write_table(pa.table({"a": [1], "y": [0]}), folder / "100%25.parquet")
    for path in (folder, folder / "100%25.parquet"):
        assert sources.source(spark, path.as_uri()).frame.count() == 1
    assert sources.source(spark, f"file://{folder}/100%25.parquet").frame.count() == 1


def test_a_missing_number_of_csv_is_missing(spark, tmp_path):
    (tmp_path / "0.csv").write_text("a,b,y\nNA,1,0\n2,,1\n")
    source = sources.source(spark, f"file://{tmp_path}/0.csv")
    assert [tuple(row) for row in source.frame.collect()] == [(None, 1, 0), (2, None, 1)]


def test_what_is_a_number_for_java_alone_is_text_as_for_pandas(spark, tmp_path):
    (tmp_path / "1.csv").write_text('size,hex,e,y\n5d,0x1p3,1e3,0\n"7.5F",2,-2.5E-1,1\n')
    rows = [tuple(row) for row in sources.source(spark, f"file://{tmp_path}/1.csv").frame.collect()]
    table = pd.read_csv(tmp_path / "1.csv")
    assert rows == list(table.itertuples(index=False, name=None)) == [("5d", "0x1p3", 1e3, 0), ("7.5F", "2", -0.25, 1)]


def test_a_missing_value_of_pandas_is_refused_with_code_to_paste(spark, tmp_path):
    (tmp_path / "1.csv").write_text("a,word,y\n1.5,null and void,0\nN/A,b,1\n")
    options = spec(data=f"file://{tmp_path}/1.csv")
    frames = sources.with_frame({}, options, sources.opened(spark, options))
    said = one_line(DataError, DataPlan, options.data, options, frames)
    assert said.startswith(f"column 'a' of {options.data} has 'N/A', a missing value for pandas: df = ")
    pasted = {"spark": spark}
    exec(said.partition("pandas: ")[2].removesuffix(", and --data df"), pasted)
    assert sorted(map(tuple, pasted["df"].select("a", "y").collect()), key=str) == [(1.5, 0), (None, 1)]
    DataPlan(options.data, dataclasses.replace(options, features=["word"]), frames)


def test_integers_of_several_sizes_are_refused(spark, tmp_path):
    """Spark would take 2000 for an int8, which is -48."""
    for number, dtype in enumerate(("int8", "int16")):
        table = pd.DataFrame({"a": np.array([100 if number == 0 else 2000], dtype), "y": [0]})
        table.to_parquet(tmp_path / f"{number}.parquet")
    said = one_line(DataError, sources.source, spark, f"file://{tmp_path}")
    assert "whole numbers of 8 or 16 bits in one file, and of another size in another one: write it with one" in said
    assert sources.source(spark, f"file://{tmp_path}/1.parquet").frame.collect() == [(2000, 0)]


def test_durations_and_periods_of_pandas_are_refused_with_code_to_paste(spark, tmp_path):
    """Parquet has whole numbers: of nanoseconds, or of months since 1970."""
    table = pd.DataFrame({"a.b": pd.to_timedelta([1, 2.5], "s"), "p": pd.period_range("1970-02", periods=2, freq="M")})
    table.assign(a=[1, 2], y=[0, 1]).to_parquet(tmp_path / "a b.parquet")
    options = spec(data=f"file://{tmp_path}/a b.parquet")
    frames = sources.with_frame({}, options, sources.opened(spark, options))
    for name, kind, values in (("a.b", "timedelta64[ns]", [1.0, 2.5]), ("p", "period[M]", [1, 2])):
        said = one_line(DataError, DataPlan, options.data, dataclasses.replace(options, features=[name]), frames)
        start = f"column '{name}' of {options.data} has pandas' {kind}, which Parquet has as whole numbers: "
        assert said.startswith(start)
        pasted = {"spark": spark}
        exec(said.removeprefix(start).removesuffix(", and --data df"), pasted)
        assert sorted(row[name] for row in pasted["df"].collect()) == values
        DataPlan("df", spec(data="df", features=[name]), pasted)
    DataPlan(options.data, dataclasses.replace(options, features=["a"]), frames)


def test_numbers_with_commas_between_thousands_are_refused_with_code_to_paste(spark, tmp_path):
    text = 'a,b,word,y\n"1,234",NA,"1,234 EUR",0\n12,"-1,234,567.5",b,1\n'
    for name in "12":
        (tmp_path / f"{name}.csv").write_text(text)
    options = spec(data=f"file://{tmp_path}/1.csv,file://{tmp_path}/2.csv")
    frames = sources.with_frame({}, options, sources.opened(spark, options))
    said = one_line(DataError, DataPlan, options.data, options, frames)
    assert said.startswith(
        f"column 'a' of {options.data} is text, as its numbers have commas between thousands (1,234)"
    )
    pasted = {"spark": spark}
    exec(said.partition("(1,234): ")[2].removesuffix(", and --data df"), pasted)
    rows = [tuple(row) for row in pasted["df"].collect()]
    assert sorted(rows, key=str) == [(12.0, -1234567.5, "b", 1)] * 2 + [(1234.0, None, "1,234 EUR", 0)] * 2
    DataPlan(options.data, dataclasses.replace(options, features=["word"]), frames)


def test_the_code_for_times_in_files_can_be_pasted(spark, tmp_path):
    pq.write_table(pa.table({"t": pa.array([1_500_000], pa.timestamp("us")), "y": [0]}), tmp_path / "0.parquet")
    options = spec(data=f"file://{tmp_path}/0.parquet")
    said = one_line(
        DataError, DataPlan, options.data, options, sources.with_frame({}, options, sources.opened(spark, options))
    )
    pasted = {"spark": spark}
    exec(said.partition("as in ")[2].partition(", and --data df")[0], pasted)
    assert pasted["df"].schema["t"].dataType.typeName() == "double"


@pytest.mark.parametrize("row", ["7,8", "7,8,1,9"])
def test_a_row_of_csv_with_another_number_of_values_is_one_line(spark, tmp_path, row):
    (tmp_path / "1.csv").write_text(f"a,b,y\n1,2,0\n{row}\n")
    options = spec(data=f"file://{tmp_path}/1.csv", features=["a", "b"])
    frames = sources.with_frame({}, options, sources.opened(spark, options))
    message = refusal(spark.sparkContext, options.data, options, frames)
    assert "1.csv cannot be computed: " in message and "malformed" in message.lower()


def test_csv_files_whose_columns_differ_are_one_line(spark, tmp_path):
    """Spark would take them by their position."""
    for number, text in enumerate(["a,y\n1,0\n", "y,a\n0,1\n"]):
        (tmp_path / f"{number}.csv").write_text(text)
    options = spec(data=f"file://{tmp_path}/*.csv", features=["a"])

    def feed():
        frames = sources.with_frame({}, options, sources.opened(spark, options))
        prepare(spark.sparkContext, options.data, options, frames)

    assert "CSV header does not conform to the schema: give all files one first line" in one_line(DataError, feed)


def test_pandas_filters_itself():
    frame = pd.DataFrame({"x": [1], "y": [2]})
    with pytest.raises(DataError, match=r"filter pandas' yourself: df = df\.query\('x > 1'\)$"):
        DataPlan(frame, spec(where="x > 1"), {})


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


def of_tensorflow(records):
    """The bytes of a TFRecord file of these records."""
    import tensorflow as tf

    with tempfile.NamedTemporaryFile() as file:
        with tf.io.TFRecordWriter(file.name) as writer:
            for record in records:
                writer.write(record)
        return file.read()


def test_checksums_are_those_of_tensorflow():
    chosen = random.Random(1)
    lengths = (0, 1, 2, 3, 4, 5, 7, 8, 150, 150, 151, 200, 255, 256, 16384, 16385, 20_000, 20_001, 30_000)
    content = of_tensorflow([chosen.randbytes(length) for length in lengths])
    spans = tfrecord.record_spans(content, "f")
    assert [end - begin for begin, end in spans.tolist()] == list(lengths)
    assert len(tfrecord.checked(content, spans, "f")) == len(lengths)
    for (begin, end), length in zip(spans.tolist(), lengths, strict=True):
        if length:
            at = chosen.randrange(begin, end)
            damaged = content[:at] + bytes([content[at] ^ 1 << chosen.randrange(8)]) + content[at + 1 :]
            with pytest.raises(ValueError, match=f"^f is damaged in the record at byte {begin - 12}: write"):
                list(tfrecord.records(damaged, "f"))


def test_a_length_that_looks_like_gzip_is_a_length():
    assert [len(record) for record in tfrecord.records(of_tensorflow([bytes(0x8B1F)]), "f")] == [0x8B1F]


def numbered(first, last):
    return [
        {"id": i, "x": [i / 2, -1.0, 1e30], "image": bytes([i % 256, 0, 0]), "y": i % 3 - 2**62, "ids": [i, -i]}
        for i in range(first, last)
    ]


def test_tfrecord_files_of_tensorflow_are_rows(spark, tmp_path):
    """Of which one has no records, in a folder whose name could be a pattern."""
    folder = tmp_path / "a[1]{2}"
    folder.mkdir()
    (folder / "0.tfrecord").touch()
    written(folder / "b.tfrecord", numbered(100, 300))
    written(folder / "a.tfrecord.gz", numbered(0, 100), "GZIP")
    frame = sources.source(spark, f"file://{tmp_path}/a*/*.tfrecord*").frame
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
        (lambda content: content + content[:12], "f is cut off in its last record"),
        (lambda content: content + b"12", "f is damaged at byte"),
        (
            lambda content: content[:40] + bytes([content[40] ^ 1]) + content[41:],
            "f is damaged in the record at",
        ),
        (lambda content: gzip.compress(content)[:-9], "f is cut off or damaged: "),
        (lambda content: of_tensorflow([b"\xff" * 99]), "a record is no tf.train.Example"),
        (lambda content: of_tensorflow([b"\x0a\x00\x12\x00"]), "a record is a SequenceExample, of which"),
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


def test_a_column_of_two_types_is_refused(tmp_path):
    content = written(tmp_path / "f", [{"id": 1}, {"id": 1.5}]).read_bytes()
    with pytest.raises(ValueError, match=r"^f: id has values of two types$"):
        tfrecord.first_columns(content, "f", 2)


def test_a_missing_value_is_none(tmp_path):
    content = written(tmp_path / "f", [{"id": 1, "x": [1.0, 2.0]}, {"id": 2}]).read_bytes()
    columns = tfrecord.first_columns(content, "f", 100)
    assert columns == {"id": (3, False), "x": (2, True)}
    assert list(tfrecord.rows(content, "f", columns)) == [(1, [1.0, 2.0]), (2, None)]
