"""--data of files that the ranks read themselves: the same rows at the same places as through Spark."""

import json
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.ml.linalg import Vectors
from support import launch
from support.feeds import LOGGED, batches, open_rank, spec
from support.refusals import one_line

from ddl_magics.runtime.data import (
    conditions,
    feed,
    file_feed,
    file_share,
    file_systems,
    packing,
    parquet,
    share_files,
    sources,
)
from ddl_magics.runtime.data.columns import DataError, describe
from ddl_magics.runtime.data.plan import DataPlan

ROWS = 2500


def table(first, last):
    numbers = np.arange(first, last)
    return pa.table(
        {
            "i": pa.array(numbers, pa.int32()),
            "x": pa.array(numbers / 7, pa.float32()),
            "z": pa.array(np.sqrt(numbers), pa.float64()),
            "b": pa.array(numbers % 3 == 0),
            "u": pa.array(numbers % 200, pa.uint8()),
            "s": pa.array([f"text {n}" * (n % 3) for n in numbers]),
            "a": pa.array([[n, -n, 0.5] for n in numbers], pa.list_(pa.float32())),
            "y": pa.array(numbers % 5, pa.int64()),
        }
    )


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A file of several row groups."""
    path = tmp_path_factory.mktemp("files") / "table.parquet"
    pq.write_table(table(0, ROWS), path, row_group_size=700)
    return f"file://{path}"


def prepared(spark, options):
    """The plan, and what is made of it where ranks can read the files."""
    source = sources.opened(spark, options)
    plan = DataPlan(options.data, options, sources.with_frame({}, options, source))
    return plan, file_feed.prepare(spark.sparkContext, plan, "test", file_feed.listed(source, options, plan))


def fed(spark, options):
    """(manifest of the ranks that read files, feed through Spark)."""
    sc = spark.sparkContext
    plan, made = prepared(spark, options)
    return made, feed.prepare(sc, plan, "test")


def stored(spark, folder, options):
    """The shares that ranks read themselves, and those that Spark deals: (manifest, their folders by rank) of each."""
    own, dealt = fed(spark, options)
    hint = f"--data {options.data}: s is text, so that the features are a dict of columns and no matrix"
    assert own.manifest["files"] and own.notices == [hint] * ("s" in (options.features or ()))
    if own.manifest["files"]["format"] == "tfrecord":
        for tensor in [*own.manifest["tensors"], *dealt.manifest["tensors"]]:
            tensor["text_bytes"] = 0  # the index has an upper bound of it
    assert {**own.manifest, "files": None} == dealt.manifest
    assert own.inputs == dealt.inputs
    found = []
    for way, made in (("own", own), ("dealt", dealt)):
        manifest = json.loads(json.dumps(made.manifest))
        folders = [str(folder / way / str(rank)) for rank in range(manifest["size"])]
        blobs = dealt.rdd.glom().collect() if made is dealt else [()] * len(folders)
        for rank, (place, mine) in enumerate(zip(folders, blobs, strict=True)):
            if made is dealt:
                share_files.store(mine, place, manifest, rank)
            else:
                read_own(place, manifest, rank)
        found.append((manifest, folders))
    dealt.close()
    return found


def read_own(place, manifest, rank):
    """In this process, where a run has another one for Parquet. Returns the notices."""
    if manifest["files"]["format"] == "tfrecord":
        return file_share.finish(None, manifest, place, rank, lambda: False, lambda rows, seconds: None)
    share = file_share.FileShare(manifest, rank)
    share_files.store_blocks(share.blocks(), place, manifest, rank)
    return share.notices


def assert_equal(own, dealt, batch_size=64, strategy="allreduce"):
    for rank in range(len(own[1])):
        pairs = zip(
            open_rank(*own, rank, batch_size, strategy), open_rank(*dealt, rank, batch_size, strategy), strict=True
        )
        for one, other in pairs:
            if one is None or other is None:
                assert one is other
                continue
            for mine, expected in zip(batches(one), batches(other), strict=True):
                assert_same(mine, expected)


def assert_same(one, other):
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        one, other = tuple(one.values()), tuple(other.values())
    if isinstance(one, tuple):
        assert len(one) == len(other)
        for mine, expected in zip(one, other, strict=True):
            assert_same(mine, expected)
        return
    assert one.dtype == other.dtype
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "changes",
    [
        {"workers": 2, "features": ["x", "s", "a", "b"], "validation": 0.2, "weight": "z"},
        {"workers": 4, "features": ["i", "x", "z", "u"], "validation": 0.1, "strategy": "ps"},
        {"workers": 2, "features": ["a"], "where": "i >= 650 and x < 300.5 and s != 'text 8text 8'"},
    ],
)
def test_a_rank_reads_what_spark_deals_it(spark, written, tmp_path, changes):
    own, dealt = stored(spark, tmp_path, spec(data=written, **changes))
    assert_equal(own, dealt, strategy=changes.get("strategy", "allreduce"))


def test_vectors_of_spark_are_read(spark, tmp_path):
    rows = [(Vectors.dense(n, 1.0) if n % 2 else Vectors.sparse(2, [1], [n + 0.5]), n % 2) for n in range(300)]
    spark.createDataFrame(rows, ["v", "y"]).coalesce(1).write.parquet(f"{tmp_path}/vectors.parquet")
    own, dealt = stored(spark, tmp_path, spec(data=f"file://{tmp_path}/vectors.parquet"))
    assert_equal(own, dealt)


CELL = """
import keras
keras.backend.set_floatx("float64")
model = keras.Sequential([keras.Input([3]), keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(1e-3), "mse")
model.fit(dataset, epochs=2, verbose=0)
"""


@pytest.mark.slow
def test_training_is_that_of_one_process(spark_cluster, tmp_path):
    trained = {}
    spark = spark_cluster(4)
    for number, first in enumerate(range(0, ROWS, 1000)):
        pq.write_table(table(first, min(first + 1000, ROWS)), tmp_path / f"part-{number}.parquet")
    options = {"data": f"file://{tmp_path}/*.parquet", "features": ["i", "x", "u"], "label": "y", "batch_size": 96}
    for workers in (1, 2, 4):
        ended = launch.finished(spark, CELL, workers=workers, **options)
        trained[workers] = launch.weights(ended.run)
    for workers in (2, 4):
        for one, other in zip(trained[1], trained[workers], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_a_run_reads_files_without_a_pass_of_spark(spark, tmp_path):
    """Of a folder and a file, whose names have signs."""
    os.makedirs(tmp_path / "more ,%41 rows")
    first, second = tmp_path / "more ,%41 rows", tmp_path / "rest.parquet"
    pq.write_table(table(0, 300), first / "a.parquet")
    pq.write_table(table(300, 301), first / "b.parquet")
    pq.write_table(table(301, 500), second)
    options = {"data": f"file://{tmp_path}/more*,file://{second}", "where": "i >= 100", "features": ["z"], "label": "y"}
    ended = launch.finished(spark, LOGGED, workers=2, batch_size=64, **options)
    np.testing.assert_allclose(sorted(ended.logged("row")), np.sqrt(np.arange(100, 500)), rtol=1e-6)
    assert not [e for e in ended.of_kind("notice") if "Spark" in e["message"]]


def holed(name, value, at=400):
    return lambda made: made.set_column(
        made.schema.get_field_index(name),
        name,
        pa.array(
            [value if n == at else each for n, each in enumerate(made[name].to_pylist())], made.schema.field(name).type
        ),
    )


@pytest.fixture(scope="module")
def described(spark_cluster, tmp_path_factory):
    """`described(rows)`: the manifest for one rank that reads these rows from a file, and the file."""
    path = tmp_path_factory.mktemp("described") / "t.parquet"
    pq.write_table(table(0, 500), path)
    options = spec(data=f"file://{path}", features=["x", "z", "b", "s", "a"], workers=1)
    _, made = prepared(spark_cluster(2), options)
    manifest = made.manifest

    def described(rows):
        pq.write_table(rows, path)
        columns = manifest["files"]["columns"]
        files = parquet.index([(0, f"file://{path}")], columns, [], file_systems.located)["files"]
        return {**manifest, "files": {**manifest["files"], "files": files}}, path

    return described


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (holed("x", None), "column 'x': it has empty values (null): fill them or drop their rows first"),
        (holed("b", None), "column 'b': it has empty values (null): fill them or drop their rows first"),
        (holed("s", None), "column 's': it has empty values (null): fill them or drop their rows first"),
        (
            holed("z", 1e39),
            "column 'z': it has a number beyond 3.4e38, infinite as float32: call keras.backend.set_floatx("
            "'float64') in a cell before this one",
        ),
        (
            holed("a", [1.0]),
            "column 'a': its lengths differ (1 and 3): pad or cut them to one length, as --pad a=LENGTH does",
        ),
        (holed("a", [1.0, None, 2.0]), "column 'a': it has empty values (null): fill them or drop their rows first"),
    ],
)
def test_rows_that_cannot_be_read_have_the_same_line_as_through_spark(described, tmp_path, change, message):
    manifest, path = described(change(table(0, 500)))
    assert one_line(DataError, read_own, str(tmp_path / "0"), manifest, 0) == f"file://{path}, {message}"


CHANGED = r"t\.parquet has changed since the run began, or is another one on this host$"


def test_a_file_that_changes_meanwhile_is_named(described, tmp_path, monkeypatch):
    manifest, path = described(table(0, 500))
    locate, looks = file_systems.located, []

    def change_at_the_second_look(uri):
        looks.append(uri)
        if len(looks) == 2:
            os.utime(path)
        return locate(uri)

    monkeypatch.setattr(file_systems, "located", change_at_the_second_look)
    with pytest.raises(DataError, match=CHANGED):
        read_own(str(tmp_path / "0"), manifest, 0)
    assert len(looks) == 2, "before it is read and after"
    pq.write_table(table(1, 501), path)
    with pytest.raises(DataError, match=CHANGED):
        read_own(str(tmp_path / "1"), manifest, 0)


@pytest.mark.parametrize("manifest", [None, {"files": None}, {"rows": 3}, {"files": {"format": "csv"}}])
def test_only_parquet_files_are_read_by_another_process(manifest, tmp_path):
    assert file_share.begin(manifest, str(tmp_path), 0, 1) is None


def test_what_has_been_read_is_reported(described, tmp_path, monkeypatch):
    """Each second; here at once. The process that reads a share says its rows."""
    monkeypatch.setattr(file_share, "REPORT_SECONDS", 0.0)
    manifest, _ = described(table(0, 500))
    reported = []
    reading = file_share.Reading(manifest, str(tmp_path), 0, 1)
    assert reading.wait(lambda: False, lambda rows, seconds: reported.append((rows, seconds))) == []
    rows, seconds = zip(*reported, strict=True)
    assert list(rows) == sorted(rows) and rows[-1] == 500 and list(seconds) == sorted(seconds) and seconds[0] > 0


def test_the_process_that_reads_a_share_says_why_it_cannot(described, tmp_path):
    manifest, path = described(holed("x", None)(table(0, 500)))
    reading = file_share.Reading(manifest, str(tmp_path), 0, 1)
    message = one_line(DataError, reading.wait, lambda: False, lambda rows, seconds: None)
    assert message == f"file://{path}, column 'x': it has empty values (null): fill them or drop their rows first"


def test_numbers_are_read_without_pandas(spark, written, tmp_path):
    """Its import would take as long as the start of the process that reads them."""
    _, made = prepared(spark, spec(data=written, features=["i", "x", "z", "u", "a"], workers=1))
    (tmp_path / "manifest.json").write_text(json.dumps(made.manifest))
    command = [sys.executable, "-X", "importtime", "-m", file_share.__name__, "manifest.json", "share", "0"]
    read = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(read.stdout.splitlines()[-1])["rows"] == ROWS
    assert "pyarrow" in read.stderr and "pandas" not in read.stderr


def test_nan_has_a_notice(described, tmp_path):
    manifest, path = described(holed("x", float("nan"))(table(0, 500)))
    (notice,) = read_own(str(tmp_path / "0"), manifest, 0)
    assert notice == (
        f"--data file://{path}: column 'x' holds NaN, and so will the loss: fill these rows, or leave them out"
    )


def test_a_column_of_folders_is_theirs_whatever_the_files_have(spark, tmp_path):
    """As Spark has it."""
    (tmp_path / "t" / "y=5").mkdir(parents=True)
    pq.write_table(pa.table({"x": [1.0, 2.0], "y": pa.array([0, 0], pa.int32())}), tmp_path / "t" / "y=5" / "a.parquet")
    data = f"file://{tmp_path}/t"
    _, made = prepared(spark, spec(data=data, features=["x"]))
    assert made.notices == [f"--data {data}: its rows go through Spark, as folders are named after column 'y'"]
    assert [packing.decode(blob)[1][2].tolist() for blob in made.rdd.collect()] == [[5], [5]]
    made.close()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"where": "i + 1 > 5"}, "--where is more than comparisons that `and` joins, or not of Parquet files"),
        ({"workers": 17}, "each worker would read all files, and there are more than 16"),
    ],
)
def test_what_goes_through_spark_is_said(spark, written, changes, reason):
    _, made = prepared(spark, spec(data=written, features=["x"], **changes))
    assert made.manifest["files"] is None
    assert made.notices == [f"--data {written}: its rows go through Spark, as {reason}"]
    made.close()


@pytest.mark.parametrize(
    ("kind", "column", "reason"),
    [
        (pa.decimal128(9, 2), {"dtype": "f8"}, "column 'x' is of type decimal128(9, 2)"),
        (pa.list_(pa.int32()), {"dtype": "i4"}, "column 'x' is of type list<"),
        (pa.string(), {"dtype": "i4", "name": "q"}, "column 'q' is not in every file, or is the name of folders"),
    ],
)
def test_columns_that_spark_reads_in_another_way_are_left_to_it(kind, column, reason):
    described = {"name": "x", "depth": 0, "vector": False, **column}
    assert parquet.unfitting(pa.schema([("x", kind)]), [described], []).startswith(reason)


def test_an_executor_without_pyarrow_says_so(monkeypatch, written):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    found = parquet.index([(0, written)], [], [], file_systems.located)
    assert found == {"problem": "the executors' Python has no pyarrow"}


def test_a_file_that_is_not_there_is_a_reason():
    assert file_systems.problem("file:///nowhere/t.parquet", 5.0).startswith(
        "the executors cannot read file:///nowhere/t.parquet ([Errno 2] No such file"
    )


CONDITIONS = [
    "f > 1.5",
    "f >= 0 and f <> 2",
    "f = 0.1",
    "d != 1e300",
    "d <= -0.0",
    "d > 9007199254740993.0",
    "i >= -1 AND `i`<3",
    "l = 9223372036854775807",
    "l > 3000000000",
    "s = 'b'",
    "s != 'b' and i > 0",
    "i < 300",
]


def test_simple_conditions_mean_what_they_mean_to_spark(spark, tmp_path):
    nan, most = float("nan"), 2**63 - 1
    made = pa.table(
        {
            "f": pa.array([0.1, None, nan, 2.0, -1.0, float("inf"), 0.0], pa.float32()),
            "d": pa.array([-0.0, nan, 1e300, None, 9007199254740994.0, float("-inf"), 0.5], pa.float64()),
            "i": pa.array([-1, 0, 1, 2, None, 127, -128], pa.int8()),
            "l": pa.array([most, most - 1, None, 3_000_000_001, 0, -1, -most], pa.int64()),
            "s": pa.array(["a", "b", None, "", "b ", "B", "b"]),
            "n": pa.array(range(7), pa.int32()),
        }
    )
    pq.write_table(made, tmp_path / "t.parquet")
    frame = spark.read.parquet(f"file://{tmp_path}/t.parquet")
    columns = {name: describe("df", frame, name) for name in frame.columns}
    file, _ = parquet.opened(f"file://{tmp_path}/t.parquet", file_systems.located)
    for text in CONDITIONS:
        read = conditions.read(text, columns)
        assert read is not None, text
        own = [n for batch in parquet.batches(file, 0, [columns["n"]], read) for n in batch.to_pydict()["n"]]
        assert own == [row["n"] for row in frame.where(text).select("n").collect()], text


@pytest.mark.parametrize(
    "text",
    [
        "i > 1 or i < 0",
        "not i > 1",
        "i in (1, 2)",
        "i between 1 and 2",
        "i > 1.5",
        "i > 5L",
        "f = 16777217",
        "s > 'a'",
        "s = 'it''s'",
        's = "b"',
        "s = 1",
        "I > 1",
        "1 < i",
        "i + 1 > 2",
        "i > 1 and",
        "upper(s) = 'B'",
        "i is null",
        "a = 1",
    ],
)
def test_other_conditions_are_left_to_spark(text):
    kinds = {"f": "f4", "i": "i4", "s": "S"}
    columns = {name: {"name": name, "dtype": dtype, "depth": 0, "vector": False} for name, dtype in kinds.items()}
    columns["a"] = {"name": "a", "dtype": "i4", "depth": 1, "vector": False}
    assert conditions.read(text, columns) is None


def test_a_list_of_files_has_one_format():
    assert sources.paths("file:///a,b.parquet,/c.parquet,s3a://d/e") == [
        "file:///a,b.parquet",
        "/c.parquet",
        "s3a://d/e",
    ]
    with pytest.raises(DataError, match=r"one format, and not be parquet \(/a\.parquet\) and orc \(/b\.orc\)$"):
        sources.format_of("/a.parquet,/b.orc")
