"""--sparse: vectors that stay sparse from Spark's rows to the model."""

import numpy as np
import pytest
from pyspark.ml.linalg import DenseVector, SparseVector, VectorUDT
from pyspark.sql.types import DoubleType, StructField, StructType
from support import comparison, launch
from support.feeds import batches, learned, open_rank, refusal, shares, spec

from ddl_magics.runtime.data import arrow, packing
from ddl_magics.runtime.data.columns import DataError

ROWS, SIZE = 250, 1500


def vector(row):
    """Some without a value, and some that Spark has as dense ones."""
    values = {(row * 7 + k * 11) % SIZE: (k + 1) / 4 for k in range(row % 4)}
    sparse = SparseVector(SIZE, values)
    return DenseVector(sparse.toArray()) if row % 10 == 3 else sparse


@pytest.fixture
def frame(spark):
    rows = [(vector(row), row / 8, float(row % 5)) for row in range(ROWS)]
    return spark.createDataFrame(spark.sparkContext.parallelize(rows, 3), ["v", "a", "y"])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_vectors_have_their_way_through_bytes(dtype):
    vectors = [vector(row) for row in range(8)]
    indices, values = packing.sparse_arrays([packing.sparse_bytes(each) for each in vectors], dtype)
    dense = np.zeros((8, SIZE), dtype)
    dense[tuple(indices.T)] = values
    np.testing.assert_array_equal(dense, np.stack([each.toArray() for each in vectors]))
    assert values.dtype == dtype and indices.tolist() == sorted(indices.tolist())
    assert packing.sparse_arrays([], dtype)[0].shape == (0, 2)


CELL = """
import keras, tensorflow as tf
keras.config.set_floatx("float64")
keras.config.set_dtype_policy("float64")
given = keras.Input((1500,), sparse=%s)
hidden = keras.layers.Dense(4, "tanh", kernel_initializer="ones")(given)
outputs = keras.layers.Dense(1, kernel_initializer="ones")(hidden)
model = keras.Model(given, outputs)
model.compile(keras.optimizers.SGD(0.01), "mse", metrics=["mae"])
def doubles(x, y):
    return tf.cast(x, "float64"), tf.cast(y, "float64")
fit = model.fit(dataset.map(doubles), validation_data=validation.map(doubles), epochs=2, verbose=0)
{"history": fit.history, "weights": [w.tolist() for w in model.get_weights()],
 "sparse": isinstance(dataset.element_spec[0], tf.SparseTensorSpec), "shape": str(dataset.element_spec[0].shape)}
"""


def test_workers_learn_of_sparse_rows_what_one_process_learns_of_dense_ones(spark, frame, tmp_path):
    """Of as many rows for training as have one order for 1 and 2 workers."""
    options = {"data": "df", "features": ["v"], "label": "y", "validation": 0.2}
    ended = launch.finished(spark, CELL % True, {"df": frame}, sparse=["v"], batch_size=32, **options)
    manifest, folders, made = shares(spark, frame, tmp_path, workers=1, **options)
    sparse, dense = ended.result, learned(CELL % False, manifest, folders, 32, seed=11)
    told = [[event["message"] for event in ended.of_kind("notice")], made.notices]
    told = [[message for message in messages if "column 'v'" in message] for messages in told]
    assert (sparse["sparse"], sparse["shape"], dense["sparse"]) == (True, "(None, 1500)", False)
    comparison.assert_equal(sparse, dense)
    assert told == [
        ["--data df: column 'v' stays sparse; where the model needs it dense, a row takes 6 kB"],
        [
            "--data df: a vector of column 'v' takes 6 kB; if most of it is zero, --sparse v stores and sends the rest "
            "alone"
        ],
    ]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a"], "--sparse a: its values are no vectors of pyspark.ml"),
        (["w"], "--sparse w: it is not among the features: v, a, y"),
    ],
)
def test_other_columns_are_refused(spark, frame, names, message):
    assert refusal(spark.sparkContext, frame, spec(sparse=names)) == message


def test_vectors_of_several_sizes_are_one_line(spark):
    frame = spark.createDataFrame([(SparseVector(3 + row, {1: 1.0}), row) for row in range(2)], ["v", "y"])
    assert "column 'v': its lengths differ" in refusal(spark.sparkContext, frame, spec(sparse=["v"]))


@pytest.mark.parametrize("by_arrow", [True, False])
def test_dense_vectors_by_arrow_are_those_of_rows(spark, monkeypatch, tmp_path, by_arrow):
    """Sparse ones among them, a name with a dot, and what is wrong with vectors."""
    if not by_arrow:
        monkeypatch.setattr(arrow, "is_everywhere", lambda sc, group: False)

    def stored(vectors):
        schema = StructType([StructField("a.b", VectorUDT()), StructField("y", DoubleType())])
        rows = [(each, float(row)) for row, each in enumerate(vectors)]
        frame = spark.createDataFrame(spark.sparkContext.parallelize(rows, 1), schema)
        return shares(spark, frame, tmp_path, features=["a.b"], validation=None)

    sparse, dense, short = SparseVector(2, {1: 3.0}), DenseVector([4.0, 0.5]), DenseVector([1.0])
    manifest, folders, _ = stored([sparse, dense] * 9)
    found = [
        row for rank in range(len(folders)) for x, y in batches(open_rank(manifest, folders, rank, 1)[0]) for row in x
    ]
    assert sorted(map(tuple, found)) == [(0.0, 3.0)] * 9 + [(4.0, 0.5)] * 9
    for vectors, message in (([sparse, None], "it has empty values"), ([dense, short], "its lengths differ")):
        with pytest.raises(DataError, match=f"column 'a.b': {message}"):
            stored(vectors)
