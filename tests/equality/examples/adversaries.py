"""Generator and discriminator with an optimizer each, in a train_step (DCGAN).

Like: generative/dcgan_overriding_train_step
"""

random = np.random.default_rng(72)
images, noise = random.uniform(size=(58, 8, 8, 1)), random.normal(size=(58, 5))


class Adversaries(keras.Model):
    def __init__(self, discriminator, generator):
        super().__init__()
        self.discriminator, self.generator = discriminator, generator
        self.of_judge, self.of_maker = keras.metrics.Mean(name="d_loss"), keras.metrics.Mean(name="g_loss")

    def compile(self, d_optimizer, g_optimizer, loss_fn):
        super().compile()
        self.d_optimizer, self.g_optimizer, self.loss_fn = d_optimizer, g_optimizer, loss_fn

    @property
    def metrics(self):
        return [self.of_judge, self.of_maker]

    def train_step(self, data):
        real, noise = data
        ones, zeros = (tf.fill([tf.shape(real)[0], 1], tf.constant(v, real.dtype)) for v in (1.0, 0.0))
        images, labels = tf.concat([self.generator(noise), real], 0), tf.concat([ones, zeros], 0)
        with tf.GradientTape() as tape:
            d_loss = self.loss_fn(labels, self.discriminator(images))
        weights = self.discriminator.trainable_weights
        self.d_optimizer.apply_gradients(zip(tape.gradient(d_loss, weights), weights, strict=True))
        with tf.GradientTape() as tape:
            g_loss = self.loss_fn(zeros, self.discriminator(self.generator(noise)))
        weights = self.generator.trainable_weights
        self.g_optimizer.apply_gradients(zip(tape.gradient(g_loss, weights), weights, strict=True))
        self.of_judge.update_state(d_loss)
        self.of_maker.update_state(g_loss)
        return {"d_loss": self.of_judge.result(), "g_loss": self.of_maker.result()}


discriminator = keras.Sequential(
    [
        keras.Input((8, 8, 1)),
        layers.Conv2D(4, 4, strides=2, padding="same"),
        layers.LeakyReLU(),
        layers.Flatten(),
        layers.Dropout(0.0),
        layers.Dense(1, activation="sigmoid"),
    ]
)
generator = keras.Sequential([keras.Input((5,)), layers.Dense(32), layers.Reshape((4, 4, 2))])
generator.add(layers.Conv2DTranspose(3, 4, strides=2, padding="same"))
generator.add(layers.LeakyReLU())
generator.add(layers.Conv2D(1, 3, padding="same", activation="sigmoid"))
model = Adversaries(discriminator, generator)
model.compile(keras.optimizers.Adam(1e-3), keras.optimizers.Adam(1e-3), keras.losses.BinaryCrossentropy())
history = model.fit(images, noise, batch_size=16, epochs=2, verbose=0)
