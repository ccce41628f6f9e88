"""Lists of several lengths: ragged tensors in `dataset`, or padded by --pad, from the rows to the model."""

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from support import comparison, launch
from support.feeds import LocalSpark, open_rank, refusal, shares, spec

from ddl_magics.runtime.data import by_value, packing
from ddl_magics.runtime.scoring import scorer

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
        _, arrays = scorer.tensors(batch, plan, make_arrays)
        numbers, texts, _ = scorer.as_inputs(arrays, made.inputs, "float32")
        if padding:
            assert numbers.tolist() == padded([row[0] for row in batch], 3, 0)
            assert texts.numpy().tolist() == encoded(padded([row[1] for row in batch], 2, ""))
        else:
            assert (numbers.dtype, numbers.to_list()) == (tf.int64, [row[0] for row in batch])
            assert texts.to_list() == encoded([row[1] for row in batch])


CELL = """
import keras, tensorflow as tf
keras.config.set_floatx("float64")
keras.config.set_dtype_policy("float64")
ids, words = keras.Input((None,), dtype="int64", ragged=True, name="n"), keras.Input((3,), dtype="string", name="t")
of_ids = keras.layers.Embedding(1000, 3, embeddings_initializer=keras.initializers.RandomUniform(seed=1))(ids)
of_ids = keras.layers.Lambda(lambda x: tf.reduce_sum(x, 1), output_shape=(3,))(of_ids)
hashed = keras.layers.Hashing(50)(words)
of_words = keras.layers.Embedding(50, 3, embeddings_initializer=keras.initializers.RandomUniform(seed=2))(hashed)
of_words = keras.layers.Conv1D(2, 2, kernel_initializer="ones", activation="tanh")(of_words)
joined = keras.layers.Concatenate()([of_ids, keras.layers.Flatten()(of_words)])
model = keras.Model({"n": ids, "t": words}, keras.layers.Dense(1, kernel_initializer="ones")(joined))
model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
fit = model.fit(dataset, validation_data=validation, epochs=2, verbose=0)
{"history": fit.history, "weights": [w.tolist() for w in model.get_weights()]}
"""


def test_two_workers_learn_of_ragged_and_padded_rows_what_keras_learns(spark, tmp_path):
    """Of rows that plain TensorFlow makes ragged or pads, in the order that one worker has."""
    rows = frame()
    options = {"data": "df", "features": ["n", "t"], "label": "y", "validation": 0.2, "pad": ["t=3"]}
    ended = launch.finished(spark, CELL, {"df": rows}, batch_size=16, **options)
    numbered = {**options, "features": ["row"]}
    numbered.pop("pad")
    manifest, folders, _ = shares(LocalSpark(), rows, tmp_path, workers=1, **numbered)
    learned = {}
    floatx, policy = keras.config.floatx(), keras.config.dtype_policy()

    def plain(dataset, epochs):
        ids = tf.ragged.constant(NUMBERS, tf.int64, row_splits_dtype=tf.int64)
        words, labels = tf.constant(padded(TEXTS, 3, "")), tf.constant(rows["y"].to_numpy())
        orders = [tf.concat([batch for batch, _ in dataset], 0) for _ in range(epochs)]
        order = tf.concat(orders, 0)
        batches = tf.data.Dataset.from_tensor_slices(
            ({"n": tf.gather(ids, order), "t": tf.gather(words, order)}, tf.gather(labels, order))
        )
        return batches, len(orders[0])

    try:
        train, validation = open_rank(manifest, folders, 0, 16, seed=11)
        (train, count), (held_out, _) = plain(train, 2), plain(validation, 1)
        epochs = [train.take(count).batch(16), train.skip(count).batch(16)]
        scope = {"dataset": None, "validation": held_out.batch(16)}
        of_epochs = CELL.replace("fit = model.fit(dataset, validation_data=validation, epochs=2, verbose=0)", "")
        exec(of_epochs.rpartition("{")[0].rpartition("\n")[0].replace("fit.history", "{}"), scope)
        histories = [
            scope["model"].fit(e, validation_data=scope["validation"], verbose=0, shuffle=False).history for e in epochs
        ]
        learned = {
            "history": {name: [h[name][0] for h in histories] for name in histories[0]},
            "weights": [weights.tolist() for weights in scope["model"].get_weights()],
        }
    finally:
        keras.config.set_floatx(floatx)
        keras.config.set_dtype_policy(policy)
    comparison.assert_equal(ended.result, learned)
