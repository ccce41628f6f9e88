"""A train_step in a tf.function that counts its steps in a weight of the model, and warms up with the count.

Like: code for schedules inside a train_step that people write
"""

random = np.random.default_rng(1)
x, y = random.normal(size=(49, 5)), random.normal(size=(49, 2))  # the last batch has one row


class Counting(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(2)
        self.steps = self.add_weight(shape=(), initializer="zeros", trainable=False, name="steps")
        self.loss_tracker = keras.metrics.Mean("loss")

    def call(self, inputs):
        return self.dense(inputs)

    @property
    def metrics(self):
        return [self.loss_tracker]

    @tf.function
    def train_step(self, data):
        inputs, targets = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(targets - self(inputs, training=True)))
            warmed_up = loss * tf.minimum((tf.cast(self.steps, loss.dtype) + 1) / 4, tf.ones_like(loss))
        weights = self.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(warmed_up, weights), weights))  # noqa: B905  (AutoGraph)
        self.steps.assign_add(1)
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}


model = Counting()
model.compile(keras.optimizers.SGD(0.1))
history = model.fit(x, y, batch_size=12, epochs=2, verbose=0)
