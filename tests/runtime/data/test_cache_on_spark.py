"""The cache of --data on a real Spark: hit, partial hit and miss give the same batches, and other rows another key."""

import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import launch, paths
from support.feeds import flip_bit, spec
from support.refusals import one_line

from ddl_magics.runtime.data import cache_folder, cache_key, created_frames, feed
from ddl_magics.runtime.data.columns import DataError
from ddl_magics.runtime.data.plan import DataPlan

CELL = """
import hashlib
for batches in (dataset, dataset, validation):
    rows = [array.numpy().tobytes() for batch in batches for array in batch]
    print(len(rows), hashlib.sha256(b"".join(rows)).hexdigest())
"""


def table(spark, folder, rows=600):
    """The DataFrame of three Parquet files with the columns a, b and y."""
    folder.mkdir()
    for number, ids in enumerate(np.array_split(np.arange(rows), 3)):
        a, b = (ids % 17 / 17).astype("f4"), (ids % 5 / 5).astype("f4")
        pq.write_table(pa.table({"a": a, "b": b, "y": a * b}), folder / f"part-{number}.parquet")
    return spark.read.parquet(str(folder))


def entries(folder):
    (root,) = cache_folder.roots({}, str(folder))
    return {rank: os.path.join(root, name) for name, _, rank in cache_folder.names(root)}


@pytest.mark.timeout(240)
def test_a_hit_a_partial_hit_and_a_miss_give_the_same_batches(spark, tmp_path):
    frame, folder = table(spark, tmp_path / "table"), tmp_path / "cache"

    def run(of=frame):
        options = {"data": "df", "label": "y", "batch_size": 32, "validation": 0.2, "cache": str(folder)}
        ended = launch.finished(spark, CELL, {"df": of}, **options)
        jobs = spark.sparkContext.statusTracker().getJobIdsForGroup("ddl_magics " + ended.run)
        told = [event["message"] for event in ended.of_kind("notice") if "cache" in event["message"]]
        return ended, [ended.logs(rank) for rank in range(2)], len(jobs), told

    _, expected, jobs, told = run()
    assert len(set("".join(expected).split("\n"))) == 7, "three of each rank, all different"
    assert (told, sorted(entries(folder))) == ([], [0, 1])
    assert jobs in (2, 3), "a look into the cache and a pass over the rows; and once a session, whether it has pyarrow"
    hit, given, jobs, told = run()
    assert (given, jobs) == (expected, 1)
    assert len(told) == 1 and told[0].startswith("--data df: from the cache, made ")
    assert hit.of_kind("data")[0]["rows"] == 480

    # Of one rank it has nothing any more.
    shutil.rmtree(entries(folder)[1])
    _, given, jobs, told = run()
    assert (given, jobs) == (expected, 2)
    assert len(told) == 1 and told[0].startswith("--data df: 1 of 2 shares from the cache, made ")
    assert sorted(entries(folder)) == [0, 1]

    # What the driver believes to be there is damaged, which a worker finds.
    share = Path(entries(folder)[0], "train-0.npy")
    stored = share.read_bytes()
    flip_bit(share, -1)
    found_out, given, jobs, _ = run()
    assert (given, jobs) == (expected, 2)
    assert "dealing the rows of df: a worker's host does not have its share" in [
        event["message"] for event in found_out.of_kind("state")
    ]
    assert share.read_bytes() == stored

    # Rows that createDataFrame has made are made again, and known again.
    rows = [tuple(row) for row in frame.collect()]
    _, expected, jobs, _ = run(spark.createDataFrame(rows, frame.schema))
    assert jobs == 2
    _, given, jobs, told = run(spark.createDataFrame(rows, frame.schema))
    assert (given, jobs) == (expected, 1)
    assert len(told) == 1 and told[0].startswith("--data df: from the cache, made ")
    rows[0] = (*rows[0][:2], rows[0][2] + 1.0)
    _, given, jobs, told = run(spark.createDataFrame(rows, frame.schema))
    assert jobs == 2 and given != expected and not told


def key(frame, **changes):
    return cache_key.of_plan(DataPlan(frame, spec(**{"cache": "on", **changes}), {}))


def test_the_same_rows_have_the_same_key_and_others_another(spark, tmp_path):
    from pyspark.ml.feature import ElementwiseProduct, VectorAssembler
    from pyspark.ml.linalg import Vectors
    from pyspark.sql import functions as F

    def read():
        return spark.read.parquet(str(tmp_path / "table"))

    table(spark, tmp_path / "table")
    many = [f"id + {n} c{n}" for n in range(60)]
    assembled = VectorAssembler(inputCols=["a", "b"], outputCol="v").transform(read()).select("v", "y")
    scaled = [
        ElementwiseProduct(scalingVec=Vectors.dense(factors), inputCol="v", outputCol="s").transform(assembled)
        for factors in ([1, 2], [1, 3])
    ]
    keys = {
        "files": key(read()),
        "filtered": key(read().where("a > 0.5")),
        "filtered otherwise": key(read().where("a > 0.25")),
        "columns": key(read(), features=["a"]),
        "others": key(read(), features=["b"]),
        "their order": key(read(), features=["b", "a"]),
        "three workers": key(read(), workers=3),
        "every rank validates": key(read(), strategy="ps"),
        "validation": key(read(), validation=0.2),
        "range": key(spark.range(9).selectExpr("id", "id y")),
        "longer range": key(spark.range(10).selectExpr("id", "id y")),
        "many columns": key(spark.range(9).selectExpr("id y", *many)),
        "one differs": key(spark.range(9).selectExpr("id y", *many[:-1], "id + 7 c59")),
        "values": key(spark.sql("select * from values (1, 2), (3, 4) as t(id, y)")),
        "other values": key(spark.sql("select * from values (1, 2), (3, 5) as t(id, y)")),
        "joined": key(read().join(read().groupBy("a").agg(F.max("b").alias("m")), "a").select("m", "y")),
        "csv": key(spark.read.csv(str(tmp_path / "table"), schema="a float, y float")),
        "csv by semicolons": key(spark.read.csv(str(tmp_path / "table"), schema="a float, y float", sep=";")),
        "vectors": key(assembled),
        "scaled": key(scaled[0], features=["s"]),
        "scaled otherwise": key(scaled[1], features=["s"]),
    }
    assert len(set(keys.values())) == len(keys)
    assert keys["files"] == key(read()) == key(read(), seed=8)
    assert keys["range"] == key(spark.range(9).selectExpr("id", "id y"))
    assert keys["values"] == key(spark.sql("select * from values (1, 2), (3, 4) as t(id, y)"))
    assert keys["vectors"] == key(assembled)
    assert keys["scaled"] == key(scaled[0], features=["s"])
    written, cached = read(), set()
    for _ in range(2):
        cached.add(key(written.cache()))
        cached.add(key(written))
        written.unpersist(blocking=True)
    assert len(cached) == 2 and keys["files"] not in cached, "cached rows do not change with the files"
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    assert key(read()) != keys["files"]
    spark.conf.unset("spark.sql.session.timeZone")
    assert key(read()) == keys["files"]
    (one, *_) = sorted(path for path in (tmp_path / "table").iterdir() if path.suffix == ".parquet")
    before = one.stat()
    one.write_bytes(one.read_bytes())
    os.utime(one, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert key(read()) != keys["files"], "its size and time are the same"
    of_session = (spark.sparkContext.applicationId, ".port")
    others = [setting for setting in cache_key._settings(read()) if any(each in setting for each in of_session)]
    assert not others, "another session has the same settings"


def test_what_may_change_is_not_kept_and_the_notice_says_so(spark):
    from pyspark.sql import functions as F

    plus_one = F.udf(lambda value: value + 1, "long")
    numbers = spark.range(20).selectExpr("id", "id % 2 y")
    for frame, reason in (
        (numbers.withColumn("x", F.rand()), "rand() has another value each time"),
        (numbers.withColumn("x", F.expr("uuid()")), "uuid() has another value each time"),
        (numbers.where("current_timestamp() > '2020-01-01'"), "current_timestamp() has another value each time"),
        (numbers.where("id > (select count(*) from range(3))"), "it has a subquery in an expression"),
        (numbers.selectExpr("id", "y", "current_database() x"), "current_database() has another value each time"),
        (numbers.withColumn("x", plus_one("id")), "it calls a function of its own (PythonUDF), whose code may change"),
        (spark.sparkContext.parallelize([(1, 0), (2, 1)]).toDF(["x", "y"]), created_frames.OF_RDD),
    ):
        plan = DataPlan(frame, spec(cache="on"), {})
        assert one_line(cache_key.NotKnown, cache_key.of_plan, plan) == reason
    made = feed.prepare(spark.sparkContext, plan, "test")
    assert made.notices == [f"--data df is not kept for later runs: {reason}"]
    assert made.cache is None
    made.close()
    stream = spark.readStream.format("rate").load().selectExpr("value id", "value y")
    with pytest.raises(DataError, match="df streams, and training needs an end: write it to files, and read"):
        key(stream)


def created(spark, numbers=range(40), kind="x int, y double"):
    return spark.createDataFrame([(int(number), number / 8) for number in numbers], kind)


def test_the_rows_of_create_data_frame_are_told_by_their_content(spark):
    import pandas as pd

    numbers = pd.DataFrame({"x": np.arange(50), "y": np.arange(50) / 8})
    changed, texts = numbers.copy(), numbers.assign(x=[f"text {number}" for number in range(50)])
    changed.loc[49, "y"] += 1e-9
    frames = {
        "rows": lambda: created(spark),
        "other rows": lambda: created(spark, [*range(39), 40]),
        "their order": lambda: created(spark, reversed(range(40))),
        "one more": lambda: created(spark, range(41)),
        "another type": lambda: created(spark, kind="x long, y double"),
        "the same of pandas": lambda: spark.createDataFrame(numbers[:40]),
        "filtered": lambda: created(spark).where("x > 3"),
        "filtered otherwise": lambda: created(spark).where("x > 4"),
        "many": lambda: created(spark, range(9000)),
        "two frames": lambda: created(spark).union(created(spark, range(7))),
        "pandas": lambda: spark.createDataFrame(numbers),
        "a digit": lambda: spark.createDataFrame(changed),
        "texts": lambda: spark.createDataFrame(texts).selectExpr("length(x) x", "y"),
    }
    arrow = {
        "by Arrow": lambda: spark.createDataFrame(numbers),
        "a digit by Arrow": lambda: spark.createDataFrame(changed),
    }
    keys = {name: (key(make()), key(make())) for name, make in frames.items()}
    spark.conf.set("spark.sql.execution.arrow.pyspark.enabled", "true")
    spark.conf.set("spark.sql.execution.arrow.localRelationThreshold", "1")
    try:
        keys |= {name: (key(make()), key(make())) for name, make in arrow.items()}
        times = pd.DataFrame({"x": pd.to_datetime(["2026-10-25 02:30"]), "y": [1.0]})
        here = spark.createDataFrame(times)
        spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        elsewhere = spark.createDataFrame(times)
        keys["times"], keys["times of another zone"] = (
            (key(frame.selectExpr("hash(x) x", "y")),) for frame in (here, elsewhere)
        )
    finally:
        for name in ("execution.arrow.pyspark.enabled", "execution.arrow.localRelationThreshold", "session.timeZone"):
            spark.conf.unset(f"spark.sql.{name}")
    alike = [names for names in itertools.combinations(keys, 2) if keys[names[0]][0] == keys[names[1]][0]]
    assert alike == [("another type", "the same of pandas")], "which are the same rows"
    assert {name for name, pair in keys.items() if len(set(pair)) > 1} == set(), "the same rows, made again"
    kept = created(spark)
    assert key(kept) == key(kept) == keys["rows"][0]


def test_rows_that_only_look_like_those_of_create_data_frame_are_not_kept(spark):
    from pyspark.sql import functions as F

    sc, rows = spark.sparkContext, [(number, number / 8) for number in range(40)]
    drawn = created(spark).withColumn("y", F.rand())
    random_rows = sc.parallelize(rows).map(lambda row: (row[0], __import__("random").random()))
    of_rdds = {
        "a function of Python": spark.createDataFrame(random_rows, "x int, y double"),
        "an RDD without one": spark.createDataFrame(sc.parallelize(rows), "x int, y double"),
        "a frame's RDD": spark.createDataFrame(drawn.rdd, drawn.schema),
        "a checkpoint that comes": drawn.localCheckpoint(eager=False),
        "a checkpoint": drawn.localCheckpoint(),
        "a checkpoint of files": created(spark).localCheckpoint(eager=False),
        "samples": spark.createDataFrame(sc.parallelize(rows).sample(False, 0.5, 1), "x int, y double"),
        "other partitions": spark.createDataFrame(sc.parallelize(rows).repartition(3), "x int, y double"),
        "several": spark.createDataFrame(sc.union([sc.parallelize(rows), sc.parallelize(rows)]), "x int, y double"),
    }
    for name, frame in of_rdds.items():
        plan = DataPlan(frame, spec(cache="on"), {})
        assert one_line(cache_key.NotKnown, cache_key.of_plan, plan) == created_frames.OF_RDD, name
    plus_one = F.udf(lambda value: value + 1, "int")
    for frame, reason in (
        (drawn, "rand() has another value each time"),
        (created(spark).sample(0.5, 1), "sample() may take other rows each time"),
        (
            created(spark).withColumn("y", plus_one("x")),
            "it calls a function of its own (PythonUDF), whose code may change",
        ),
    ):
        assert one_line(cache_key.NotKnown, cache_key.of_plan, DataPlan(frame, spec(cache="on"), {})) == reason
    one, other = (created(spark).randomSplit([0.5, 0.5], seed)[0] for seed in (1, 2))
    assert key(one) != key(other), "its seed tells its rows"


#: Of a Spark with Hive, a JVM of its own: what is not kept of a table of text files, and the key of a file's rows.
HIVE = """
import sys
from pyspark.sql import SparkSession
from support import spark as sessions
from support.feeds import spec
from ddl_magics.runtime.data import cache_key
from ddl_magics.runtime.data.columns import DataError
from ddl_magics.runtime.data.plan import DataPlan
folder = sys.argv[1]
sessions.prepare_environment()
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").enableHiveSupport()
builder.config("spark.sql.warehouse.dir", folder)
builder.config("spark.driver.extraJavaOptions", "-Dderby.system.home=" + folder)
spark = builder.config("spark.hadoop.javax.jdo.option.ConnectionURL", "jdbc:derby:memory:t;create=true").getOrCreate()
spark.sql("create table t (id int, y int) stored as textfile")
try:
    cache_key.of_plan(DataPlan(spark.table("t"), spec(cache="on"), {}))
except cache_key.NotKnown as reason:
    print(reason)
print(cache_key.of_plan(DataPlan(spark.read.json(folder + "/t.json", "id int, y int"), spec(cache="on"), {})))
"""


@pytest.mark.slow
def test_a_table_of_hive_is_not_kept_and_another_session_has_the_same_key(tmp_path):
    (tmp_path / "t.json").write_text('{"id": 1, "y": 2}')

    def told():
        command = [sys.executable, "-c", HIVE, str(tmp_path)]
        done = subprocess.run(
            command, env=paths.environment(), cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
        )
        shutil.rmtree(tmp_path / "t", ignore_errors=True)
        return done.stdout.splitlines()

    reason, one = told()
    assert reason == "how it is read (HiveTableRelation) does not say whether it has changed"
    assert told() == [reason, one]
