"""Coupling layers turn rows into normal ones; the loss is their log-likelihood (Real NVP).

Like: generative/real_nvp
"""

moons = np.random.default_rng(77).normal(size=(90, 2))
moons[:, 1] += moons[:, 0] ** 2


def coupling():
    given = keras.Input((2,))
    shift = scale = given
    for _ in range(2):
        shift = layers.Dense(6, activation="relu", kernel_regularizer=keras.regularizers.L2(0.01))(shift)
        scale = layers.Dense(6, activation="relu", kernel_regularizer=keras.regularizers.L2(0.01))(scale)
    return keras.Model(given, [layers.Dense(2, activation="tanh")(scale), layers.Dense(2)(shift)])


class Flow(keras.Model):
    def __init__(self, count):
        super().__init__()
        self.masks = np.array([[0.0, 1.0], [1.0, 0.0]] * (count // 2))
        self.couplings = [coupling() for _ in range(count)]
        self.tracker = keras.metrics.Mean(name="loss")
        self.built = True

    @property
    def metrics(self):
        return [self.tracker]

    def call(self, x):
        log_det = tf.zeros_like(x[:, 0])
        for mask, one in reversed(list(zip(self.masks, self.couplings, strict=True))):
            kept = x * mask
            scale, shift = (part * (1 - mask) for part in one(kept))
            x = (1 - mask) * (x * tf.exp(-scale) - tf.exp(-scale) * shift) + kept
            log_det -= tf.reduce_sum(scale, 1)
        return x, log_det

    def log_loss(self, x):
        y, log_det = self(x)
        log_likelihood = -0.5 * tf.reduce_sum(y**2, 1) - np.log(2 * np.pi) + log_det
        return -tf.reduce_mean(log_likelihood)

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = self.log_loss(data[0] if isinstance(data, tuple) else data)
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}


model = Flow(2)
model.compile(keras.optimizers.Adam(1e-3))
history = model.fit(moons, batch_size=16, epochs=2, verbose=0)
