"""Fourier transforms in the place of attention.

Like: nlp/fnet_classification_with_keras_hub
"""

random = np.random.default_rng(42)
words = random.integers(1, 20, (70, 8))
labels = random.integers(0, 2, 70)


class Fourier(layers.Layer):
    def __init__(self):
        super().__init__()
        self.dense = keras.Sequential([layers.Dense(8, activation="gelu"), layers.Dense(6)])
        self.normal = layers.LayerNormalization(epsilon=1e-6)

    def call(self, x):
        mixed = tf.math.real(tf.signal.fft2d(tf.complex(x, tf.zeros_like(x))))
        x = self.normal(x + mixed)
        return x + self.dense(x)


inputs = keras.Input((8,), dtype="int32")
x = layers.GlobalAveragePooling1D()(Fourier()(Fourier()(layers.Embedding(20, 6)(inputs))))
model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x))
model.compile(keras.optimizers.Adam(1e-3), "binary_crossentropy", metrics=["accuracy"])
history = model.fit(words, labels, batch_size=16, epochs=2, verbose=0)
