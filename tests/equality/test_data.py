"""n workers learn from --data what plain Keras learns from the same rows in one process, whichever way they come.

Batches are all rows, so that their order makes no difference, and in a second fit a part of them, of which the workers
are compared with one.
"""

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import launch
from support.comparison import assert_equal

import ddl_magics
from ddl_magics.runtime.data import cache_folder

pytestmark = pytest.mark.timeout(600)

ROWS = 960
#: Of few bits, so that float32 on the way changes none.
X = np.float32(np.arange(ROWS * 3).reshape(ROWS, 3) * 37 % 256 / 256)
Y = np.float32(X @ [0.5, -1.0, 0.25] + (np.arange(ROWS) % 8) / 64)
WEIGHT = np.float32(np.arange(ROWS) % 4 / 2)
LENGTH = 6

BUILD = """
import keras, numpy as np, tensorflow as tf
keras.config.set_floatx("float64")
keras.config.set_dtype_policy("float64")
def build(shape):
    layers = [keras.Input(shape), keras.layers.Flatten(), keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.set_weights([np.sin(np.arange(w.size) + i).reshape(w.shape) / 4 for i, w in enumerate(model.get_weights())])
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse", weighted_metrics=["mae"])
    return model
def doubles(*element):
    return tuple(tf.cast(part, "float64") for part in element)
"""
CELL = (
    BUILD
    + """
def shifted(features):
    return tf.concat([features * 2, features[..., :1] - 1], -1)
model = build(dataset.element_spec[0].shape[1:])
fit = model.fit(dataset.map(doubles), epochs=3, verbose=0)
{"history": fit.history, "weights": [w.tolist() for w in model.get_weights()]}
"""
)
#: A loop of its own, whose compiled loss is a sum over rows. Each layer of noise draws, if next to nothing.
LOOP = (
    BUILD
    + """
def squares(y, predicted):
    return tf.reduce_sum(tf.square(tf.reshape(y, [-1]) - tf.reshape(predicted, [-1])))
model = build(dataset.element_spec[0].shape[1:])
model = keras.Sequential([keras.layers.GaussianNoise(1e-14), *model.layers])
model.compile(keras.optimizers.SGD(1e-4), squares)
for rows, labels in ddl.distribute(dataset.map(doubles).repeat(3)):
    with tf.GradientTape() as tape:
        loss = model.compute_loss(y=labels, y_pred=model(rows, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    model.optimizer.apply_gradients(zip(gradients, model.trainable_variables))
{"history": {}, "weights": [w.tolist() for w in model.get_weights()]}
"""
)


def shifted(features):
    return np.concatenate([features * 2, features[..., :1] - 1], -1)


def windows():
    """Keras' own, of six rows with the label of the next one."""
    starts = range(ROWS - LENGTH)
    return np.stack([X[s : s + LENGTH] for s in starts]), np.stack([Y[s + LENGTH] for s in starts])


#: Of each way: its options, and what plain Keras learns of: features, labels and perhaps weights.
WAYS = {
    "frame": ({}, (X, Y)),
    "weights": ({"weight": "w"}, (X, Y, WEIGHT)),
    "transform": ({"transform": "shifted"}, (shifted(X), Y)),
    "transform of batches": ({"transform": "shifted:batch", "weight": "w"}, (shifted(X), Y, WEIGHT)),
    "windows": ({"sequence_length": LENGTH, "order_by": "n"}, windows()),
    "transformed windows": (
        {"sequence_length": LENGTH, "order_by": "n", "transform": "shifted"},
        (shifted(windows()[0]), windows()[1]),
    ),
    "parquet": ({}, (X, Y)),
    "tfrecord": ({"weight": "w"}, (X, Y, WEIGHT)),
}


@pytest.fixture(scope="module")
def expected():
    """`expected(way)`: the history and the weights of plain Keras, which trains with all rows at once."""
    import keras

    floatx, policy = keras.config.floatx(), keras.config.dtype_policy()
    made = {}

    def expected(way):
        if way not in made:
            names = {}
            try:
                exec(BUILD, names)
                features, *others = (np.float64(part) for part in WAYS[way][1])
                model = names["build"](features.shape[1:])
                fit = model.fit(
                    features,
                    *others[:1],
                    batch_size=10_000,
                    epochs=3,
                    verbose=0,
                    shuffle=False,
                    **({"sample_weight": others[1]} if len(others) > 1 else {}),
                )
            finally:
                keras.config.set_floatx(floatx)
                keras.config.set_dtype_policy(policy)
            made[way] = {"history": fit.history, "weights": model.get_weights()}
        return made[way]

    return expected


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    for number, rows in enumerate(np.array_split(np.arange(ROWS), 5)):
        table = {"n": rows, "a": X[rows, 0], "b": X[rows, 1], "c": X[rows, 2], "y": Y[rows], "w": WEIGHT[rows]}
        pq.write_table(pa.table(table), folder / f"part-{number}.parquet")
    return folder


def learned(spark, way, folder, cell=CELL, **more):
    frame = spark.read.parquet(f"file://{folder}/*.parquet")
    data = {"parquet": f"file://{folder}/*.parquet", "tfrecord": f"file://{folder}/rows.tfrecord"}.get(way, "df")
    if way == "tfrecord" and not (folder / "rows.tfrecord").exists():
        ddl_magics.write_tfrecord(frame, f"file://{folder}/rows.tfrecord")
    options = {"data": data, "features": ["a", "b", "c"], "label": "y", "cache": "off", **WAYS[way][0], **more}
    return launch.finished(spark, cell, {"df": frame}, **options)


@pytest.mark.slow
def test_two_workers_learn_of_transformed_windows(spark_cluster, folder, expected):
    way = "transformed windows"
    assert_equal(learned(spark_cluster(2), way, folder, workers=2, batch_size=10_000).result, expected(way))


@pytest.mark.slow
def test_a_loop_over_data_whose_loss_is_a_sum(spark_cluster, folder):
    one, two = (
        learned(spark_cluster(2), "frame", folder, LOOP, strategy=strategy, workers=workers, batch_size=10_000).result
        for strategy, workers in (("single", 1), ("allreduce", 2))
    )
    assert_equal(two, one)
    start = np.sin(np.arange(12)).reshape(3, 4) / 4
    assert np.abs(one["weights"][0] - start).max() > 0.01


@pytest.mark.parametrize(
    ("way", "workers"),
    [
        pytest.param(way, workers, marks=() if (way, workers) == ("weights", 2) else pytest.mark.slow)
        for way in WAYS
        for workers in (2, 4)
    ],
)
def test_every_way(spark_cluster, folder, expected, way, workers):
    """A last batch may be smaller than the others."""
    spark = spark_cluster(workers)
    assert_equal(learned(spark, way, folder, workers=workers, batch_size=10_000).result, expected(way))
    small = {}
    for strategy in ("single", "allreduce"):
        small[strategy] = learned(spark, way, folder, workers=workers, strategy=strategy, batch_size=100).result
    assert_equal(small["allreduce"], small["single"])


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 4])
def test_rows_of_the_cache(spark_cluster, folder, expected, tmp_path, workers):
    """Made, found, and found in part."""
    told = []
    for _ in range(3):
        options = {"workers": workers, "batch_size": 10_000, "cache": str(tmp_path)}
        ended = learned(spark_cluster(workers), "weights", folder, **options)
        assert_equal(ended.result, expected("weights"))
        notices = [event["message"].partition(", made")[0] for event in ended.of_kind("notice")]
        told.append([message for message in notices if "from the cache" in message])
        (root,) = cache_folder.roots({}, str(tmp_path))
        names = {rank: name for name, _, rank in cache_folder.names(root)}
        assert sorted(names) == list(range(workers))
        if told[-1]:
            shutil.rmtree(Path(root) / names[workers - 1])
    shares = f"--data df: {workers - 1} of {workers} shares from the cache"
    assert told == [[], ["--data df: from the cache"], [shares]]
