"""Two bidirectional LSTMs over embedded words.

Like: nlp/bidirectional_lstm_imdb
"""

random = np.random.default_rng(33)
words = random.integers(0, 20, (66, 7))
labels = random.integers(0, 2, 66)

inputs = keras.Input((None,), dtype="int32")
x = layers.Embedding(20, 6)(inputs)
x = layers.Bidirectional(layers.LSTM(4, return_sequences=True))(x)
x = layers.Bidirectional(layers.LSTM(4))(x)
model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x))
model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
history = model.fit(words, labels, batch_size=16, epochs=2, verbose=0)
