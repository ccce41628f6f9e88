"""Lists of several lengths: ragged tensors in `dataset`, or padded by --pad, from the rows to the model."""

import json

import keras
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from support import comparison, launch
from support.feeds import LocalSpark, learned, open_rank, refusal, shares, spec

import ddl_magics
from ddl_magics.models import signature
from ddl_magics.runtime.data import by_value, packing, parquet
from ddl_magics.runtime.scoring import scorer, windows

ROWS = 61
NUMBERS = [[row * 10 + k for k in range(row % 4)] for row in range(ROWS)]
TEXTS = [[f"ä{row}-{k}" * (k % 2) for k in range(row % 3 + 1)] for row in range(ROWS)]


def frame(**columns):
    lists = {"n": NUMBERS, "t": TEXTS, "row": np.arange(ROWS)}
    return pd.DataFrame({**lists, "y": np.arange(ROWS) % 5 / 4.0, **columns})


def padded(rows, length, blank):
    return [(row + [blank] * length)[:length] for row in rows]


def seen(frame, folder, set_name="train", **options):
    """(element spec, {row: (numbers, texts)}, sizes of each rank's batches) that two ranks read, and the feed."""
    manifest, folders, made = shares(LocalSpark(), frame, folder, workers=2, features=["n", "t", "row"], **options)
    rows, sizes = {}, []
    for rank in range(2):
        dataset = open_rank(manifest, folders, rank, batch_size=8)[set_name != "train"]
        batches = [batch[0] for batch in dataset]
        sizes.append([int(batch["row"].shape[0]) for batch in batches])
        for batch in batches:
            values = [batch[name] for name in ("n", "t")]
            lists = [each.to_list() if isinstance(each, tf.RaggedTensor) else each.numpy().tolist() for each in values]
            rows.update(zip(batch["row"].numpy().tolist(), zip(*lists, strict=True), strict=True))
    return dataset.element_spec[0], rows, sizes, made


def encoded(texts):
    return [[text.encode() for text in row] for row in texts]


def test_ranks_read_each_row_in_ragged_tensors_and_make_equal_steps(tmp_path):
    element, rows, sizes, made = seen(frame(), tmp_path)
    assert rows == dict(enumerate(zip(NUMBERS, encoded(TEXTS), strict=True)))
    assert len(sizes[0]) == len(sizes[1]) == 8 and sum(map(sum, sizes)) == ROWS
    assert [element["n"], element["t"]] == [tf.RaggedTensorSpec([None, None], d) for d in (tf.int64, tf.string)]
    assert [notice for notice in made.notices if "'n'" in notice] == [
        "--data df: column 'n' has lists of several lengths, and is a ragged tensor; dense in `dataset.map`, they are "
        "as long as the longest row of the worker's part of a batch: --pad n=LENGTH"
    ]


def test_floats_have_floatx_and_nan_is_told(tmp_path):
    floats = [np.array(row) / 3 for row in NUMBERS]
    floats[2] = np.array([np.nan])
    element, rows, _, made = seen(frame(n=floats), tmp_path)
    assert element["n"].dtype == tf.float32
    assert rows[7][0] == np.array(NUMBERS[7], "f4").tolist() or np.allclose(rows[7][0], floats[7])
    assert any("column 'n' holds NaN" in notice for notice in made.notices)


def test_pad_fills_up_and_cuts(tmp_path):
    element, rows, _, made = seen(frame(), tmp_path, pad=["n=2", "t=4"], validation=0.3)
    expected = list(zip(padded(NUMBERS, 2, 0), encoded(padded(TEXTS, 4, "")), strict=True))
    assert [element["n"].shape.as_list(), element["t"].shape.as_list()] == [[None, 2], [None, 4]]
    assert rows and all(values == expected[row] for row, values in rows.items())
    assert made.inputs["padding"] == {"n": 2, "t": 4} and not any("ragged" in notice for notice in made.notices)


def test_lists_of_one_length_are_dense_unless_validation_has_others(tmp_path):
    alike = frame(n=[[row, row] for row in range(ROWS)])
    element, _, _, made = seen(alike, tmp_path / "alike")
    assert element["n"].shape.as_list() == [None, 2] and "ragged" not in made.inputs["columns"][0]
    element, rows, _, _ = seen(alike, tmp_path / "others", validation="v", namespace={"v": frame()})
    assert isinstance(element["n"], tf.RaggedTensorSpec) and rows[3][0] == [3, 3]


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({}, {"pad": ["m=2"]}, "--pad m=2: it is not among the columns that are used: n, y"),
        ({}, {"pad": ["n=2", "n=3"]}, "--pad gives column n two lengths: leave one of them out"),
        ({}, {"pad": ["y=2"]}, "--pad y=2: its values are no lists of numbers or texts"),
        ({"n": [[]] * ROWS}, {}, "column 'n' of df holds empty arrays"),
        ({"n": [[1, None]] + NUMBERS[1:]}, {}, "df, column 'n': it has empty values (null): fill them or drop"),
        ({"n": [None] + NUMBERS[1:]}, {"pad": ["n=2"]}, "df, column 'n': it has empty values (null): fill them"),
        ({"n": [[1]] + ["word"] + NUMBERS[2:]}, {}, "df, column 'n': it has lists, and 'word', which is a text"),
    ],
)
def test_what_is_no_list_is_refused(columns, options, message):
    line = refusal(LocalSpark(), frame(**columns), spec(features=["n"], **options))
    assert line.startswith(message)


def test_a_ragged_label_is_refused():
    line = refusal(LocalSpark(), frame(), spec(features=["row"], label="n"))
    assert "column 'n': its lengths differ (0 and 1): pad or cut them to one length, as --pad n=LENGTH does" in line


@pytest.mark.parametrize(
    ("values", "size"), [([[1, 2, 3], [], [4]], -1), ([[5, 6], [7, 8]], -1), ([[5, 6], [7, 8]], 2)]
)
@pytest.mark.parametrize("choice", [{"pad": 2}, {"ragged": "if needed"}, {"ragged": "always"}])
def test_arrow_packs_what_rows_pack(values, size, choice):
    pa = pytest.importorskip("pyarrow")
    column = {"name": "x", "dtype": "i8", "depth": 1, "vector": False, **choice}
    array = pa.array(values, pa.list_(pa.int64(), size))
    by_rows = packing.packed(packing.row_arrays, [(value,) for value in values], [column], [[0]])
    by_arrow = packing.pack_batch(pa.RecordBatch.from_arrays([array], ["x"]), [column], [[0]])
    assert by_arrow == by_rows


@pytest.mark.parametrize("padding", [None, ["n=3", "t=2"]])
def test_rows_are_scored_as_they_were_in_training(tmp_path, padding):
    """Also where the rows of a batch have one length."""
    *_, made = seen(frame(), tmp_path, pad=padding)
    make_arrays = by_value.functions_of(packing)["row_arrays"]
    plan = {"inputs": made.inputs, "indices": [0, 1, 2], "lenient": False}
    for picked in (range(8), [3, 7]):
        batch = [(NUMBERS[row], TEXTS[row], row) for row in picked]
        _, arrays = scorer.tensors(batch, plan, make_arrays, "float32")
        numbers, texts, _ = scorer.as_inputs(arrays, made.inputs, "float32")
        if padding:
            assert numbers.tolist() == padded([row[0] for row in batch], 3, 0)
            assert texts.numpy().tolist() == encoded(padded([row[1] for row in batch], 2, ""))
        else:
            assert (numbers.dtype, numbers.to_list()) == (tf.int64, [row[0] for row in batch])
            assert texts.to_list() == encoded([row[1] for row in batch])


def test_each_row_group_tells_of_lists_of_another_length(tmp_path):
    """Also where names have dots, and other columns' names begin in the same way."""
    columns = [{"name": name, "ragged": "if needed"} for name in ("a.b", "a", "c")]

    def ragged(**tables):
        path = tmp_path / "file.parquet"
        table = pa.table({name: pa.array(lists, pa.list_(pa.int64())) for name, lists in tables.items()})
        pq.write_table(table, path, row_group_size=2)
        return parquet.ragged_in_metadata(pq.read_metadata(path), columns, [[2], [2], [1]])

    uniform = [[1, 2]] * 6
    tables = {"c": [[1]] * 6, "a": uniform, "abc": [[1], []] * 3}
    assert ragged(**tables) is None
    assert ragged(**tables, **{"a.b": uniform}) is None
    assert ragged(**tables, **{"a.b": [*uniform[:4], [1], [2]]}) == "a.b"
    assert ragged(**{**tables, "c": [[1]] * 5 + [[1, 2]]}) == "c"
    assert parquet.ragged_in_metadata(pq.read_metadata(tmp_path / "file.parquet"), [{"name": "c"}], [[1]]) is None


def test_predictions_and_evaluations_of_ragged_and_padded_rows(spark, tmp_path):
    """Are those of one process; of no row, there is a prediction without any."""

    class Summed(keras.layers.Layer):
        def call(self, ids, texts):
            sums = tf.reduce_sum(ids.with_values(tf.cast(ids.values, "float32")), 1, keepdims=True)
            return tf.concat([sums, tf.cast(tf.strings.length(texts), "float32")], 1)

        def compute_output_shape(self, ids_shape, texts_shape):
            return (None, 3)

    rows = frame()
    *_, made = seen(rows, tmp_path, pad=["t=2"])
    ids, words = keras.Input((None,), dtype="int64", ragged=True, name="n"), keras.Input((2,), dtype="string", name="t")
    number = keras.Input((), dtype="int64", name="row")
    joined = keras.layers.Concatenate()([Summed()(ids, words), keras.layers.Reshape((1,))(number)])
    outputs = keras.layers.Dense(1, kernel_initializer=keras.initializers.RandomUniform(seed=3))(joined)
    model = keras.Model({"n": ids, "t": words, "row": number}, outputs)
    model.compile("sgd", "mse", metrics=["mae", keras.metrics.MeanAbsoluteError(name="again")])
    given = {
        "n": tf.ragged.constant(NUMBERS, tf.int64),
        "t": tf.constant(padded(TEXTS, 2, "")),
        "row": tf.constant(rows["row"]),
    }
    expected = {"predicted": model(given).numpy().ravel(), "metrics": model.test_on_batch(given, rows["y"])}

    table = spark.createDataFrame(list(rows.itertuples(index=False, name=None)), list(rows.columns)).repartition(3)
    options = {"features": json.loads(json.dumps(made.inputs)), "custom_objects": {"Summed": Summed}, "batch_size": 8}
    scored = ddl_magics.predict(table, model, **options)
    by_row = {row["row"]: row["prediction"] for row in scored.collect()}
    np.testing.assert_allclose([by_row[row] for row in range(ROWS)], expected["predicted"], rtol=1e-5)
    assert ddl_magics.predict(table.where("false"), model, **options).schema == scored.schema
    found = ddl_magics.evaluate(table, model, label="y", **options)
    np.testing.assert_allclose([found["loss"], found["mae"], found["again"]], expected["metrics"], rtol=1e-5)


def test_windows_are_scored_as_they_were_padded_in_training(spark):
    columns = [{"name": n, "dtype": d, "depth": 1, "vector": False, "pad": 2} for n, d in (("n", "<i8"), ("t", "S"))]
    window = {"length": 2, "order_by": "row", "group_by": []}
    inputs = {"columns": columns, "tensors": [[0], [1]], "uses": ["int64", "string"], "shapes": [[2], [2]]}
    table = spark.createDataFrame(
        [([], ["a"], 0), ([1, 2, 3], ["b", "c"], 1)], "n array<int>, t array<string>, row int"
    )
    windowed, *_ = windows.with_windows(table, "df", {**inputs, "features": 0, "window": window}, lenient=False)
    (row,) = windowed.collect()
    assert (row["__window_0"], row["__window_1"]) == ([[0, 0], [1, 2]], [["a", ""], ["b", "c"]])


def test_a_served_model_takes_lists_of_the_length_of_their_padding(tmp_path):
    """Also where it leaves the length open: of others, it would give what no training has seen."""
    *_, made = seen(frame(), tmp_path, pad=["n=3", "t=2"])
    ids, number = keras.Input((None,), dtype="int64", name="n"), keras.Input((), dtype="int64", name="row")
    convolved = keras.layers.Conv1D(1, 2)(keras.layers.Embedding(9, 4)(ids))
    pooled = keras.layers.GlobalAveragePooling1D()(convolved)
    model = keras.Model({"n": ids, "row": number}, [pooled, keras.layers.Reshape((1,))(number)])
    example = signature.example_for(model, made.inputs)
    shapes = {tensor.name: tensor.shape for tensor in signature.signature_of(model, example, made.inputs).inputs}
    assert shapes == {"n": (3,), "row": ()}


LENGTHS = np.random.default_rng(5).integers(1, 31, 300).tolist()
CELL = """
import keras, tensorflow as tf
keras.config.set_floatx("float64")
keras.config.set_dtype_policy("float64")
def embedding(size, seed, **more):
    return keras.layers.Embedding(size, 3, embeddings_initializer=keras.initializers.RandomUniform(seed=seed), **more)
def dense(rows):
    return keras.layers.Lambda(lambda rows: rows.to_tensor(), output_shape=(None,))(rows)
ids, words = keras.Input((None,), dtype="int64", ragged=True, name="n"), keras.Input((3,), dtype="string", name="t")
tags = keras.Input((None,), dtype="string", ragged=True, name="u")
convolved = keras.layers.Conv1D(2, 3, padding="same", kernel_initializer="ones", activation="tanh")
of_ids = keras.layers.GlobalAveragePooling1D()(convolved(embedding(40, 1)(dense(ids))))
masked = keras.layers.GlobalAveragePooling1D()(embedding(40, 2, mask_zero=True)(dense(ids)))
of_words = keras.layers.Flatten()(embedding(50, 3)(keras.layers.Hashing(50)(words)))
lookup = keras.layers.StringLookup()
lookup.adapt(validation.map(lambda x, y: x["u"]))
of_tags = embedding(lookup.vocabulary_size(), 4)(lookup(tags))
of_tags = keras.layers.Lambda(lambda rows: tf.reduce_sum(rows, 1), output_shape=(3,))(of_tags)
joined = keras.layers.Concatenate()([of_ids, masked, of_words, of_tags])
outputs = keras.layers.Dense(1, kernel_initializer="ones")(joined)
model = keras.Model({"n": ids, "t": words, "u": tags}, outputs)
model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
fit = model.fit(dataset, validation_data=validation, epochs=2, verbose=0)
{"history": fit.history, "weights": [w.tolist() for w in model.get_weights() if w.dtype.kind == "f"]}
"""


def test_two_workers_learn_of_ragged_and_padded_rows_what_one_process_learns(spark, tmp_path):
    """On an axis as long as the longest row of the batch; as many rows as have one order for 1 and 2 workers."""
    rows = pd.DataFrame(
        {
            "n": [[1 + (row + k * k) % 39 for k in range(length)] for row, length in enumerate(LENGTHS)],
            "t": [[f"w{row * k % 9}" for k in range(length % 6)] for row, length in enumerate(LENGTHS)],
            "u": [[f"t{row * k % 7}" for k in range(length % 4)] for row, length in enumerate(LENGTHS)],
            "y": np.arange(len(LENGTHS)) % 5 / 4.0,
        }
    )
    options = {"data": "df", "features": ["n", "t", "u"], "label": "y", "validation": 0.2, "pad": ["t=3"]}
    ended = launch.finished(spark, CELL, {"df": rows}, batch_size=16, **options)
    manifest, folders, _ = shares(LocalSpark(), rows, tmp_path, workers=1, **options)
    comparison.assert_equal(ended.result, learned(CELL, manifest, folders, 16, seed=11))
