"""Columns as features, labels and weights: what the options name, what a dict has, and one line for each mistake."""

import numpy as np
import pandas as pd
import pytest
from support import comparison, launch
from support.feeds import LocalSpark, batches, open_rank, refusal, shares, spec

from ddl_magics.clusters import data_names, dataset_shape
from ddl_magics.options import parsing
from ddl_magics.runtime.data import roles

INPUTS = {"features": ["image=pixels", "meta=a+b", "c"], "label": "first=y,both=y+z"}


def frame(rows=40):
    ids = np.arange(rows)
    pixels = [[[i, 1], [2, 3]] for i in range(rows)]
    return pd.DataFrame({"pixels": pixels, "a": ids, "b": ids / 2, "c": -ids, "y": ids % 3, "z": ids % 5, "p=q+r": ids})


def test_dicts_of_inputs_and_labels(tmp_path):
    manifest, folders, _ = shares(LocalSpark(), frame(), tmp_path, validation=0.2, weight="p=q+r", **INPUTS)
    seen = []
    for rank in range(2):
        for dataset in open_rank(manifest, folders, rank, 8):
            for features, labels, weights in batches(dataset):
                a = features["meta"][:, 0]
                assert {name: (v.dtype, v.shape[1:]) for name, v in (features | labels).items()} == {
                    "image": (np.int64, (2, 2)),
                    "meta": (np.float32, (2,)),
                    "c": (np.int64, ()),
                    "first": (np.int64, ()),
                    "both": (np.float32, (2,)),
                }
                np.testing.assert_array_equal(features["image"][:, 0, 0], a)
                np.testing.assert_array_equal(features["meta"][:, 1], a / 2)
                np.testing.assert_array_equal(features["c"], -a)
                np.testing.assert_array_equal(labels["first"], a % 3)
                np.testing.assert_array_equal(labels["both"], np.stack([a % 3, a % 5], axis=1))
                np.testing.assert_array_equal(weights, a)
                seen += a.tolist()
    assert sorted(seen) == list(range(40))


def test_names_with_signs_are_columns_first(tmp_path):
    manifest, folders, _ = shares(LocalSpark(), frame(), tmp_path, features=["p=q+r", "a"], label="y", workers=1)
    features, _ = batches(open_rank(manifest, folders, 0, 40)[0])[0]
    np.testing.assert_array_equal(features[:, 0], features[:, 1])
    manifest, folders, _ = shares(LocalSpark(), frame(), tmp_path / "2", features=["x=p=q+r"], label="y", workers=1)
    features, _ = batches(open_rank(manifest, folders, 0, 40)[0])[0]
    assert features["x"].shape == (40,)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": ["image=pixls"]}, "--features pixls: df has no such column; did you mean 'pixels'?"),
        (
            {"features": ["meta=a+pixels"]},
            "--features meta=a+pixels: column 'pixels' holds text or arrays, and only num",
        ),
        ({"features": ["x=a", "x=b"]}, "--features gives two tensors the name x; name them apart"),
        ({"features": ["a=b", "a"]}, "--features gives two tensors the name a; name them apart"),
        ({"features": ["=a"]}, "--features =a: write NAME=COLUMN, or NAME=COLUMN+COLUMN for a matrix"),
        ({"features": ["x=a+"]}, "--features x=a+: write NAME=COLUMN, or NAME=COLUMN+COLUMN for a matrix"),
        ({"features": ["x=a+y"], "label": "y"}, "--label y is also among --features; take it out of one"),
        ({"label": "one=y,z"}, "--label: name each label of several, as in --label y1=COLUMN,y2=COLUMN"),
        ({"label": "one=y,two=zz"}, "--label zz: df has no such column; did you mean 'z'?"),
        ({"label": "one=y,two=z", "weight": "z"}, "--weight z is also the --label; name a column of its own"),
    ],
)
def test_mistakes_are_refused_in_one_line(changes, message):
    assert refusal(LocalSpark(), frame(), spec(**changes)).startswith(message)


def test_the_notebook_knows_names_and_shapes_of_a_dict():
    spec = parsing.parse("--data df --features image=pixels,meta=a+b,c --label first=y,both=y+z")
    assert data_names.problem(spec, {"df": frame()}) is None
    assert dataset_shape.described(spec, {"df": frame()}) == (
        "a dict of features, image of shape (batch, size, size), meta of shape (batch, 2), c of shape (batch,); "
        "a dict of labels, first of shape (batch,), both of shape (batch, 2)"
    )
    assert list(dataset_shape.notices(spec, {"df": frame()})) == []
    wrong = parsing.parse("--data df --features image=pixls --label y")
    assert data_names.problem(wrong, {"df": frame()}) == "df has no column pixls. Did you mean pixels?"


def test_whole_numbers_keep_their_type_unless_they_are_in_a_matrix():
    columns = [{"dtype": "int64"}, {"dtype": "int32"}, {"dtype": "float64"}, {"dtype": "S"}]
    assert roles.uses_of(columns, [[0], [0, 1], [2], [3]]) == ["int64", "floatx", "floatx", "string"]


CELL = """
import keras, tensorflow as tf
keras.config.set_floatx("float64")
def dense(units, seed, name=None, activation=None):
    return keras.layers.Dense(units, activation, kernel_initializer=keras.initializers.GlorotUniform(seed), name=name)
image, meta = keras.Input((2, 2), name="image"), keras.Input((2,), name="meta")
joined = keras.layers.concatenate([keras.layers.Flatten()(image), meta])
hidden = dense(4, 1, activation="tanh")(joined)
outputs = {"first": dense(1, 2, "first")(hidden), "both": dense(2, 3, "both")(hidden)}
model = keras.Model({"image": image, "meta": meta}, outputs)
model.compile(keras.optimizers.SGD(0.05), {"first": "mse", "both": "mae"})
def doubles(x, y):
    x = {name: tf.cast(values, "float64") / 64 for name, values in x.items()}
    return x, {name: tf.cast(values, "float64") / 64 for name, values in y.items()}
fit = model.fit(dataset.map(doubles), epochs=2, verbose=0)
{"history": fit.history, "weights": [w.tolist() for w in model.get_weights()]}
"""


def test_workers_learn_with_dicts_what_one_process_learns(spark):
    """Of as many rows as have one order for 1 and 2 workers, which have as many rows of the last batch each."""
    rows = list(frame(502)[["pixels", "a", "b", "y", "z"]].itertuples(index=False, name=None))
    namespace = {"df": spark.createDataFrame(rows, "pixels array<array<bigint>>, a long, b double, y long, z long")}
    options = dict(INPUTS, features=["image=pixels", "meta=a+b"], data="df", batch_size=32, seed=5)
    two, one = (
        launch.finished(spark, CELL, namespace, workers=2, strategy=strategy, **options).result
        for strategy in ("allreduce", "single")
    )
    comparison.assert_equal(two, one)
