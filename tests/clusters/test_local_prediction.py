"""Predictions without Spark, with a model that needs no Keras."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from ddl_magics.clusters.local_prediction import evaluate_here, predict_columns_here, predict_here
from ddl_magics.errors import CannotScore


def model(answer, names=()):
    """A model that answers with a function of its inputs."""
    return SimpleNamespace(predict=lambda inputs, batch_size, verbose: answer(inputs), output_names=list(names))


SUM = model(lambda inputs: inputs.sum(axis=1, keepdims=True))
ROWS = pd.DataFrame({"a": [1, 2], "b": [3.5, 4.5], "name": ["x", "y"]})


def test_arrays_and_pandas_are_predicted_here():
    assert predict_here(SUM, np.array([[1.0, 2.0], [3.0, 4.0]]))["prediction"].tolist() == [3.0, 7.0]
    frame = predict_here(SUM, ROWS, features=["b", "a"], output="sum")
    assert list(frame) == ["a", "b", "name", "sum"] and frame["sum"].tolist() == [4.5, 6.5]
    assert "sum" not in ROWS
    several = predict_here(model(lambda x: [x[:, :1], np.stack([x, x], 1)], ["one", "two"]), ROWS[["a", "b"]])
    assert several["prediction_one"].tolist() == [1.0, 2.0]
    assert several["prediction_two"][1].tolist() == [[2.0, 4.5], [2.0, 4.5]]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "not all columns are numbers: name those of the model's input, features="),
        ({"features": ["c"]}, "no column 'c'"),
        ({"features": ["a"], "output": "b"}, "has a column 'b': name another with output="),
    ],
)
def test_what_cannot_be_predicted_is_one_line(arguments, says):
    with pytest.raises(CannotScore, match=says):
        predict_here(SUM, ROWS, **arguments)


#: Two numbers of different dtypes as a matrix, and a text: what --data has made of the columns.
INPUTS = {
    "columns": [
        {"name": "b", "dtype": "<f8", "depth": 0, "vector": False},
        {"name": "a", "dtype": "<i8", "depth": 0, "vector": False},
        {"name": "name", "dtype": "S", "depth": 0, "vector": False},
    ],
    "tensors": [[0], [1], [2]],
    "uses": ["floatx", "int64", "string"],
    "shapes": [[], [], []],
    "features": {"b": 0, "a": 1, "name": 2},
}


def features(inputs):
    """What the model gets, as two outputs."""
    assert inputs["b"].dtype == np.float32 and inputs["a"].dtype == np.int64
    return {"sum": inputs["b"] + inputs["a"], "name": inputs["name"].numpy()}


TRAINED = SimpleNamespace(predict_on_batch=features, weights=[])


def test_columns_of_pandas_become_the_tensors_of_training_here():
    frame = predict_columns_here(TRAINED, ROWS, INPUTS, batch_size=1)
    assert list(frame) == ["a", "b", "name", "prediction_sum", "prediction_name"]
    assert frame["prediction_sum"].tolist() == [4.5, 6.5] and frame["prediction_name"].tolist() == [b"x", b"y"]
    doubled = predict_columns_here(
        SimpleNamespace(predict_on_batch=lambda values: values, weights=[]),
        ROWS,
        INPUTS,
        transform=lambda row: 2 * row["b"],
    )
    assert doubled["prediction"].tolist() == [7.0, 9.0]


@pytest.mark.parametrize(
    ("rows", "inputs", "says"),
    [
        (ROWS[["a", "b"]], {}, "features name: df has no such column"),
        (ROWS.assign(name=[1, 2]), {}, "column 'name' of df is of another kind than in training"),
        (ROWS.assign(name=["x", None]), {}, "df cannot be scored: column 'name': "),
        (ROWS[:0], {}, "df has no rows"),
        (ROWS, {"window": {}}, "the model takes windows of several rows, which Spark makes: give a Spark DataFrame"),
    ],
)
def test_columns_that_are_not_those_of_training_are_one_line(rows, inputs, says):
    with pytest.raises(CannotScore, match=says):
        predict_columns_here(TRAINED, rows, {**INPUTS, **inputs})


def judged(answer):
    """A compiled model that answers with a function of its inputs; its metric is the mean of the weighed labels."""

    def evaluate(x, y, sample_weight, batch_size, verbose, return_dict):
        assert (verbose, return_dict) == (0, True)
        return {"mean": float(np.average(y, weights=sample_weight))}

    predict = lambda x, batch_size, verbose: np.asarray(answer(x))  # noqa: E731
    return SimpleNamespace(predict=predict, evaluate=evaluate, compiled=True, output_names=["out"], weights=[])


HALF = judged(lambda x: np.asarray(x)[:, :1].astype("float32"))


def test_arrays_and_pandas_are_evaluated_here():
    x, y = np.array([[0.9], [0.2], [0.6]]), np.array([1, 0, 0])
    found = evaluate_here(HALF, x, y)
    assert (found.rows, found["mean"]) == (3, pytest.approx(1 / 3))
    assert found.confusion().tolist() == [[1, 1], [0, 1]] and found.errors()["mae"] == pytest.approx(0.9 / 3)
    frame = pd.DataFrame({"x": x[:, 0], "y": y, "w": [1, 1, 0]})
    weighed = evaluate_here(HALF, frame, "y", ["x"], weight="w")
    assert weighed["mean"] == 0.5 and weighed.confusion().tolist() == [[1, 1], [0, 1]]


def test_columns_of_data_are_evaluated_as_the_tensors_of_training():
    seen = []
    model = judged(lambda x: seen.append(sorted(x)) or np.asarray(x["b"]).reshape(-1, 1))
    found = evaluate_here(model, ROWS.assign(label=[3.5, 4.5]), "label", inputs=INPUTS)
    assert seen == [["a", "b", "name"]] and found.errors()["rmse"] == 0
    assert "the label label holds NaN" in repr(
        evaluate_here(model, ROWS.assign(label=[np.nan, 1]), "label", inputs=INPUTS)
    )


@pytest.mark.parametrize(
    ("rows", "label", "says"),
    [
        (ROWS, "labl", "^the DataFrame has no column 'labl'"),
        (ROWS.assign(label=1), "labl", "Did you mean label?"),
        (np.zeros((2, 1)), "y", r"'y' is no column of arrays: give the labels, evaluate\(x, y\)"),
    ],
)
def test_labels_that_are_not_there_are_one_line(rows, label, says):
    with pytest.raises(CannotScore, match=says):
        evaluate_here(HALF, rows, label)
