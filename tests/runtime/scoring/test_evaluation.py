"""Metrics over all rows of a DataFrame: what one process' `evaluate` says, and counts that agree with NumPy."""

import keras
import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, roc_auc_score
from support.spark import cached
from support.stored import trained

from ddl_magics import CannotScore, evaluate
from ddl_magics.dashboard.evaluation import Evaluation
from ddl_magics.errors import NotInEvaluation
from ddl_magics.runtime.scoring import evaluator

pytestmark = pytest.mark.timeout(300)

ROWS, BATCH = 1500, 64
RANDOM = np.random.default_rng(1)
NUMBERS = RANDOM.normal(size=(ROWS, 3))
SIGN = (NUMBERS[:, 0] + RANDOM.normal(size=ROWS) > 0).astype("int64")
KIND = (NUMBERS[:, 1] > 0).astype("int64") + (NUMBERS[:, 2] > 0)
SIZE = NUMBERS @ [1.0, -2.0, 0.5] + 3
WEIGHT = RANDOM.uniform(0.5, 2, size=ROWS)


@pytest.fixture(scope="module")
def frame(spark_cluster):
    """Rows in five partitions of different sizes, one of them empty."""
    columns = [*NUMBERS.T, SIGN, KIND, SIZE, WEIGHT, *np.eye(3)[KIND].T]
    rows = [tuple(value.item() for value in row) for row in zip(*columns, strict=True)]
    parts = [rows[:100], rows[100:700], [], rows[700:701], rows[701:]]
    spark = spark_cluster(2)
    dealt = spark.sparkContext.parallelize(parts, 5).flatMap(lambda part: part)
    names = ["a", "b", "c", "sign", "kind", "size", "weight", "low", "mid", "top"]
    return cached(spark.createDataFrame(dealt, names))


@pytest.fixture
def in_float64():
    for dtype in ("float64", "float32"):
        keras.config.set_floatx(dtype)
        keras.config.set_dtype_policy(dtype)
        if dtype == "float64":
            yield


def test_the_metrics_are_those_of_one_process(frame, in_float64):
    """States that add up, a metric and a function that do not, weights and several outputs; in float64."""

    class Largest(keras.metrics.Metric):
        def __init__(self, name="largest", **options):
            super().__init__(name=name, **options)
            self.value = self.add_weight(name="value", initializer="zeros")

        def update_state(self, y_true, y_pred, sample_weight=None):
            self.value.assign(keras.ops.maximum(self.value, keras.ops.max(y_pred)))

        def result(self):
            return self.value

    def rmse(y_true, y_pred):
        return keras.ops.sqrt(keras.ops.mean(keras.ops.square(y_pred - keras.ops.cast(y_true, y_pred.dtype))))

    keras.utils.set_random_seed(2)
    given = keras.Input((3,))
    inner = keras.layers.Dense(8, "tanh")(given)
    outputs = {
        "sign": keras.layers.Dense(1, "sigmoid", name="sign", activity_regularizer="l2")(inner),
        "kind": keras.layers.Dense(3, "softmax", name="kind")(inner),
        "hot": keras.layers.Dense(3, "softmax", name="hot")(inner),
    }
    model = keras.Model(given, outputs)
    model.compile(
        "sgd",
        {"sign": "binary_crossentropy", "kind": "sparse_categorical_crossentropy", "hot": "categorical_crossentropy"},
        metrics={
            "sign": ["accuracy", keras.metrics.AUC(name="auc"), keras.metrics.AUC(curve="PR", name="pr"), rmse],
            "kind": ["accuracy", Largest()],
            "hot": [keras.metrics.F1Score(name="f1"), keras.metrics.OneHotMeanIoU(3, name="iou")],
        },
        weighted_metrics={"kind": [keras.metrics.SparseCategoricalAccuracy(name="weighted")], "sign": [], "hot": []},
    )
    labels = {"sign": SIGN, "kind": KIND, "hot": np.eye(3)[KIND]}
    model.fit(NUMBERS, labels, batch_size=BATCH, verbose=0)

    def one_process(batch):
        weights = dict.fromkeys(labels, WEIGHT)
        return model.evaluate(NUMBERS, labels, batch, sample_weight=weights, verbose=0, return_dict=True)

    # Keras counts a last short batch as much as the others in the losses of several outputs. Ours are of all rows.
    whole = one_process(ROWS)
    theirs = {name: whole[name] if name.endswith("_loss") else value for name, value in one_process(BATCH).items()}
    ours = evaluate(
        frame,
        model,
        features=["a", "b", "c"],
        label="sign=sign,kind=kind,hot=low+mid+top",
        weight="weight",
        batch_size=BATCH,
        custom_objects={"Largest": Largest, "rmse": rmse},
    )
    assert ours.rows == ROWS and set(ours) == set(theirs)
    for name in theirs:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-9, err_msg=name)
    assert 0 < ours["sign_auc"] < 1 and ours["kind_largest"] > 1 / 3

    found = model.predict(NUMBERS, verbose=0)
    for output, taken in (("kind", found["kind"].argmax(1)), ("hot", found["hot"].argmax(1))):
        assert (ours.confusion(output) == confusion_matrix(KIND, taken)).all()
    assert (ours.confusion("sign") == confusion_matrix(SIGN, found["sign"][:, 0] > 0.5)).all()
    for output, index, scores, truth in [
        ("sign", 1, found["sign"][:, 0], SIGN),
        *(("kind", k, found["kind"][:, k], k == KIND) for k in range(3)),
    ]:
        false, true = ours.roc(output)[index]
        assert np.trapezoid(true, false) == pytest.approx(roc_auc_score(truth, scores), abs=1e-3)
    assert list(ours.confusion_figure("kind").data[0].text[0]) == list(ours.confusion("kind")[0])
    names = [trace.name for trace in ours.roc_figure("kind").data if trace.name]
    assert [name.split(",")[0] for name in names] == ["class 0", "class 1", "class 2"]
    with pytest.raises(NotInEvaluation, match="the model has several outputs: name one of"):
        ours.confusion()


def test_top_k_in_float32(frame):
    """Where Keras has it; AUC, too, is the same to rounding."""
    keras.utils.set_random_seed(4)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3, "softmax")])
    top = keras.metrics.SparseTopKCategoricalAccuracy(2, name="top2")
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=[top, "accuracy"])
    theirs = model.evaluate(NUMBERS.astype("float32"), KIND, BATCH, verbose=0, return_dict=True)
    ours = evaluate(frame, model, features=["a", "b", "c"], label="kind", batch_size=BATCH)
    assert dict(ours) == pytest.approx(theirs, rel=1e-6) and 0.4 < ours["top2"] < 1


def test_labels_with_nan_are_named_as_in_training():
    """The metrics are NaN, as Keras has them. Of classes, TensorFlow would name the integer of NaN."""
    x, y = np.ones((3, 2), "float32"), np.array([0.0, 1.0, np.nan], "float32")

    def partial(loss, units, labels, label="kind"):
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(units, "softmax")])
        model.compile("sgd", loss)
        return next(evaluator.partial([1], lambda: model, lambda rows, model: iter([(x, labels, None)]), 3, label))

    assert partial("mse", 1, y[:, None])["nan"] == ["kind"] and partial("mse", 1, np.ones((3, 1)))["nan"] == []
    with pytest.raises(ValueError, match="the label kind holds NaN, and so the model cannot be evaluated: fill"):
        partial("sparse_categorical_crossentropy", 3, y)
    with pytest.raises(Exception, match="Received a label value of 7"):
        partial("sparse_categorical_crossentropy", 3, np.full(3, 7))
    notice = evaluator.of_nan(["kind"], "and so will metrics")
    found = Evaluation({"rows": 3, "metrics": {"loss": float("nan")}, "outputs": {}, "notices": [notice]})
    assert repr(found).endswith(
        "loss nan; the label kind holds NaN, and so will metrics: fill these rows, or leave them out>"
    )


@pytest.mark.slow
def test_windows_of_time_series_have_the_labels_of_training(spark_cluster):
    """Those of the rows `horizon` after each, every `stride`-th; label and weight beside features of the same name."""
    spark = spark_cluster(2)
    rows = [
        (city, hour, float(NUMBERS[place, 0]), place % 7)
        for place, (city, hour) in enumerate(
            [("a", hour) for hour in range(40)]
            + [("b", hour) for hour in range(25)]
            + [("c", hour) for hour in range(5)]
        )
    ]
    hours = spark.createDataFrame(rows, ["city", "hour", "load", "trust"]).repartition(3)
    columns = [
        {"name": name, "dtype": dtype, "depth": 0, "vector": False} for name, dtype in (("load", "f8"), ("trust", "i8"))
    ]
    window = {"length": 4, "order_by": "hour", "group_by": ["city"], "horizon": 3, "stride": 2}
    known = {"columns": columns, "tensors": [[0, 1]], "uses": ["floatx"], "shapes": [[2]], "features": 0}
    model = keras.Sequential([keras.Input((4, 2)), keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile("sgd", "mse", weighted_metrics=["mae"])
    x, y, weight = [], [], []
    for city in "abc":
        series = [row for row in rows if row[0] == city]
        for first in range(0, len(series) - 4 - 3 + 1, 2):
            x.append([row[2:] for row in series[first : first + 4]])
            y.append(series[first + 4 + 3 - 1][2])
            weight.append(series[first + 4 + 3 - 1][3])
    x, y, weight = (np.asarray(each, "float32") for each in (x, y, weight))
    theirs = model.evaluate(x, y, BATCH, sample_weight=weight, verbose=0, return_dict=True)
    features = {**known, "window": window}
    ours = evaluate(hours, model, features=features, label="load", weight="trust", batch_size=BATCH)
    assert ours.rows == len(x) == 17 + 10 and dict(ours) == pytest.approx(theirs, rel=1e-5)
    for hour in (10, 39):  # within a window, and where a label is
        twice = hours.union(hours.where(f"city = 'a' and hour = {hour}"))
        with pytest.raises(CannotScore, match="rows of a series have the same value or none"):
            evaluate(twice, model, features=features, label="load")
    with pytest.raises(CannotScore, match="df has no rows to evaluate the model on"):
        evaluate(hours.where("city = 'c'"), model, features=features, label="load")


SEEN = """
import keras
model = keras.Sequential([keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
model.compile("sgd", "mse", metrics=["mae"])
model.fit(dataset, epochs=1, verbose=0)
"""


@pytest.mark.slow
def test_a_run_knows_its_label_and_its_features(spark_cluster, frame):
    """Of a regression; in float32."""
    spark = spark_cluster(2)
    data = {"data": "frame", "features": ["c", "a"], "label": "size", "weight": "weight", "batch_size": 250}
    run = trained(spark, SEEN, {"frame": frame}, **data)
    given, model = NUMBERS[:, [2, 0]].astype("float32"), run.model()
    weighted = model.evaluate(given, SIZE, BATCH, sample_weight=WEIGHT, verbose=0, return_dict=True)
    ours = run.evaluate(frame, batch_size=BATCH)
    assert isinstance(ours, Evaluation) and dict(ours) == pytest.approx(weighted, rel=1e-5)
    plain = run.evaluate(frame.withColumn("height", frame.size), "height", weight=None)
    off = np.abs(model.predict(given, verbose=0)[:, 0].astype("float64") - SIZE)
    errors = {"mae": off.mean(), "rmse": (off**2).mean() ** 0.5, "mape": 100 * (off / np.abs(SIZE)).mean()}
    assert plain.errors() == pytest.approx(errors, rel=1e-6)
    assert plain["mae"] == pytest.approx(off.mean(), rel=1e-5)
    assert repr(plain).startswith("<Evaluation of 1500 rows: loss ")
    for figure, says in ((plain.confusion, "no confusion matrix"), (plain.roc_figure, "no ROC curve")):
        with pytest.raises(NotInEvaluation, match=says):
            figure()
    for options, says in [
        ({"label": "sizes"}, r"label sizes: df has no such column; did you mean 'size'\?"),
        ({"weight": "weigth"}, r"weight weigth: df has no such column; did you mean 'weight'\?"),
        ({"batch_size": 0}, "batch_size must be 1 or more"),
        ({"features": ["a"]}, "df cannot be evaluated: "),
    ]:
        with pytest.raises(CannotScore, match=says) as caught:
            run.evaluate(frame, **options)
        assert "\n" not in str(caught.value)
    with pytest.raises(CannotScore, match="; the label word is text: index it, as with StringIndexer"):
        run.evaluate(frame.selectExpr("*", "string(size) word"), "word")
    with pytest.raises(CannotScore, match="df has no rows to evaluate the model on"):
        run.evaluate(frame.where("a > 100"))
