"""--sequence-length: the windows of Keras' own timeseries_dataset_from_array, none lost, twice or across two series."""

import numpy as np
import pandas as pd
import pytest
from support import comparison, launch
from support.feeds import LocalSpark, batches, open_rank, refusal, shares, spec

from ddl_magics.runtime.data import rank_data, reader, row_order
from ddl_magics.runtime.data.columns import DataError
from ddl_magics.runtime.data.sequences import SequencePlan

WINDOWS = {"features": ["x", "y"], "label": "y", "sequence_length": 6, "order_by": "time", "group_by": ["city"]}


def series(city, rows, start="2012-01-01"):
    """Rows of an hour each: x, which tells the row from all others, and y = 2 x."""
    values = np.arange(rows) + {"Berlin": 0, "Rome": 100_000, "Oslo": 200_000}[city]
    times = pd.date_range(start, periods=rows, freq="h")
    return pd.DataFrame({"city": city, "time": times, "x": values, "y": 2 * values})


def table(*parts):
    """The rows of some series in an order at random, in blobs of which none has a whole series."""
    return pd.concat(parts).sample(frac=1, random_state=1).reset_index(drop=True)


@pytest.fixture
def local(monkeypatch):
    monkeypatch.setattr("ddl_magics.runtime.data.packing.BLOB_ROWS", 77)
    return LocalSpark()


def keras_windows(part, length, horizon, stride):
    """[(features, label)] of a series, as Keras cuts it."""
    import tensorflow as tf

    rows = part[["x", "y"]].to_numpy(np.float32)
    data = rows[: len(rows) - horizon] if horizon else rows
    labels = rows[length - 1 + horizon :, 1]
    if not len(labels):
        return []
    made = tf.keras.utils.timeseries_dataset_from_array(
        data, labels, sequence_length=length, sequence_stride=stride, batch_size=16
    )
    return [(x, y) for xs, ys in made.as_numpy_iterator() for x, y in zip(xs, ys, strict=True)]


def listed(windows):
    """To be compared: the first x of each window, its features and its label."""
    return [(features.tolist(), float(label)) for features, label in windows]


def of_rank(dataset):
    return [pair for xs, ys in batches(dataset) for pair in zip(xs, ys, strict=True)]


def test_windows_whose_label_is_before_the_date_are_for_training():
    plan = SequencePlan(3, 1, 2, "time", (), "2012-01-02")  # of 4 rows each, a window begins at each second row
    series = np.array([10, 10, 3]), np.array([7, 2, 3])  # rows, and those before the date
    (train_starts, train), (_, held_out) = plan.windows(series, 0.0)
    assert train_starts.tolist() == [0, 10, 20]
    assert (train.tolist(), held_out.tolist()) == ([2, 0, 0], [2, 4, 0])


@pytest.mark.parametrize(("horizon", "stride"), [(None, None), (0, 1), (3, 4), (1, 30)])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_all_windows_are_those_of_keras(local, tmp_path, workers, horizon, stride):
    parts = [series("Berlin", 1000), series("Oslo", 3), series("Rome", 171)]
    features = ["x", "twice"] if horizon == 0 else ["x", "y"]  # only of an earlier row may the label be a feature
    changes = dict(WINDOWS, features=features, horizon=horizon, sequence_stride=stride, workers=workers)
    frame = table(*parts)
    manifest, folders, made = shares(local, frame.assign(twice=frame["y"]), tmp_path, **changes)
    horizon, stride = 1 if horizon is None else horizon, stride or 1
    expected = [window for part in parts for window in keras_windows(part, 6, horizon, stride)]
    assert made.notices == []
    assert manifest["rows"] == len(expected)
    found = []
    for rank in range(workers):
        dataset, validation = open_rank(manifest, folders, rank, 50)
        assert validation is None
        assert dataset.element_spec[0].shape.as_list() == [None, 6, 2]
        found += of_rank(dataset)
    assert sorted(listed(found)) == sorted(listed(expected))
    stored = sum(manifest["sequences"]["stored"]["train"])
    assert stored <= 1174 + 50 * (6 + horizon), "a rank stores rows, not windows"


def test_global_batches_do_not_depend_on_the_number_of_workers(local, tmp_path):
    frame = table(series("Berlin", 700), series("Rome", 500))
    steps = []
    for workers in (1, 2, 4):
        manifest, folders, _ = shares(local, frame, tmp_path / str(workers), workers=workers, **WINDOWS)
        ranks = [batches(open_rank(manifest, folders, rank, 64)[0]) for rank in range(workers)]
        steps.append([sorted(x for xs, _ in parts for x in xs[:, 0, 0]) for parts in zip(*ranks, strict=True)])
    assert steps[0] == steps[1] == steps[2]
    assert steps[0][0][-1] - steps[0][0][0] > 100_000, "a batch has windows of all times"


def test_windows_of_more_data_than_is_shuffled_at_once(local, tmp_path, monkeypatch):
    monkeypatch.setattr(row_order, "WINDOW_BYTES", 24 * 1000)
    monkeypatch.setattr(row_order, "BLOCK_BYTES", 24 * 96)
    ahead, spans = [], reader._Windows.spans
    monkeypatch.setattr(reader._Windows, "spans", lambda *given: ahead.append(spans(*given)) or ahead[-1])
    parts = [series("Berlin", 6000), series("Rome", 3000)]
    manifest, folders, _ = shares(local, table(*parts), tmp_path, **WINDOWS)
    assert row_order.RowOrder(manifest["rows"], 0, 2, rank_data.element_bytes(manifest), 7).windows > 5
    found = [window for rank in range(2) for window in of_rank(open_rank(manifest, folders, rank, 100)[0])]
    assert sorted(listed(found)) == sorted(listed(w for part in parts for w in keras_windows(part, 6, 1, 1)))
    stored = manifest["sequences"]["stored"]["train"]
    assert ahead and all(0 <= first < last <= max(stored) for spans in ahead for first, last in spans)


@pytest.mark.parametrize("strategy", ["allreduce", "ps"])
def test_validation_is_the_last_share_of_each_series(local, tmp_path, strategy):
    parts = [series("Berlin", 106), series("Rome", 56)]
    manifest, folders, _ = shares(local, table(*parts), tmp_path, validation=0.2, strategy=strategy, **WINDOWS)
    windows = [keras_windows(part, 6, 1, 1) for part in parts]
    assert [len(each) for each in windows] == [100, 50]
    opened = [open_rank(manifest, folders, rank, 8, strategy) for rank in range(2)]
    trained = [window for dataset, _ in opened for window in of_rank(dataset)]
    assert sorted(listed(trained)) == sorted(listed(windows[0][:80] + windows[1][:40]))
    held = [of_rank(validation) for _, validation in opened]
    expected = listed(windows[0][80:] + windows[1][40:])
    if strategy == "ps":  # every rank has all of them
        assert [listed(each) for each in held] == [expected, expected]
    else:
        assert listed(held[0] + held[1]) == expected, "each rank has a stretch of time, in its order"


@pytest.mark.parametrize("kind", ["times", "zone", "text"])
def test_validation_from_a_date_on_is_by_the_label(local, tmp_path, kind):
    """Windows may begin before the date; their label does not."""
    part = series("Berlin", 24 * 10)
    windows, times = keras_windows(part, 6, 1, 1), part["time"].iloc[6:]
    if kind == "zone":
        part["time"] = part["time"].dt.tz_localize("Europe/Berlin")
    if kind == "text":
        part["time"] = part["time"].dt.strftime("%Y-%m-%dT%H:%M")
    changes = dict(WINDOWS, validation="2012-01-08T12:00")
    manifest, folders, made = shares(local, table(part), tmp_path, **changes)
    train, held = ([w for rank in range(2) for w in of_rank(open_rank(manifest, folders, rank, 8)[i])] for i in (0, 1))
    late = (times >= pd.Timestamp("2012-01-08T12:00")).to_numpy()
    assert sorted(listed(train)) == sorted(listed(w for w, is_late in zip(windows, late, strict=True) if not is_late))
    assert listed(held) == listed(w for w, is_late in zip(windows, late, strict=True) if is_late)
    text = "--order-by time is text: the rows are in the order of its characters, where '10' is before '9'"
    assert made.notices == ([text] if kind == "text" else [])


def test_another_frame_for_validation_has_windows_of_its_own(local, tmp_path):
    other = series("Rome", 50)
    manifest, folders, _ = shares(
        local, table(series("Berlin", 200)), tmp_path, {"other": table(other)}, **dict(WINDOWS, validation="other")
    )
    held = [window for rank in range(2) for window in of_rank(open_rank(manifest, folders, rank, 8)[1])]
    assert listed(held) == listed(keras_windows(other, 6, 1, 1))


def test_another_frame_for_validation_without_a_window_is_refused(local):
    options = spec(**dict(WINDOWS, validation="other"))
    message = refusal(local, series("Berlin", 200), options, {"other": series("Rome", 6)})
    assert message.startswith("other has no series of the 7 rows that a window spans")


def test_windows_of_text_and_arrays_with_weights(local, tmp_path):
    frame = series("Berlin", 40).assign(text=[f"t{i}" for i in range(40)], pair=[[i, -i] for i in range(40)], w=0.5)
    frame["w"] += frame["x"]
    changes = dict(WINDOWS, features=["text", "pair", "x"], weight="w", horizon=2, group_by=None, workers=1)
    manifest, folders, _ = shares(local, frame, tmp_path, **changes)
    for features, labels, weights in batches(open_rank(manifest, folders, 0, 8)[0]):
        first = features["x"][:, 0]
        assert (features["text"].shape[1:], features["pair"].shape[1:]) == ((6,), (6, 2))
        np.testing.assert_array_equal(labels, 2 * (first + 7))
        np.testing.assert_array_equal(weights, first + 7.5)
        for row, start in enumerate(first):
            assert features["text"][row].tolist() == [b"t%d" % i for i in range(start, start + 6)]
            assert features["pair"][row, :, 1].tolist() == [-i for i in range(start, start + 6)]


def test_without_label_and_features(local, tmp_path):
    """Windows alone; and by default all columns without another role."""
    frame = series("Berlin", 40).assign(z=1.0)
    changes = dict(WINDOWS, label=None, features=None, workers=1)
    manifest, folders, _ = shares(local, frame, tmp_path, **changes)
    assert manifest["rows"] == 35
    assert {windows.shape[1:] for windows in batches(open_rank(manifest, folders, 0, 8)[0])} == {(6, 3)}


BERLIN, TWO = series("Berlin", 20), [series("Berlin", 20), series("Rome", 20)]


@pytest.mark.parametrize(
    ("frame", "changes", "message"),
    [
        (
            table(*TWO),
            {"group_by": None},
            "df, column 'time': two rows have the same value, and so no order: keep one of them, or name the column "
            "that tells series apart: --group-by COLUMN",
        ),
        (
            table(*TWO, TWO[1].iloc[3:4]),
            {},
            "df, column 'time': two rows of Rome have the same value, and so no order: keep one of them",
        ),
        (
            BERLIN.assign(time=BERLIN["time"].where(BERLIN["x"] != 7)),
            {},
            "df, column 'time' or --group-by: rows without a value have no order: drop them first",
        ),
        (
            BERLIN.assign(time=[1, "a"] * 10),
            {},
            "--order-by time: df has values of type int and str there, which have no order",
        ),
        (BERLIN, {"order_by": "tme"}, "--order-by tme: df has no such column; did you mean 'time'?"),
        (BERLIN, {"group_by": ["town"]}, "--group-by town: df has no such column; it has city, time, x, y"),
        (
            BERLIN,
            {"label": None, "horizon": 2},
            "--horizon 2 needs --label: it says which row has the label of a window",
        ),
        (BERLIN, {"horizon": 0}, "--label y is also among --features; take it out of one"),
        (
            BERLIN.drop(columns="x"),
            {"features": None},
            "df has no column besides the label y and the order-by time and the group-by city to be a feature: "
            "--features y gives its past values",
        ),
        (
            BERLIN,
            {"sequence_length": 20},
            "df has no series of the 21 rows that a window spans, with that of its label: lower --sequence-length",
        ),
        (
            BERLIN,
            {"sequence_length": 19},
            "df has 1 window to train on, too few for 2 workers: use --workers 1",
        ),
        (BERLIN, {"validation": "2013-01-01"}, "--validation 2013-01-01 of the 14 windows of df leaves one part empty"),
        (
            BERLIN.assign(time=BERLIN["x"]),
            {"validation": "2012-01-02"},
            "--validation 2012-01-02: column 'time' of --order-by is of type int64, and not a date: give a share of "
            "the windows, such as 0.2, or a DataFrame",
        ),
        (
            BERLIN,
            {"validation": "2012-01-02", "sequence_length": None, "order_by": None, "features": ["x"]},
            "--validation 2012-01-02: a date needs --sequence-length and --order-by",
        ),
    ],
)
def test_mistakes_are_refused_in_one_line(local, frame, changes, message):
    options = spec(**{"label": None, **WINDOWS, **changes})
    assert refusal(local, frame, options, {"df": frame}).startswith(message)


def test_series_go_on_from_one_blob_to_the_next():
    plan = SequencePlan(length=2, horizon=1, stride=1, order_by="time", group_by=("city",), since=None)

    def blob(first, last, *segments):
        return {"first_key": first, "last_key": last, "segments": list(segments)}

    rome, oslo = ("Rome",), ("Oslo",)
    blobs = [
        blob((rome, 1), (rome, 5), (5, 2)),
        blob((rome, 6), (oslo, 2), (3, 0), (2, 1)),
        blob((oslo, 3), (oslo, 3), (1, 0)),
    ]
    assert [each.tolist() for each in plan.series("df", blobs)] == [[8, 3], [2, 1]]
    with pytest.raises(DataError, match=r"^df, column 'time': two rows of Oslo have the same value"):
        plan.series("df", [blobs[1], blob((oslo, 2), (oslo, 3), (2, 0))])


# On Spark


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"order_by": "pair"}, "--order-by pair: df has values of type array<bigint> there, which have no order"),
        (
            {"group_by": ["kinds"]},
            "--group-by kinds: df has values of type map<string,bigint> there, which have no order",
        ),
        (
            {"validation": "2012-01-02"},
            "--validation 2012-01-02: column 'time' of --order-by is of type bigint, and not a",
        ),
        ({"group_by": None}, "df, column 'time': two rows have the same value, and so no order: keep one of them, or"),
    ],
)
def test_mistakes_on_spark_are_refused_in_one_line(spark, changes, message):
    frame = spark.range(40).selectExpr("id % 20 time", "id x", "id y", "id < 20 city", "array(id) pair")
    frame = frame.selectExpr("*", "map('a', x) kinds")
    options = spec(**{"label": None, **WINDOWS, **changes})
    assert refusal(spark.sparkContext, frame, options, {"df": frame}).startswith(message)


CELL = """
import keras, numpy as np, tensorflow as tf
keras.config.set_floatx("float64")
keras.config.set_dtype_policy("float64")
def build():
    model = keras.Sequential([keras.Input((24, 2)), keras.layers.SimpleRNN(3), keras.layers.Dense(1)])
    model.set_weights([0.3 * np.sin(np.arange(w.size) + i).reshape(w.shape) for i, w in enumerate(model.get_weights())])
    model.compile(keras.optimizers.SGD(0.05), "mse")
    return model
model = build()
def as_doubles(x, y):
    return tf.cast(x, "float64"), tf.cast(y, "float64")
fit = model.fit(dataset.map(as_doubles), validation_data=validation.map(as_doubles), epochs=3, verbose=0)
{"history": fit.history, "weights": [w.tolist() for w in model.get_weights()],
 "held": [float(v) for _, y in validation for v in y]}
"""
LENGTH = 24


def keras_own(parts, held_out):
    """What one process learns of Keras' own windows, in batches of all of them."""
    import tensorflow as tf

    floatx, policy = tf.keras.backend.floatx(), tf.keras.config.dtype_policy()
    namespace = {}
    windows = [keras_windows(part, LENGTH, 1, 1) for part in parts]
    sets = []
    for cut in (lambda each: each[: len(each) - held_out], lambda each: each[len(each) - held_out :]):
        pairs = [pair for each in windows for pair in cut(each)]
        sets.append((np.float64([x for x, _ in pairs]), np.float64([y for _, y in pairs])))
    try:
        exec(CELL.partition("model = build()")[0], namespace)
        model = namespace["build"]()
        model.fit(*sets[0], validation_data=sets[1], batch_size=10_000, epochs=3, verbose=0, shuffle=False)
    finally:
        tf.keras.backend.set_floatx(floatx)
        tf.keras.config.set_dtype_policy(policy)
    return {"history": model.history.history, "weights": model.get_weights()}, sets[1][1]


def test_workers_learn_what_one_process_learns_of_keras_own_windows(spark):
    """Of timestamps and two series, whose rows Spark sorts; windows cross its partitions and the ranks' stretches."""
    parts = [series(city, 400) for city in ("Berlin", "Rome")]
    for part in parts:
        part["x"], part["y"] = part["x"] % 97 / 128, part["x"] % 89 / 128
    frame = spark.createDataFrame(table(*parts).to_records(index=False).tolist(), ["city", "seconds", "x", "y"])
    frame = frame.selectExpr("city", "cast(seconds / 1e9 as timestamp) time", "x", "y").repartition(3)
    options = dict(WINDOWS, data="frame", sequence_length=LENGTH, validation=0.125, batch_size=10_000, seed=5)
    ended = launch.finished(spark, CELL, namespace={"frame": frame}, workers=2, **options)
    expected, held = keras_own(parts, 47)
    comparison.assert_equal(ended.result, expected)
    assert ended.result["held"] == held[: len(ended.result["held"])].tolist(), "rank 0 has the first, in their order"
