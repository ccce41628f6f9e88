"""Strings become word numbers in the data pipeline; convolutions classify them.

Like: nlp/text_classification_from_scratch
"""

random = np.random.default_rng(31)
words = np.array(["good", "bad", "film", "plot", "the", "a", "very", "<br />"])
texts = np.array([" ".join(random.choice(words, random.integers(3, 9))) for _ in range(60)])
labels = random.integers(0, 2, 60)


def clean(text):
    return tf.strings.regex_replace(tf.strings.lower(text), "<br />", " ")


vectorize = layers.TextVectorization(max_tokens=10, output_sequence_length=8, standardize=clean)
raw = tf.data.Dataset.from_tensor_slices((texts, labels)).batch(16)
vectorize.adapt(raw.map(lambda text, label: text))
data = raw.map(lambda text, label: (vectorize(tf.expand_dims(text, -1)), label)).cache().prefetch(4)

inputs = keras.Input((None,), dtype="int64")
x = layers.Dropout(0.0)(layers.Embedding(10, 6)(inputs))
x = layers.Conv1D(6, 3, padding="valid", activation="relu")(x)
x = layers.Dense(5, activation="relu")(layers.GlobalMaxPooling1D()(x))
model = keras.Model(inputs, layers.Dense(1, activation="sigmoid", name="predictions")(x))
model.compile(loss="binary_crossentropy", optimizer="adam", metrics=["accuracy"])
history = model.fit(data, validation_data=data.take(1), epochs=2, verbose=0)
