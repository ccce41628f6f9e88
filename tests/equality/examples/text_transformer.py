"""Embedded words and positions through a block of attention.

Like: nlp/text_classification_with_transformer
"""

random = np.random.default_rng(32)
words = random.integers(1, 20, (70, 8))
labels = random.integers(0, 2, 70)


class Block(layers.Layer):
    def __init__(self):
        super().__init__()
        self.attention = layers.MultiHeadAttention(2, 6)
        self.dense = keras.Sequential([layers.Dense(8, activation="relu"), layers.Dense(6)])
        self.normal1, self.normal2 = layers.LayerNormalization(epsilon=1e-6), layers.LayerNormalization(epsilon=1e-6)
        self.dropout = layers.Dropout(0.0)

    def call(self, x):
        x = self.normal1(x + self.dropout(self.attention(x, x)))
        return self.normal2(x + self.dense(x))


class WordsAndPlaces(layers.Layer):
    def __init__(self):
        super().__init__()
        self.words, self.places = layers.Embedding(20, 6), layers.Embedding(8, 6)

    def call(self, x):
        return self.words(x) + self.places(tf.range(tf.shape(x)[-1]))


inputs = keras.Input((8,), dtype="int32")
x = layers.GlobalAveragePooling1D()(Block()(WordsAndPlaces()(inputs)))
model = keras.Model(inputs, layers.Dense(2, activation="softmax")(layers.Dense(6, activation="relu")(x)))
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(words, labels, batch_size=16, epochs=2, validation_data=(words[:20], labels[:20]), verbose=0)
