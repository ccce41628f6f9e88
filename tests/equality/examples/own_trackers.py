"""A train_step whose losses and metrics are the cell's own, at the lowest level.

Like: guides/custom_train_step_in_tensorflow
"""

random = np.random.default_rng(82)
x, y = random.normal(size=(82, 6)), random.normal(size=(82, 1))
tracker, absolute = keras.metrics.Mean(name="loss"), keras.metrics.MeanAbsoluteError(name="mae")


class Custom(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = tf.reduce_mean(keras.losses.mean_squared_error(y, predicted))
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        tracker.update_state(loss)
        absolute.update_state(y, predicted)
        return {"loss": tracker.result(), "mae": absolute.result()}

    @property
    def metrics(self):
        return [tracker, absolute]


inputs = keras.Input((6,))
model = Custom(inputs, layers.Dense(1)(inputs))
model.compile("adam")
history = model.fit(x, y, batch_size=16, epochs=3, verbose=0)
