"""Models whose axes are as long as the longest row of a batch; follows the text of loops.py in the same cell."""

import keras
import numpy as np
import tensorflow as tf
from cases import layers  # cell: dropped
from loops import distributed  # cell: dropped

BUCKETS, WORDS = 40, 27
BATCHES = 25  # 102 rows: the last batch has fewer than 3 workers


def texts(rows=102, seed=5):
    """(texts of 1 to 26 words, whether one of them is w3)."""
    random = np.random.default_rng(seed)
    rows_of_words = [[f"w{word}" for word in random.integers(0, 30, random.integers(1, WORDS))] for _ in range(rows)]
    has_word = np.array([["w3" in words] for words in rows_of_words], "float64")
    return np.array([" ".join(words) for words in rows_of_words]), has_word


def batches(features, labels):
    return tf.data.Dataset.from_tensor_slices((features, labels)).batch(BATCHES)


def numbers_of_words(of_texts):
    return tf.strings.to_hash_bucket_fast(tf.strings.split(of_texts), BUCKETS)


class OfWords(keras.Model):
    """Layers on the embedded words of a text. words: makes their numbers of the inputs."""

    def __init__(self, words, *after):
        super().__init__()
        self.words = words
        self.parts = [layers.Embedding(BUCKETS, 4), *after, layers.Dense(1, activation="sigmoid")]

    def call(self, inputs):
        outputs = self.words(inputs)
        for part in self.parts:
            outputs = part(outputs)
        return outputs


def fit_words(model, features, labels, **compiled):
    model.compile(keras.optimizers.SGD(0.3), "binary_crossentropy", **compiled)
    data = batches(features, labels)
    history = model.fit(data, epochs=2, validation_data=data.take(3), verbose=0)
    predicted = model.predict(data, verbose=0)
    return model, {
        **history.history,
        "alone": np.ravel(model.evaluate(data, verbose=0)),
        "predicted": [predicted.sum()],
    }


def vectorized_in_the_model(dtype):
    """By layers of Keras alone, which are not tried; several steps at once, in a loop of TensorFlow."""
    of_words, labels = texts()
    vectorize = layers.TextVectorization(max_tokens=BUCKETS)
    vectorize.adapt(of_words.tolist())
    after = [layers.Conv1D(5, 3, padding="same", activation="relu"), layers.GlobalAveragePooling1D()]
    parts = [vectorize, layers.Embedding(BUCKETS, 4), *after, layers.Dense(1, activation="sigmoid")]
    model = keras.Sequential([keras.Input((1,), dtype="string"), *parts])
    return fit_words(model, of_words[:, None], labels, steps_per_execution=2, metrics=["mae"])


def split_in_the_model(dtype):
    of_words, labels = texts()
    return fit_words(OfWords(lambda inputs: numbers_of_words(inputs).to_tensor(), layers.LSTM(4)), of_words, labels)


def ragged_rows(dtype):
    of_words, labels = texts()
    model = OfWords(lambda ragged: ragged.to_tensor(default_value=1), layers.GlobalAveragePooling1D())
    return fit_words(model, numbers_of_words(of_words), labels)


def ragged_rows_eagerly(dtype):
    of_words, labels = texts(52)
    model = OfWords(lambda ragged: ragged.to_tensor(), layers.GlobalAveragePooling1D())
    return fit_words(model, numbers_of_words(of_words), labels, run_eagerly=True)


def masks_of_lengths(dtype):
    """As long as the longest row, in a step of the cell's own."""

    class Own(OfWords):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(keras.losses.binary_crossentropy(y, self(x, training=True)))
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            return {"loss": loss}

    of_words, labels = texts()
    lengths = np.array([len(text.split()) for text in of_words])
    model = Own(lambda rows: tf.cast(tf.sequence_mask(rows), tf.int64), layers.GlobalAveragePooling1D())
    return fit_words(model, lengths, labels)


def tape_of_ragged_rows(dtype):
    of_words, labels = texts()
    model = OfWords(lambda ragged: ragged.to_tensor(), layers.GlobalAveragePooling1D())
    optimizer, loss_of = keras.optimizers.SGD(0.3), keras.losses.BinaryCrossentropy()

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    for _ in range(2):
        for x, y in distributed(batches(numbers_of_words(of_words), labels)):
            step(x, y)
    return model, {}
