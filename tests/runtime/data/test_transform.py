"""--transform: a function between the rows and the model."""

import numpy as np
import pytest
import tensorflow as tf

from ddl_magics.runtime.data import transform


def mapped(dataset, function, by_batch=False, training=True):
    return transform.mapped(tf, dataset, transform.for_rows(function, training), by_batch)


def test_a_function_of_a_row_is_mapped_over_the_rows_of_each_batch():
    """Images of several sizes, which become one size; the others of an element stay, and so does the cardinality."""
    sizes = [(3, 5), (4, 4), (6, 2), (2, 2), (5, 5)]
    images = [np.full((*size, 1), number * 10, np.uint8) for number, size in enumerate(sizes)]
    encoded = [tf.io.encode_png(image).numpy() for image in images]
    dataset = tf.data.Dataset.from_tensor_slices((encoded, np.arange(5))).batch(2)

    def decode(data):
        return tf.image.resize(tf.io.decode_png(data, channels=1), (4, 4)) / 10.0

    made = mapped(dataset, decode)
    assert made.cardinality() == 3 and made.element_spec[0].shape.as_list() == [None, 4, 4, 1]
    batches = list(made)
    assert [len(labels) for _, labels in batches] == [2, 2, 1]
    for number, image in enumerate(np.concatenate([features for features, _ in batches])):
        np.testing.assert_allclose(image, np.full((4, 4, 1), number), rtol=1e-6)


def test_a_function_of_a_row_knows_its_shape():
    made = transform.applied(tf, lambda row: tf.reduce_sum(tf.ensure_shape(row, [3])), False, tf.ones((2, 3)))
    np.testing.assert_array_equal(made, [3, 3])


def test_dicts_weights_and_a_batch_without_rows():
    features = {"a": np.arange(4.0), "b": np.arange(8.0).reshape(4, 2)}
    dataset = tf.data.Dataset.from_tensor_slices((features, np.arange(4), np.ones(4))).batch(4)
    dataset = dataset.concatenate(dataset.map(lambda *element: tf.nest.map_structure(lambda part: part[:0], element)))
    made = mapped(dataset, lambda row: {"sum": row["a"] + tf.reduce_sum(row["b"]), "pair": row["b"]})
    full, empty = list(made)
    np.testing.assert_array_equal(full[0]["sum"], [1.0, 6.0, 11.0, 16.0])
    assert [part.shape.as_list() for part in tf.nest.flatten(empty)] == [[0, 2], [0], [0], [0]]


@pytest.mark.parametrize("by_batch", [True, False])
def test_a_function_without_a_value(by_batch):
    dataset = tf.data.Dataset.from_tensor_slices(np.ones((4, 2), np.float32)).batch(2)
    with pytest.raises(TypeError, match="it returns None, and not what the model takes"):
        mapped(dataset, lambda rows: None, by_batch)


def test_it_is_told_which_rows_are_for_training():
    dataset = tf.data.Dataset.from_tensor_slices(np.ones((4, 2), np.float32)).batch(2)

    def augment(rows, training):
        return rows + 1 if training else rows

    for training, value in ((True, 2.0), (False, 1.0)):
        for by_batch in (True, False):
            (first, *_) = mapped(dataset, augment, by_batch, training)
            np.testing.assert_array_equal(first, np.full((2, 2), value))


def test_a_layer_of_keras_is_a_function():
    import keras

    dataset = tf.data.Dataset.from_tensor_slices(np.ones((4, 2), np.float32)).batch(2)
    layer = keras.layers.Dropout(0.999, seed=1)
    (dropped, *_) = mapped(dataset, layer, True, True)
    (kept, *_) = mapped(dataset, layer, True, False)
    assert not np.asarray(dropped).any() and np.asarray(kept).all()


@pytest.mark.parametrize("text", ["", "a.b", "decode:rows", "decode:", "1x"])
def test_what_names_no_function_is_refused(text):
    with pytest.raises(ValueError, match="the name of a function"):
        transform.read(text)


def test_names():
    assert transform.read("decode") == ("decode", False)
    assert transform.read("decode:batch") == ("decode", True)
