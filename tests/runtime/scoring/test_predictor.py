"""A DataFrame with predictions: what one process predicts, for columns, models and outputs of all kinds."""

import datetime

import keras
import numpy as np
import pytest
import tensorflow as tf
from pyspark.ml.linalg import DenseVector
from pyspark.sql import functions as F
from support.spark import cached
from support.stored import trained

from ddl_magics import CannotScore, predict
from ddl_magics.runtime.data import arrow, packing
from ddl_magics.runtime.scoring import scorer
from ddl_magics.runtime.scoring.predictor import Predictor, _casts, bounded
from ddl_magics.runtime.scoring.windows import with_windows

pytestmark = pytest.mark.timeout(300)

ROWS = 2500
RANDOM = np.random.default_rng(1)
NUMBERS = RANDOM.normal(size=(ROWS, 3)).astype("float32")
PIXELS = RANDOM.integers(0, 255, size=(ROWS, 4, 2))
WORDS = np.array(["low", "high", "ärgste"])[np.arange(ROWS) % 3]
HOURS = [(city, hour) for hour in range(20) for city in "ab"]
DAY = datetime.datetime(2026, 1, 2, 3, 4, 5)


@pytest.fixture(scope="module")
def frame(spark_cluster):
    """Rows in five partitions, with an id, columns that no model takes, and a null now and then."""
    spark = spark_cluster(2)
    rows = [
        (
            i,
            *map(float, NUMBERS[i]),
            PIXELS[i].tolist(),
            str(WORDS[i]),
            DenseVector(NUMBERS[i]),
            DAY,
            float(i) if i % 9 else None,
        )
        for i in range(ROWS)
    ]
    names = ["id", "a", "b", "c", "pixels", "word", "vector", "day", "holes"]
    return cached(spark.createDataFrame(spark.sparkContext.parallelize(rows, 5), names))


@pytest.fixture(scope="module")
def line():
    """A number a row."""
    keras.utils.set_random_seed(2)
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])


def named(rows):
    return {row["id"]: row for row in rows}


def test_a_number_a_row_beside_all_columns(frame, line):
    scored = predict(frame, line, features=["a", "b", "c"], batch_size=300)
    assert scored.schema["prediction"].dataType.simpleString() == "float"
    rows = scored.collect()
    assert sorted(row["id"] for row in rows) == list(range(ROWS))
    found, kept = named(rows), named(frame.collect())
    assert all(found[i][name] == kept[i][name] for i in range(0, ROWS, 7) for name in frame.columns)
    ours = [found[i]["prediction"] for i in range(ROWS)]
    np.testing.assert_allclose(ours, line.predict(NUMBERS, verbose=0)[:, 0], rtol=1e-5, atol=1e-6)
    # Python's datetime has no such time, and one hour in autumn is two.
    seconds = 316_516_204_800
    late = frame.limit(1).withColumn("day", F.timestamp_seconds(F.lit(seconds)))
    scored = predict(late, line, features=["a", "b", "c"])
    assert scored.columns == [*frame.columns, "prediction"]
    assert scored.selectExpr("unix_seconds(day) day").collect() == [(seconds,)]


def test_several_inputs_and_outputs_of_other_shapes(frame, tmp_path):
    """From a file; the words are text within the model."""
    keras.utils.set_random_seed(3)
    image, meta, word = (
        keras.Input((4, 2), name="image"),
        keras.Input((3,), name="meta"),
        keras.Input((1,), dtype="string", name="word"),
    )
    coded = keras.layers.StringLookup(vocabulary=sorted(set(WORDS.tolist())), output_mode="one_hot")(word)
    merged = keras.layers.Concatenate()([keras.layers.Flatten()(image), meta, coded])
    outputs = {
        "grid": keras.layers.Reshape((2, 3))(keras.layers.Dense(6)(merged)),
        "sign": keras.layers.Dense(2)(merged),
    }
    model = keras.Model({"image": image, "meta": meta, "word": word}, outputs)
    model.save(tmp_path / "model.keras")
    scored = predict(frame, tmp_path / "model.keras", features=["image=pixels", "meta=vector", "word=word"], output="p")
    kinds = {name: scored.schema[name].dataType.simpleString() for name in ("p_grid", "p_sign")}
    assert kinds == {"p_grid": "array<array<float>>", "p_sign": "array<float>"}
    found = named(scored.collect())
    given = {"image": PIXELS.astype("float32"), "meta": NUMBERS, "word": tf.constant(WORDS[:, None])}
    for name, theirs in model.predict(given, verbose=0).items():
        np.testing.assert_allclose([found[i][f"p_{name}"] for i in range(ROWS)], theirs, rtol=1e-4, atol=1e-5)


def test_rows_without_a_value_have_no_prediction(frame, line):
    features = ["a", "b", "holes"]
    with pytest.raises(CannotScore, match=r"df cannot be scored: ValueError: column 'holes': it has empty values"):
        predict(frame.where("id = 0"), line, features=features)
    found = named(predict(frame, line, features=features, on_error="null").collect())
    assert {i for i in range(ROWS) if found[i]["prediction"] is None} == set(range(0, ROWS, 9))
    given = np.stack([NUMBERS[:, 0], NUMBERS[:, 1], np.arange(ROWS)], 1).astype("float32")
    theirs = line.predict(given, verbose=0)[:, 0]
    for i in (1, 8, 10, ROWS - 1):
        assert found[i]["prediction"] == pytest.approx(theirs[i], rel=1e-5)


def test_lists_of_several_lengths_are_scored_row_by_row(frame, monkeypatch):
    """A batch of Arrow has 10,000 rows, and the shape of such a list does not bound it."""
    monkeypatch.setattr(arrow, "is_everywhere", lambda sc, group: True)
    given = frame.selectExpr("id", "array(id) ids")
    options = {"output": "p", "batch_rows": 8, "on_error": "fail"}

    def takes_arrow(**column):
        described = {"name": "ids", "dtype": "<i8", "depth": 1, "vector": False, **column}
        plan = {"inputs": {"columns": [described], "shapes": [[]]}}
        return Predictor(b"", ["ids"], **options)._takes_arrow(given, plan)

    assert takes_arrow() and takes_arrow(pad=3)
    assert not takes_arrow(ragged="always") and not takes_arrow(ragged="if needed")


@pytest.mark.slow
def test_columns_of_arrow_get_what_rows_get(frame, monkeypatch):
    """Numbers, arrays and text as outputs; lists and a time beside them."""
    keras.utils.set_random_seed(5)
    numbers, image = keras.Input((3,), name="numbers"), keras.Input((4, 2), name="image")
    merged = keras.layers.Concatenate()([numbers, keras.layers.Flatten()(image)])
    sure = keras.layers.Dense(3, "softmax")(merged)
    outputs = {
        "grid": keras.layers.Reshape((2, 1))(keras.layers.Dense(2)(merged)),
        "kind": keras.ops.cast(keras.ops.argmax(sure, axis=-1), "uint8"),
        "one": keras.layers.Dense(1, dtype="float64")(merged),
    }
    model = keras.Model({"numbers": numbers, "image": image}, outputs)
    given = frame.select("id", "a", "b", "c", "pixels", "word", "day")
    options = {"features": ["numbers=a+b+c", "image=pixels"], "batch_size": 300}
    by_arrow = predict(given, model, **options)
    assert "MapInArrow" in by_arrow._jdf.queryExecution().toString()
    monkeypatch.setattr(arrow, "is_everywhere", lambda sc, group: False)
    by_rows = predict(given, model, **options)
    assert "MapInArrow" not in by_rows._jdf.queryExecution().toString()
    assert by_arrow.schema == by_rows.schema
    assert named(by_arrow.collect()) == named(by_rows.collect())


@pytest.mark.slow
def test_a_column_may_have_any_name(frame, line):
    """Also one that SQL has to quote, and one beside it that occurs twice."""
    named_so = frame.select("id", "a", "b", "c", "day", "day").toDF("id", "a.b", "b`", "c d", "day", "day")
    scored = predict(named_so, line, features=["a.b", "b`", "c d"])
    assert "MapInArrow" in scored._jdf.queryExecution().toString()
    assert scored.columns == ["id", "a.b", "b`", "c d", "day", "day", "prediction"]
    theirs = predict(frame, line, features=["a", "b", "c"]).select("id", "prediction").collect()
    assert sorted((row[0], row[-1]) for row in scored.collect()) == sorted(map(tuple, theirs))


@pytest.mark.filterwarnings("error:.*encountered in cast")
def test_a_number_outside_of_the_type_of_training_is_no_other_number():
    """A model that was trained with int32, with pandas' uint8 and with Keras' float32."""
    known = [("code", "<i4"), ("kind", "|u1"), ("size", "<f8")]
    inputs = {
        "columns": [{"name": name, "dtype": dtype, "depth": 0, "vector": False} for name, dtype in known],
        "tensors": [[0], [1], [2]],
        "uses": ["int32", "uint8", "floatx"],
        "shapes": [[], [], []],
        "features": {name: place for place, (name, _) in enumerate(known)},
    }
    numbers = {name: keras.Input((), name=name, dtype="int32") for name in ("code", "kind")}
    numbers["size"] = keras.Input((), name="size")
    total = sum(keras.ops.cast(number, "float32") for number in numbers.values())
    model = keras.Model(numbers, keras.layers.Reshape((1,))(total))
    plan = {"inputs": inputs, "indices": [0, 1, 2], "batch_rows": 9, "lenient": False}
    bad = {
        (2**32 + 3, 2, 0.5): "column 'code': it has 4294967299, which int32 does not hold: drop these rows",
        (1, -1, 0.5): "column 'kind': it has -1, which uint8 does not hold: drop these rows",
        (1, 256, 0.5): "column 'kind': it has 256, which uint8 does not hold: drop these rows",
        (1, 2, 1e39): r"column 'size': it has 1e\+39, which float32 does not hold: drop these rows",
    }

    def scored(rows, **changes):
        return list(scorer.score(rows, lambda: model, {**plan, **changes}, packing.row_arrays, 1))

    for row, message in bad.items():
        with pytest.raises(ValueError, match=message):
            scored([(1, 2, 0.5), row])
        with pytest.raises(ValueError, match=message):
            next(scorer.labelled([row], model, plan, {"label": 2, "weight": None}, packing.row_arrays))
    assert [row[-1] for row in scored([(1, 2, 0.5), *bad], lenient=True)] == [3.5, None, None, None, None]


@pytest.mark.parametrize(
    ("dtype", "trained", "casts"),
    [("<i2", "|u1", True), ("<i8", "<i4", True), ("<f8", "<i4", False), ("<i8", "|b1", False), ("S", "S", True)],
)
def test_columns_whose_values_may_be_those_of_training(dtype, trained, casts):
    """Spark's smallint is pandas' uint8: it has no unsigned numbers."""
    assert _casts(dtype, trained) == casts


def test_the_first_row_is_described_and_all_are_read(line):
    """Spark ends a Python worker that has left rows; TensorFlow and the model would be loaded again to score them."""
    columns = [{"name": name, "dtype": "f8", "depth": 0, "vector": False} for name in "abc"]
    inputs = {"columns": columns, "tensors": [[0, 1, 2]], "uses": ["floatx"], "shapes": None, "features": 0}
    plan = {"inputs": inputs, "indices": [0, 1, 2], "batch_rows": 9, "lenient": False}
    for rows, said in ([[1.0, 2.0, 3.0]] * 4, ([[3]], [("", "float32", 0)])), ([["x", "", ""]] * 4, None):
        given = iter(rows)
        (found,) = scorer.describe(given, lambda: line, plan, packing.row_arrays)
        assert not list(given) and (found == said or "a text in place of a number" in found)


def test_an_empty_batch_has_the_columns_of_others(frame, line):
    """A stream goes on where a filter leaves no row of a micro-batch."""
    empty = frame.where("id < 0")
    for rows, model, options in [
        (empty, line, {"features": ["a", "b", "c"]}),
        (frame.sparkSession.createDataFrame([], frame.schema), line, {"features": ["a", "b", "c"]}),
        (empty, line, {"features": ["vector"]}),
    ]:
        scored = predict(rows, model, **options)
        assert scored.schema == predict(frame, model, **options).schema and scored.count() == 0
    with pytest.raises(CannotScore, match="has no rows that could tell the type of a prediction"):
        predict(empty, keras.Sequential([keras.Input((None, 1)), keras.layers.LSTM(1)]), features=["vector"])


def test_large_rows_are_fewer_at_once():
    assert bounded(1024, [[784], []]) == 1024 and bounded(1024, [[224, 224, 3]]) == 26
    assert bounded(7, []) == 7 and bounded(1024, [[10**9]]) == 1


def test_what_cannot_be_scored_is_one_line(frame, line):
    for options, message in [
        ({}, r"name the columns of the model's input: features="),
        ({"features": ["a", "b", "C"]}, r"C: df has no such column; did you mean 'c'\?"),
        ({"features": ["a", "b", "c"], "output": "ID"}, r"has a column 'ID': name another with output="),
        ({"features": ["a", "b", "day"]}, r"column 'day' of df is of type timestamp: turn it into numbers"),
        ({"features": ["a", "b"]}, r"df cannot be scored: "),
        ({"features": ["a", "b", "c"], "batch_size": 0}, "batch_size must be 1 or more, not 0"),
        ({"features": ["a", "b", "c"], "on_error": "skip"}, 'on_error must be "fail" or "null"'),
    ]:
        with pytest.raises(CannotScore, match=message) as caught:
            predict(frame, line, **options)
        assert "\n" not in str(caught.value)
    with pytest.raises(CannotScore, match="a list is no Spark DataFrame"):
        predict([1], line, features=["a"])
    with pytest.raises(CannotScore, match="a int cannot score rows: give a Keras model"):
        predict(frame, 3, features=["a"])
    with pytest.raises(CannotScore, match=r"lines\.keras cannot be read \(No such file or directory\): give the path"):
        predict(frame, "lines.keras", features=["a"])


SEEN = """
import keras
keras.config.set_floatx("float64")
numbers, count = keras.Input((2,), name="numbers"), keras.Input((1,), name="count", dtype="int32")
merged = keras.layers.Concatenate()([numbers, keras.layers.Rescaling(1e-4)(count)])
outputs = {
    "numbers": keras.layers.Identity()(numbers), "count": keras.layers.Identity()(count),
    "y": keras.layers.Dense(1)(merged),
}
model = keras.Model({"numbers": numbers, "count": count}, outputs)
model.compile("sgd", {"y": "mse"})
model.fit(dataset, epochs=1, verbose=0)
"""


@pytest.mark.slow
def test_a_run_with_data_has_the_same_tensors_made_of_other_frames(spark_cluster, frame):
    """To the last bit, in Keras' dtype of the training; the columns have another order and others between them."""
    spark = spark_cluster(2)
    rows = frame.selectExpr("cast(id as int) id", "a / 3 a", "b", "c")
    data = {"data": "frame", "features": ["numbers=b+a", "count=id"], "label": "y=c", "batch_size": 250}
    run = trained(spark, SEEN, {"frame": rows}, **data)
    found = named(run.predict(frame.selectExpr("day", "a / 3 a", "id", "b"), output="p").collect())
    b_and_a = NUMBERS[:, 1::-1].astype("float64") / [1, 3]
    assert [found[i]["p_numbers"] for i in range(ROWS)] == b_and_a.tolist()
    assert [found[i]["p_count"] for i in range(ROWS)] == list(range(ROWS))
    with pytest.raises(CannotScore, match="b: df has no such column"):
        run.predict(frame.drop("b"))
    for name, other in (("b", "word"), ("b", "pixels"), ("id", "a")):  # 1.5 would be 1
        with pytest.raises(CannotScore, match=f"column '{name}' of df is of another kind than in training"):
            run.predict(frame.withColumn(name, frame[other]))


TRANSFORMED = """
import keras
def weighted(row):
    return row["numbers"] * row["factor"]
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, "tanh"), keras.layers.Dense(1)])
model.compile("sgd", "mse", metrics=["mae"])
model.fit(dataset, epochs=1, verbose=0)
"""


def test_a_run_with_transform_has_its_function_applied_again(spark_cluster, frame):
    spark = spark_cluster(2)
    rows = frame.selectExpr("a", "b", "c", "cast(id % 3 as float) factor", "a + b y")
    data = {"data": "frame", "features": ["numbers=a+b+c", "factor"], "label": "y", "transform": "weighted"}
    run = trained(spark, TRANSFORMED, {"frame": rows}, **data)

    def weighted(row):
        return row["numbers"] * row["factor"]

    model = run.model()
    given = NUMBERS * (np.arange(ROWS) % 3).astype("float32")[:, None]
    scored = frame.selectExpr("id", "a", "b", "c", "cast(id % 3 as float) factor", "a + b y")
    found = named(run.predict(scored, transform=weighted).collect())
    np.testing.assert_allclose([found[i]["prediction"] for i in range(ROWS)], model.predict(given)[:, 0], atol=1e-6)
    expected = model.evaluate(given, NUMBERS[:, 0] + NUMBERS[:, 1], verbose=0, return_dict=True)
    np.testing.assert_allclose(run.evaluate(scored, transform=weighted)["mae"], expected["mae"], rtol=1e-5)
    with pytest.raises(CannotScore, match="was trained with --transform weighted: give the function"):
        run.predict(scored)
    with pytest.raises(CannotScore, match="a function that a pipeline cannot save"):
        run.transformer()


WINDOWS = """
import keras
keras.config.set_floatx("float64")
given = keras.Input((4, 2))
outputs = {"seen": keras.layers.Identity()(given), "y": keras.layers.Dense(1)(keras.layers.Flatten()(given))}
model = keras.Model(given, outputs)
model.compile("sgd", {"y": "mse"})
model.fit(dataset, epochs=1, verbose=0)
"""


@pytest.mark.slow
def test_a_run_of_windows_has_the_same_windows_made_of_other_frames(spark_cluster):
    """Each row gets the rows of its series before it; the order of the rows does not matter."""
    spark = spark_cluster(2)
    rows = [(city, hour, float(NUMBERS[place, 0]) / 3, place) for place, (city, hour) in enumerate(HOURS)]
    hours = spark.createDataFrame(rows, ["city", "hour", "load", "wind"]).repartition(3)
    windows = {"sequence_length": 4, "order_by": "hour", "group_by": ["city"], "horizon": 1, "sequence_stride": 1}
    data = {"data": "hours", "features": ["load", "wind"], "label": "y=load", "batch_size": 8, **windows}
    run = trained(spark, WINDOWS, {"hours": hours}, **data)
    scored = run.predict(hours, output="p")
    assert scored.columns == ["city", "hour", "load", "wind", "p_seen", "p_y"]
    found = {(row["city"], row["hour"]): row["p_seen"] for row in scored.collect()}
    series = {city: sorted((row for row in rows if row[0] == city), key=lambda row: row[1]) for city in "ab"}
    expected = {
        (city, ordered[last][1]): [[row[2], float(row[3])] for row in ordered[last - 3 : last + 1]]
        for city, ordered in series.items()
        for last in range(3, len(ordered))
    }
    assert found == expected
    with pytest.raises(CannotScore, match="--order-by hour: df has no such column"):
        run.predict(hours.drop("hour"))


def test_windows_have_an_order_and_all_values(spark_cluster):
    """Two rows of one hour have none, as in training; with on_error="null", their windows are null."""
    rows = [(city, hour, float(hour) if (city, hour) != ("a", 15) else None) for city, hour in HOURS]
    hours = spark_cluster(2).createDataFrame([*rows, ("b", 9, 1.0)], ["city", "hour", "load"])
    column = {"name": "load", "dtype": "f8", "depth": 0, "vector": False}
    window = {"length": 4, "order_by": "hour", "group_by": ["city"]}
    known = {"columns": [column], "tensors": [[0]], "uses": ["floatx"], "shapes": [[]], "features": 0, "window": window}
    made, inputs, (name,) = with_windows(hours, "df", known, lenient=True)
    assert [column["name"] for column in inputs["columns"]] == ["load"], "for messages"
    left = {(row["city"], row["hour"]) for row in made.where(f"{name} is null").collect()}
    assert left == {("a", hour) for hour in range(15, 19)} | {("b", hour) for hour in range(9, 13)}
    with pytest.raises(Exception, match="column 'hour': rows of a series have the same value or none"):
        with_windows(hours, "df", known, lenient=False)[0].collect()


def test_a_row_without_a_value_fails(frame, line):
    """Spark ends the Python workers of a task that fails: the last of these tests."""
    with pytest.raises(Exception, match="column 'holes': it has empty values"):
        predict(frame.where("id in (8, 9)").coalesce(1), line, features=["a", "b", "holes"]).collect()
