"""Layers that adapt to --data learn on every worker what Keras learns from all rows in one process, to the bit."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from support import launch, paths

pytestmark = pytest.mark.timeout(400)

ROWS, BATCH = 1500, 40

#: Of the cell, and of the plain process that it is compared with. Ties of counts, documents of several lengths, values
#: that are sorted, so that no share is like the whole.
ADAPT = """
import json, keras, numpy as np, tensorflow as tf
L = keras.layers
def column(name):
    return dataset.map(lambda x, y: x[name])
learned = {}
normalization = L.Normalization()
normalization.adapt(column("value").map(lambda v: v[:, None]))
learned["normalization"] = [np.asarray(w).tolist() for w in (normalization.mean, normalization.variance)]
words, common = L.StringLookup(), L.StringLookup(max_tokens=4, output_mode="tf_idf")
for layer in (words, common):
    layer.adapt(column("word"))
learned["words"] = [words.get_vocabulary(), common.get_vocabulary(), np.asarray(common(["oak", "elm", "ash"])).tolist()]
numbers = L.IntegerLookup(max_tokens=9)
numbers.adapt(data=column("number"))
learned["numbers"] = [int(token) for token in numbers.get_vocabulary()]
texts = L.TextVectorization(output_mode="tf_idf")
texts.adapt(column("text"))
learned["texts"] = [texts.get_vocabulary(), np.asarray(texts(["red oak", "tall"])).tolist()]
bins = L.Discretization(num_bins=7, epsilon=0.01)
bins.adapt(column("value").unbatch().batch(64).take(20))
learned["bins"] = np.asarray(bins.bin_boundaries).tolist()
features = keras.utils.FeatureSpace({"value": "float_normalized", "word": "string_categorical"})
features.adapt(dataset.map(lambda x, y: {"value": x["value"], "word": x["word"]}))
inside = features.preprocessors["value"]
learned["features"] = [np.asarray(inside.mean).tolist(), features.preprocessors["word"].get_vocabulary()]
both = L.Normalization()
pair = tf.data.Dataset.zip((dataset, validation)) if validation is not None else dataset.map(lambda *e: (e, e))
both.adapt(pair.map(lambda ours, held_out: ours[0]["value"][:10, None] + held_out[0]["value"][:10, None]))
learned["both"] = np.asarray(both.mean).tolist()
learned = json.dumps(learned)
"""

CELL = f"""
if "validation" not in globals():
    validation = None
{ADAPT}
print("learned:", learned)
counted = sum(len(y) for x, y in dataset)
inputs = keras.Input((1,))
model = keras.Model(inputs, L.Dense(1)(normalization(inputs)))
model.compile("sgd", "mse")
history = model.fit(dataset.map(lambda x, y: (x["value"][:, None], y)), verbose=0)
print("counted:", counted, len(model.predict((validation or dataset).map(lambda x, y: x["value"][:, None]), verbose=0)))
"""

LOOP = """
import keras, tensorflow as tf
model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD(0.1)
@tf.function
def step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(x["value"][:, None]) ** 2)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
for epoch in range(2):
    for x, y in dataset:
        step(x)
"""

ALL_ROWS = """
rows = [v for x, y in ddl.all_rows(dataset.map(lambda x, y: (x["value"], y))) for v in x.numpy().tolist()]
print("in order:", rows == sorted(rows), len(rows))
"""


def table(rows=ROWS, seed=5):
    random = np.random.default_rng(seed)
    words = np.array(["oak", "elm", "ash", "fir", "yew", "box"])
    colours, sizes = np.array(["red", "tall", "Old!", "red red"]), random.integers(0, 4, rows)
    return pd.DataFrame(
        {
            "word": words[np.minimum(random.geometric(0.4, rows) - 1, 5)],
            "text": [
                f"{colour} oak{'' if size else ' grove'}" for colour, size in zip(colours[sizes], sizes, strict=True)
            ],
            "number": random.integers(0, 30, rows) ** 2,
            "value": np.float32(np.sort(random.lognormal(size=rows))),
            "y": np.arange(rows) % 2,
        }
    )


TABLE, HELD_OUT = table(), table(700, 6)
FEATURES = ["word", "text", "number", "value"]
#: Of the notice that a rank has a share.
BEGINNING = "this cell reads --data itself"

PLAIN = f"""
import json, sys, numpy as np, tensorflow as tf
def plain(rows):
    if rows is None:
        return None
    features = {{name: np.array(rows[name], np.float32 if name == "value" else None) for name in {FEATURES}}}
    return tf.data.Dataset.from_tensor_slices((features, np.array(rows["y"]))).batch({BATCH})
dataset, validation = map(plain, json.load(sys.stdin))
{ADAPT}
print(learned)
"""


def expected(frame, held_out=None, python=sys.executable):
    """What plain Keras learns, in a process of its own."""
    rows = [None if part is None else part.to_dict("list") for part in (frame, held_out)]
    process = subprocess.run(
        [python, "-c", PLAIN],
        input=json.dumps(rows),
        capture_output=True,
        text=True,
        check=True,
        env=paths.environment(),
    )
    return json.loads(process.stdout.splitlines()[-1])


def learned(ended, rank):
    return json.loads(ended.logs(rank).partition("learned: ")[2].partition("\n")[0])


def notices(ended, beginning):
    return [event["message"] for event in ended.of_kind("notice") if event["message"].startswith(beginning)]


def run(spark, data="df", cell=CELL, **options):
    names = {"df": TABLE, "held_out": HELD_OUT}
    options = {"features": FEATURES, "label": "y", "batch_size": BATCH, "seed": 3, **options}
    return launch.finished(spark, cell, names, seconds=300, data=data, **options)


def test_a_data_frame(spark_cluster):
    ended = run(spark_cluster(2), validation="held_out")
    for rank in range(2):
        assert learned(ended, rank) == expected(TABLE, HELD_OUT)
        assert f"counted: {ROWS // 2} 350" in ended.logs(rank)
    for beginning in (BEGINNING, "predict gets --data here"):
        (notice,) = notices(ended, beginning)
        assert "share of the rows: 1 of 2; " in notice and "ddl.all_rows(dataset)" in notice


@pytest.fixture
def files(tmp_path):
    TABLE.iloc[:800].to_parquet(tmp_path / "1.parquet", index=False)
    TABLE.iloc[800:].to_parquet(tmp_path / "2.parquet", index=False)
    return f"file://{tmp_path}/*.parquet"


def test_files_and_a_parameter_server(spark_cluster, files):
    """Whose workers meet for nothing else."""
    ended = run(spark_cluster(2), files, strategy="ps")
    for rank in range(2):
        assert learned(ended, rank) == expected(TABLE)
    assert len(notices(ended, BEGINNING)) == 1


COUNTS = """
import keras, numpy as np
rows = dataset.map(lambda x, y: (x[:, None], y))
model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
history = model.fit(rows.repeat(), steps_per_epoch=8, epochs=2, verbose=0)
model.evaluate(rows, verbose=0)
mean = keras.metrics.Mean()
for x, y in dataset:
    mean.update_state(y)
try:
    result_of_all = getattr(ddl, "_result"[1:])  # a cell that names it knows of shares, and is told nothing
    print("result:", float(result_of_all(mean)))
except RuntimeError as error:
    print("result:", error)
"""


@pytest.mark.parametrize("strategy", ["average", "ps"])
def test_workers_that_update_by_themselves_count_together(spark_cluster, strategy):
    """Steps of an epoch are those of all, and what is of one worker's rows alone says so."""
    frame = pd.DataFrame({"x": np.linspace(0, 1, 128, dtype=np.float32), "y": np.float32(np.arange(128) > 40)})
    options = {"data": "df", "label": "y", "batch_size": 8, "strategy": strategy}
    ended = launch.finished(spark_cluster(2), COUNTS, {"df": frame}, **options)
    for rank in range(2):
        steps = [event["count"] for event in ended.of_kind("steps") if event["rank"] == rank]
        assert sum(steps) == 8
        found = ended.logs(rank).partition("result: ")[2].partition("\n")[0]
        assert (
            found.startswith("ddl.result needs workers that meet")
            if strategy == "ps"
            else (float(found) == pytest.approx(87 / 128))
        )
    assert len(notices(ended, "evaluate gets --data here")) == (1 if strategy == "ps" else 0)


@pytest.mark.slow
@pytest.mark.executors(3)
def test_three_workers(spark_cluster):
    spark = spark_cluster(3)
    ended = run(spark, workers=3)
    assert [learned(ended, rank) == expected(TABLE) for rank in range(3)] == [True] * 3
    ended = run(spark, cell=ALL_ROWS, workers=3)
    assert all(f"in order: True {ROWS}" in ended.logs(rank) for rank in range(3))


@pytest.mark.slow
def test_nothing_is_said_of_a_loop_that_trains(spark_cluster):
    """Its share is what it is to have."""
    ended = run(spark_cluster(2), cell=LOOP)
    assert ended.of_kind("fit") and notices(ended, BEGINNING) == []
    ended = run(spark_cluster(2), cell="list(dataset)" + LOOP)
    assert len(notices(ended, BEGINNING)) == 1


@pytest.mark.slow
@pytest.mark.keras2
def test_keras2(spark_cluster):
    ended = run(spark_cluster(2, paths.KERAS2_PYTHON), validation="held_out")
    for rank in range(2):
        assert learned(ended, rank) == expected(TABLE, HELD_OUT, paths.KERAS2_PYTHON)
    assert len(notices(ended, BEGINNING)) == 1
