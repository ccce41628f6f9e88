"""An encoder and a causal decoder with attention across; masks of padding pass through both.

Like: nlp/neural_machine_translation_with_transformer
"""

random = np.random.default_rng(35)
padding = np.arange(6) >= random.integers(2, 7, (50, 1))
english, spanish = (np.where(padding, 0, random.integers(1, 15, (50, 6))) for _ in range(2))
target = np.roll(spanish, -1, 1)


class WordsAndPlaces(layers.Layer):
    def __init__(self):
        super().__init__()
        self.words, self.places = layers.Embedding(15, 6, mask_zero=True), layers.Embedding(6, 6)
        self.supports_masking = True

    def call(self, x):
        return self.words(x) + self.places(tf.range(6))

    def compute_mask(self, x, mask=None):
        return self.words.compute_mask(x)


source, given = keras.Input((6,), dtype="int64"), keras.Input((6,), dtype="int64")
x = WordsAndPlaces()(source)
x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 6)(x, x))
y = WordsAndPlaces()(given)
y = layers.LayerNormalization()(y + layers.MultiHeadAttention(2, 6)(y, y, use_causal_mask=True))
y = layers.LayerNormalization()(y + layers.MultiHeadAttention(2, 6)(y, x, x))
model = keras.Model({"source": source, "given": given}, layers.Dense(15, activation="softmax")(y))
model.compile("rmsprop", keras.losses.SparseCategoricalCrossentropy(ignore_class=0), metrics=["accuracy"])
data = tf.data.Dataset.from_tensor_slices(({"source": english, "given": spanish}, target)).batch(16).cache()
history = model.fit(data, epochs=2, validation_data=data.take(2), verbose=0)
