"""Classes as further channels of images and noise (conditional GAN).

Like: generative/conditional_gan
"""

CLASSES = 3
random = np.random.default_rng(74)
images, labels = random.uniform(size=(58, 6, 6, 1)), np.eye(CLASSES)[random.integers(0, CLASSES, 58)]
loss_of = keras.losses.BinaryCrossentropy(from_logits=True)


class Conditional(keras.Model):
    def __init__(self, discriminator, generator):
        super().__init__()
        self.discriminator, self.generator = discriminator, generator
        self.trackers = [keras.metrics.Mean(name="discriminator"), keras.metrics.Mean(name="generator")]

    @property
    def metrics(self):
        return self.trackers

    def compile(self, *optimizers):
        super().compile()
        self.optimizers = optimizers

    def made_of(self, real, label):
        noise = tf.reduce_mean(real, (2, 3))
        return self.generator(tf.concat([noise, label], 1))

    def train_step(self, data):
        real, label = data
        channels = tf.repeat(tf.repeat(label[:, None, None], 6, 1), 6, 2)
        with_label = [tf.concat([image, channels], -1) for image in (self.made_of(real, label), real)]
        batch = tf.shape(real)[0]
        truth = tf.concat([tf.ones([batch, 1]), tf.zeros([batch, 1])], 0)
        with tf.GradientTape() as tape:
            loss = loss_of(truth, self.discriminator(tf.concat(with_label, 0)))
        weights = self.discriminator.trainable_weights
        self.optimizers[0].apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        with tf.GradientTape() as tape:
            made = tf.concat([self.made_of(real, label), channels], -1)
            fooled = loss_of(tf.zeros([batch, 1]), self.discriminator(made))
        weights = self.generator.trainable_weights
        self.optimizers[1].apply_gradients(zip(tape.gradient(fooled, weights), weights, strict=True))
        self.trackers[0].update_state(loss)
        self.trackers[1].update_state(fooled)
        return {tracker.name: tracker.result() for tracker in self.trackers}


discriminator = keras.Sequential([keras.Input((6, 6, 1 + CLASSES)), layers.Conv2D(4, 3, strides=2), layers.LeakyReLU()])
discriminator.add(layers.GlobalMaxPooling2D())
discriminator.add(layers.Dense(1))
generator = keras.Sequential([keras.Input((6 + CLASSES,)), layers.Dense(36, activation="sigmoid")])
generator.add(layers.Reshape((6, 6, 1)))
model = Conditional(discriminator, generator)
model.compile(keras.optimizers.Adam(3e-3), keras.optimizers.Adam(3e-3))
history = model.fit(images, labels, batch_size=16, epochs=2, verbose=0)
