"""A matrix of given word vectors that is not trained.

Like: nlp/pretrained_word_embeddings
"""

random = np.random.default_rng(41)
words = random.integers(0, 20, (70, 9))
labels = random.integers(0, 4, 70)
vectors = random.normal(size=(20, 6))

embedding = layers.Embedding(20, 6, trainable=False)
inputs = keras.Input((None,), dtype="int64")
x = embedding(inputs)
embedding.set_weights([vectors])
x = layers.MaxPooling1D(2)(layers.Conv1D(5, 3, activation="relu")(x))
x = layers.GlobalMaxPooling1D()(layers.Conv1D(5, 2, activation="relu")(x))
model = keras.Model(inputs, layers.Dense(4, activation="softmax")(layers.Dropout(0.0)(x)))
model.compile("rmsprop", "sparse_categorical_crossentropy", metrics=["acc"])
history = model.fit(words, labels, batch_size=16, epochs=2, validation_split=0.1, verbose=0)
