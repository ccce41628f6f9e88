"""Gradients added up in variables of a train_step, which updates at every second batch.

Like: the code for gradient accumulation that people write for Keras 2
"""

random = np.random.default_rng(96)
x, y = random.normal(size=(96, 6)), random.normal(size=(96, 1))


class Accumulating(keras.Model):
    def __init__(self, *args):
        super().__init__(*args)
        self.steps = tf.Variable(0, trainable=False, dtype=tf.int64)
        self.sums = [tf.Variable(tf.zeros(w.shape, tf.float64), trainable=False) for w in self.trainable_variables]

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        for total, gradient in zip(self.sums, tape.gradient(loss, self.trainable_variables), strict=True):
            total.assign_add(gradient / 2)
        self.steps.assign_add(1)
        tf.cond(self.steps % 2 == 0, self.update, lambda: None)
        return {"error": loss}

    def update(self):
        self.optimizer.apply_gradients(zip(self.sums, self.trainable_variables, strict=True))
        for total in self.sums:
            total.assign(tf.zeros_like(total))


inputs = keras.Input((6,))
model = Accumulating(inputs, layers.Dense(1)(layers.Dense(6, activation="tanh")(inputs)))
model.compile(keras.optimizers.SGD(0.1), "mse")
history = model.fit(x, y, batch_size=16, epochs=2, verbose=0)
