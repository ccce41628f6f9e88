"""Codes from a book, with gradients copied past the choice; the layer adds losses, and a trainer sums them up (VQ-VAE).

Like: generative/vq_vae
"""

images = np.random.default_rng(76).uniform(size=(58, 8, 8, 1))
variance = float(np.var(images))


class Quantizer(layers.Layer):
    def build(self, shape):
        self.book = self.add_weight(name="book", shape=(shape[-1], 6), initializer="random_uniform", trainable=True)

    def call(self, x):
        flat = tf.reshape(x, [-1, x.shape[-1]])
        apart = (
            tf.reduce_sum(flat**2, 1, keepdims=True) + tf.reduce_sum(self.book**2, 0) - 2 * tf.matmul(flat, self.book)
        )
        chosen = tf.one_hot(tf.argmin(apart, 1), 6, dtype=flat.dtype)
        quantized = tf.reshape(tf.matmul(chosen, self.book, transpose_b=True), tf.shape(x))
        commitment = tf.reduce_mean((tf.stop_gradient(quantized) - x) ** 2)
        self.add_loss(0.25 * commitment + tf.reduce_mean((quantized - tf.stop_gradient(x)) ** 2))
        return x + tf.stop_gradient(quantized - x)


class Trainer(keras.Model):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.trackers = [keras.metrics.Mean(name=name) for name in ("total", "reconstruction", "book")]

    @property
    def metrics(self):
        return self.trackers

    def train_step(self, x):
        x = x[0] if isinstance(x, tuple) else x
        with tf.GradientTape() as tape:
            reconstruction = tf.reduce_mean((x - self.inner(x)) ** 2) / variance
            total = reconstruction + sum(self.inner.losses)
        weights = self.inner.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(total, weights), weights, strict=True))
        for tracker, value in zip(self.trackers, (total, reconstruction, sum(self.inner.losses)), strict=True):
            tracker.update_state(value)
        return {tracker.name: tracker.result() for tracker in self.trackers}


given = keras.Input((8, 8, 1))
x = layers.Conv2D(4, 3, activation="relu", strides=2, padding="same")(given)
x = Quantizer()(layers.Conv2D(3, 1)(x))
x = layers.Conv2DTranspose(4, 3, activation="relu", strides=2, padding="same")(x)
model = Trainer(keras.Model(given, layers.Conv2DTranspose(1, 3, padding="same")(x)))
model.compile(keras.optimizers.Adam())
history = model.fit(images, batch_size=16, epochs=2, verbose=0)
