"""Predictions without Spark, with a model that needs no Keras."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from ddl_magics.clusters.local_prediction import predict_here
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
