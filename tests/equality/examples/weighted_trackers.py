"""Averages and sums that a train_step updates with scalars: weighed by rows, constants, and losses that are sums.

Like: code for custom training that people write by hand
"""

random = np.random.default_rng(1)
x, y = random.normal(size=(50, 5)), random.normal(size=(50, 2))


class Tracked(keras.Model):
    def train_step(self, data):
        inputs, targets = data
        with tf.GradientTape() as tape:
            errors = tf.reduce_sum((targets - self(inputs, training=True)) ** 2, -1)
            loss = tf.reduce_sum(errors)
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        rows, mean = tf.shape(inputs)[0], tf.reduce_mean(errors)
        updates = {"summed": (loss, rows), "weighed": (mean, rows), "doubled": (loss, 2.0), "plain": (mean, None)}
        updates |= {"all": (loss, None), "means": (mean, None), "steps": (1.0, None), "rows": (rows, None)}
        for name, (value, weight) in updates.items():
            TRACKERS[name].update_state(value, sample_weight=weight)
        return {name: tracker.result() for name, tracker in TRACKERS.items()}


AVERAGES, SUMS = ("summed", "weighed", "doubled", "plain"), ("all", "means", "steps", "rows")
TRACKERS = {name: keras.metrics.Mean(name) for name in AVERAGES} | {name: keras.metrics.Sum(name) for name in SUMS}
given = keras.Input((5,))
model = Tracked(given, layers.Dense(2)(given))
model.trackers = list(TRACKERS.values())
model.compile(keras.optimizers.SGD(0.001))
history = model.fit(x, y, batch_size=13, epochs=2, verbose=0)
