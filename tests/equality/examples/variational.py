"""A sampled code between encoder and decoder: sums over pixels, means over rows, in a train_step (VAE).

Like: generative/vae
"""

random = np.random.default_rng(71)
images, noise = random.uniform(size=(58, 8, 8, 1)), random.normal(size=(58, 2))


class Sampling(layers.Layer):
    def call(self, inputs):
        mean, log_variance, noise = inputs
        return mean + tf.exp(0.5 * log_variance) * noise


class Variational(keras.Model):
    def __init__(self, encoder, decoder):
        super().__init__()
        self.encoder, self.decoder, self.sample = encoder, decoder, Sampling()
        self.trackers = [keras.metrics.Mean(name=name) for name in ("total", "reconstruction", "divergence")]

    @property
    def metrics(self):
        return self.trackers

    def train_step(self, data):
        image, noise = data
        with tf.GradientTape() as tape:
            mean, log_variance = self.encoder(image)
            made = self.decoder(self.sample([mean, log_variance, noise]))
            pixels = keras.losses.binary_crossentropy(image, made)
            reconstruction = tf.reduce_mean(tf.reduce_sum(pixels, (1, 2)))
            divergence = -0.5 * (1 + log_variance - tf.square(mean) - tf.exp(log_variance))
            divergence = tf.reduce_mean(tf.reduce_sum(divergence, 1))
            total = reconstruction + divergence
        weights = self.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(total, weights), weights, strict=True))
        for tracker, value in zip(self.trackers, (total, reconstruction, divergence), strict=True):
            tracker.update_state(value)
        return {tracker.name: tracker.result() for tracker in self.trackers}


given = keras.Input((8, 8, 1))
x = layers.Flatten()(layers.Conv2D(4, 3, activation="relu", strides=2, padding="same")(given))
encoder = keras.Model(given, [layers.Dense(2)(x), layers.Dense(2)(x)])
code = keras.Input((2,))
x = layers.Reshape((4, 4, 2))(layers.Dense(32, activation="relu")(code))
x = layers.Conv2DTranspose(4, 3, activation="relu", strides=2, padding="same")(x)
decoder = keras.Model(code, layers.Conv2DTranspose(1, 3, activation="sigmoid", padding="same")(x))
model = Variational(encoder, decoder)
model.compile(keras.optimizers.Adam())
history = model.fit(images, noise, batch_size=16, epochs=2, verbose=0)
