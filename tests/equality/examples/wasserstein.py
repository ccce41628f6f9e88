"""Several critic updates for one of the generator, with a penalty on the gradient of the critic (WGAN-GP).

Like: generative/wgan_gp
"""

random = np.random.default_rng(73)
rows, noise = random.normal(size=(74, 6)), random.normal(size=(74, 4))


class Wasserstein(keras.Model):
    def __init__(self, critic, generator):
        super().__init__()
        self.critic, self.generator = critic, generator
        self.trackers = [keras.metrics.Mean(name="critic"), keras.metrics.Mean(name="generator")]

    @property
    def metrics(self):
        return self.trackers

    def compile(self, critic_optimizer, generator_optimizer):
        super().compile()
        self.critic_optimizer, self.generator_optimizer = critic_optimizer, generator_optimizer

    def penalty(self, real, made):
        between = made + 0.3 * (real - made)
        with tf.GradientTape() as tape:
            tape.watch(between)
            judged = self.critic(between, training=True)
        norm = tf.sqrt(tf.reduce_sum(tf.square(tape.gradient(judged, between)), 1))
        return tf.reduce_mean((norm - 1.0) ** 2)

    def train_step(self, data):
        real, noise = data
        for number in range(3):
            with tf.GradientTape() as tape:
                made = self.generator(noise * (1.0 - 0.1 * number), training=True)
                judged = self.critic(made, training=True), self.critic(real, training=True)
                loss = tf.reduce_mean(judged[0]) - tf.reduce_mean(judged[1]) + 10.0 * self.penalty(real, made)
            weights = self.critic.trainable_variables
            self.critic_optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
            self.trackers[0].update_state(loss)
        with tf.GradientTape() as tape:
            fooled = -tf.reduce_mean(self.critic(self.generator(noise, training=True), training=True))
        weights = self.generator.trainable_variables
        self.generator_optimizer.apply_gradients(zip(tape.gradient(fooled, weights), weights, strict=True))
        self.trackers[1].update_state(fooled)
        return {tracker.name: tracker.result() for tracker in self.trackers}


critic = keras.Sequential([keras.Input((6,)), layers.Dense(10), layers.LeakyReLU(), layers.Dense(1)])
generator = keras.Sequential([keras.Input((4,)), layers.Dense(10, activation="tanh"), layers.Dense(6)])
model = Wasserstein(critic, generator)
model.compile(*(keras.optimizers.Adam(2e-4, beta_1=0.5, beta_2=0.9) for _ in range(2)))
history = model.fit(rows, noise, batch_size=16, epochs=2, verbose=0)
