"""Noise is predicted and taken away; a second network follows by moving averages, written in the train_step.

Like: generative/ddim
"""

random = np.random.default_rng(75)
images, noises = random.uniform(size=(58, 6, 6, 1)), random.normal(size=(58, 6, 6, 1))
times = random.uniform(size=(58, 1, 1, 1))


def network():
    noisy, variance = keras.Input((6, 6, 1)), keras.Input((1, 1, 1))
    x = layers.Concatenate()([layers.Conv2D(4, 1)(noisy), layers.UpSampling2D(6)(layers.Dense(2)(variance))])
    x = layers.Add()([layers.Conv2D(6, 3, padding="same", activation="swish")(x), x])
    return keras.Model([noisy, variance], layers.Conv2D(1, 1, kernel_initializer="zeros")(x))


class Diffusion(keras.Model):
    def __init__(self):
        super().__init__()
        self.normalizer, self.network, self.average = layers.Normalization(), network(), network()
        self.average.set_weights(self.network.get_weights())
        self.of_noise, self.of_image = keras.metrics.Mean(name="noise"), keras.metrics.Mean(name="image")

    @property
    def metrics(self):
        return [self.of_noise, self.of_image]

    def denoised(self, network, data, training):
        images, (noises, times) = data
        angles = 0.1 + times * 1.3
        images, signal, share = self.normalizer(images), tf.cos(angles), tf.sin(angles)
        predicted = network([signal * images + share * noises, share**2], training=training)
        made = (signal * images + share * noises - share * predicted) / signal
        self.of_image.update_state(self.loss(images, made))
        return self.loss(noises, predicted)

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = self.denoised(self.network, data, True)
        weights = self.network.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        self.of_noise.update_state(loss)
        for weight, average in zip(self.network.weights, self.average.weights, strict=True):
            average.assign(0.9 * average + 0.1 * weight)
        return {metric.name: metric.result() for metric in self.metrics}

    def test_step(self, data):
        self.of_noise.update_state(self.denoised(self.average, data, False))
        return {metric.name: metric.result() for metric in self.metrics}


model = Diffusion()
model.normalizer.adapt(images)
model.compile(keras.optimizers.AdamW(1e-3, weight_decay=1e-4), keras.losses.MeanAbsoluteError())
data = tf.data.Dataset.from_tensor_slices((images, (noises, times))).batch(16)
history = model.fit(data, epochs=2, validation_data=data.take(1), verbose=0)
