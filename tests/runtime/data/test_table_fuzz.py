"""Tables by chance, as other tools write them: a dataset has the rows of pandas, or a column is refused by name."""

import decimal
import json
import random

import duckdb
import keras
import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.feeds import LocalSpark, batches, open_rank, spec

from ddl_magics.runtime.data import feed, file_feed, file_share, share_files, sources
from ddl_magics.runtime.data.columns import DataError
from ddl_magics.runtime.data.plan import DataPlan

TABLES, DAILY = 200, 12

WORDS = ["red", "grün", "日本", "a, b", 'a "quoted" word', "two\nlines", "", "😀", "NA", "1,234"]


def _gaps(values, draw):
    holes = draw.uniform(size=len(values)) < 0.2
    holes[draw.integers(len(values))] = True
    return [None if hole else value for value, hole in zip(values, holes, strict=True)]


#: Kind of column -> (values of pandas for a number of rows, whether the table is to be refused for it).
KINDS = {
    "int8": (lambda n, draw: pd.Series(draw.integers(-128, 128, n), dtype="int8"), False),
    "int64": (lambda n, draw: pd.Series(draw.integers(-(2**31), 2**31, n)), False),
    "uint8": (lambda n, draw: pd.Series(draw.integers(0, 256, n), dtype="uint8"), False),
    "uint32": (lambda n, draw: pd.Series(draw.integers(0, 2**32, n), dtype="uint32"), False),
    "float32": (lambda n, draw: pd.Series(draw.normal(size=n), dtype="float32"), False),
    "float64": (lambda n, draw: pd.Series(draw.normal(size=n) * 1e3), False),
    "bool": (lambda n, draw: pd.Series(draw.uniform(size=n) > 0.5), False),
    "text": (lambda n, draw: pd.Series([WORDS[i] for i in draw.integers(0, 4, n)]), False),
    "odd text": (lambda n, draw: pd.Series([f"{WORDS[i]}." for i in draw.integers(0, len(WORDS), n)]), False),
    "array": (lambda n, draw: pd.Series(list(draw.normal(size=(n, 3)))), False),
    "Int64": (lambda n, draw: pd.Series(draw.integers(0, 9, n)).astype("Int64"), False),
    "boolean": (lambda n, draw: pd.Series(draw.uniform(size=n) > 0.5).astype("boolean"), False),
    "decimal": (lambda n, draw: pd.Series([decimal.Decimal(int(v)) / 100 for v in draw.integers(0, 999, n)]), False),
    "float with gaps": (lambda n, draw: pd.Series(_gaps(draw.normal(size=n), draw), dtype="float64"), False),
    "Int64 with gaps": (lambda n, draw: pd.Series(_gaps(draw.integers(0, 9, n), draw), dtype="Int64"), True),
    "boolean with gaps": (lambda n, draw: pd.Series(_gaps(draw.uniform(size=n) > 0.5, draw), dtype="boolean"), True),
    "objects with gaps": (lambda n, draw: pd.Series(_gaps([True] * n, draw), dtype=object), True),
    "text with gaps": (lambda n, draw: pd.Series(_gaps(["red"] * n, draw), dtype=object), True),
    "date": (
        lambda n, draw: pd.Series(pd.Timestamp("2026-01-31") + pd.to_timedelta(draw.integers(0, 9, n), "D")),
        True,
    ),
}
#: What a comma-separated file has no form for, or none that says what it was.
NOT_IN_CSV = ("array", "decimal", "odd text", "date", "objects with gaps", "text with gaps")
NOT_IN_CSV += ("Int64 with gaps", "boolean with gaps", "float with gaps")
#: (kind, way): a line may refuse it, as files have null where pandas has NaN, and pandas has Python's own decimals.
MAY_BE_REFUSED = [
    ("decimal", "pandas"),
    *[("float with gaps", way) for way in ("spark", "pandas' file", "arrow's file", "polars' file")],
]
NOT_IN_POLARS = ("objects with gaps",)
NAMES = ["b", "größe", "x y", "a.b", "per cent %", "m²", "Z"]
WAYS = ("pandas", "spark", "pandas' file", "arrow's file", "duckdb's file", "polars' file", "csv")


def table(number):
    """(frame, way, whether it is to be refused) of a table."""
    chance, draw = random.Random(number), np.random.default_rng(number)
    way = chance.choice(WAYS)
    kinds = [kind for kind in KINDS if not (way == "csv" and kind in NOT_IN_CSV)]
    kinds = [kind for kind in kinds if not (way in ("polars' file", "duckdb's file") and kind in NOT_IN_POLARS)]
    rows = chance.randint(12, 60)
    columns = {"id": pd.Series(np.arange(rows))}
    names = chance.sample(NAMES, chance.randint(1, 4))
    chosen = [chance.choice(kinds) for _ in names]
    if chance.random() < 0.7:  # most are to be read
        chosen = [kind if not KINDS[kind][1] else "float64" for kind in chosen]
    for name, kind in zip(names, chosen, strict=True):
        columns[name] = KINDS[kind][0](rows, draw)
    columns["y"] = pd.Series(draw.integers(0, 2, rows))
    return pd.DataFrame(columns), way, chosen


def written(frame, way, folder, spark):
    """(--data, the frame of the namespace) of a table, as a tool leaves it."""
    path = folder / "table.parquet"
    if way == "pandas":
        return "df", frame
    if way == "spark":
        return "df", spark.createDataFrame(pa_rows(frame), pa_schema(frame))
    if way == "csv":
        frame.to_csv(folder / "table.csv", index=False)
        return f"file://{folder}/table.csv", None
    if way == "pandas' file":
        frame.to_parquet(path, coerce_timestamps="us")
    elif way == "arrow's file":
        pq.write_table(pa.Table.from_pandas(frame), path, row_group_size=7, compression="zstd", coerce_timestamps="us")
    elif way == "polars' file":
        polars.from_pandas(frame).write_parquet(path)
    else:
        duckdb.connect().execute(f"COPY (SELECT * FROM frame) TO '{path}' (FORMAT parquet)")
    return f"file://{path}", None


def pa_rows(frame):
    """Of Python's own values, as `createDataFrame` takes them: of nanoseconds, pyarrow would make pandas' Timestamp."""
    rows = pa.Table.from_pandas(frame, preserve_index=False)
    return rows.cast(pa.schema(map(_micros, rows.schema))).to_pylist()


def pa_schema(frame):
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = pa.Table.from_pandas(frame, preserve_index=False).schema
    signed = {pa.uint8(): pa.int16(), pa.uint32(): pa.int64()}
    fields = [field.with_type(signed.get(field.type, field.type)) for field in schema]
    return from_arrow_schema(pa.schema([_micros(field) for field in fields]))


def _micros(field):
    return field.with_type(pa.timestamp("us")) if pa.types.is_timestamp(field.type) else field


def dataset(frame, way, folder, spark):
    """The batches of two ranks, of float64."""
    uri, own = written(frame, way, folder, spark)
    options = spec(data=uri, label="y", features=[name for name in frame if name != "y"], workers=2)
    if way == "pandas":
        made, sc = None, LocalSpark()
        plan = DataPlan(uri, options, {"df": own})
    elif way == "spark":
        made, sc = None, spark.sparkContext
        plan = DataPlan(uri, options, {"df": own})
    else:
        sc, source = spark.sparkContext, sources.opened(spark, options)
        plan = DataPlan(uri, options, sources.with_frame({}, options, source))
        made = file_feed.prepare(sc, plan, "test", file_feed.listed(source, options, plan))
    dealt = None if made is not None and made.manifest["files"] else feed.prepare(sc, plan, "test")
    manifest = json.loads(json.dumps({**(dealt or made).manifest, "floatx": "float64"}))
    blobs = dealt.rdd.glom().collect() if dealt else [()] * 2
    for rank in range(2):
        place = str(folder / str(rank))
        if dealt:
            share_files.store(blobs[rank], place, manifest, rank)
        else:
            share_files.store_blocks(file_share.FileShare(manifest, rank).blocks(), place, manifest, rank)
    return [
        batch
        for rank in range(2)
        for batch in batches(open_rank(manifest, [str(folder / "0"), str(folder / "1")], rank, 8)[0])
    ]


def columns_of(dataset_batches, names):
    """{column: values in the order of id}."""
    features = [batch[0] for batch in dataset_batches]
    if isinstance(features[0], dict):
        columns = {name: np.concatenate([batch[name] for batch in features]) for name in names}
    else:
        matrix = np.concatenate(features)
        columns, first = {}, 0
        for name in names:
            columns[name], first = matrix[:, first], first + 1
    columns["y"] = np.concatenate([batch[1] for batch in dataset_batches])
    order = np.argsort(columns["id"].ravel())
    return {name: values[order] for name, values in columns.items()}


def expected(series):
    first = series.dropna().iloc[0]
    if isinstance(first, str):
        return np.array([value.encode() for value in series], object)
    return np.array([np.asarray(value, "float64") for value in series.astype(object).where(series.notna(), np.nan)])


def check(numbers, spark, tmp_path):
    floatx, counts, failed = keras.config.floatx(), {"equal": 0, "refused": 0}, []
    keras.config.set_floatx("float64")
    try:
        for number in numbers:
            frame, way, kinds = table(number)
            kind_of = dict(zip(frame.columns[1:], kinds, strict=False))
            refusable = [name for name, kind in kind_of.items() if KINDS[kind][1]]
            may_be = [name for name, kind in kind_of.items() if (kind, way) in MAY_BE_REFUSED]
            folder = tmp_path / str(number)
            folder.mkdir()
            words = f"{number} {way} {kind_of}"
            try:
                rows = columns_of(dataset(frame, way, folder, spark), [name for name in frame if name != "y"])
            except DataError as error:
                counts["refused"] += 1
                is_named = any(name in str(error) for name in refusable + may_be)
                is_named = is_named or ("date" in kind_of.values() and "times in nanoseconds" in str(error))
                if "\n" in str(error) or not is_named:
                    failed.append(f"{words}: {error}")
                continue
            counts["equal"] += 1
            if way == "csv":
                frame = pd.read_csv(folder / "table.csv", float_precision="round_trip")
            failed += [f"{words}: {name} should be refused" for name in refusable]
            for name in () if refusable else frame:
                ours, theirs = rows[name], expected(frame[name])
                ours = ours if ours.dtype == object else ours.astype("float64")
                if not np.array_equal(ours.reshape(theirs.shape), theirs, equal_nan=ours.dtype != object):
                    failed.append(f"{words}: {name} differs: {ours[:3]} for {theirs[:3]}")
    finally:
        keras.config.set_floatx(floatx)
    print(counts)
    assert not failed, "\n".join(failed)
    assert counts["equal"] > 0.5 * len(numbers)


@pytest.mark.timeout(240)
def test_tables(spark, tmp_path):
    check(range(DAILY), spark, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_200_tables(spark, tmp_path):
    check(range(DAILY, DAILY + TABLES), spark, tmp_path)
