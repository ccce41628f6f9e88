"""A train_step and all of it in one tf.function, with metrics of the cell, in the scope of the default strategy.

Like: code for custom training that people decorate
"""

random = np.random.default_rng(1)
x, y = random.normal(size=(50, 5)), random.normal(size=(50, 2))


class Decorated(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(2)
        self.loss_tracker = keras.metrics.Mean("loss")
        self.error = keras.metrics.MeanAbsoluteError("mae")

    def call(self, inputs):
        return self.dense(inputs)

    @property
    def metrics(self):
        return [self.loss_tracker, self.error]

    @tf.function
    def train_step(self, data):
        inputs, targets = data
        with tf.GradientTape() as tape:
            outputs = self(inputs, training=True)
            loss = tf.reduce_mean(tf.square(targets - outputs))
        weights = self.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))  # noqa: B905  (AutoGraph)
        self.loss_tracker.update_state(loss)
        self.error.update_state(targets, outputs)
        return {metric.name: metric.result() for metric in self.metrics}


strategy = tf.distribute.get_strategy()
with strategy.scope():
    model = Decorated()
    model.compile(keras.optimizers.Adam(0.01))
history = model.fit(x, y, batch_size=12 * strategy.num_replicas_in_sync, epochs=2, verbose=0)
