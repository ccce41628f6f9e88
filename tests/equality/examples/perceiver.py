"""A latent array of weights attends to the patches of an image.

Like: vision/perceiver_image_classification
"""

random = np.random.default_rng(24)
patches = random.normal(size=(50, 9, 6))
labels = random.integers(0, 4, 50)


class Perceiver(keras.Model):
    def __init__(self):
        super().__init__()
        self.cross, self.own = layers.MultiHeadAttention(1, 6), layers.MultiHeadAttention(2, 6)
        self.normal, self.dense = layers.LayerNormalization(), layers.Dense(6, activation="gelu")
        self.pooled, self.out = layers.GlobalAveragePooling1D(), layers.Dense(4)

    def build(self, shape):
        self.latent = self.add_weight(name="latent", shape=(5, 6), initializer="random_normal", trainable=True)
        super().build(shape)

    def call(self, x):
        latent = tf.repeat(self.latent[None], tf.shape(x)[0], 0)
        for _ in range(2):
            latent = latent + self.dense(self.cross(latent, x))
            latent = self.normal(latent + self.own(latent, latent))
        return self.out(self.pooled(latent))


model = Perceiver()
model.compile(
    keras.optimizers.Adam(2e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["acc"]
)
history = model.fit(patches, labels, batch_size=16, epochs=2, validation_split=0.1, verbose=0)
