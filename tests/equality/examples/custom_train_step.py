"""A train_step with `compute_loss`, sample weights and compiled metrics.

Like: guides/custom_train_step_in_tensorflow
"""

random = np.random.default_rng(81)
x, y, weights = random.normal(size=(74, 6)), random.normal(size=(74, 1)), random.uniform(0.2, 2.0, 74)


class Custom(keras.Model):
    def train_step(self, data):
        x, y, weights = data
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = self.compute_loss(x=x, y=y, y_pred=predicted, sample_weight=weights)
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
        return self.compute_metrics(x, y, predicted, weights)


inputs = keras.Input((6,))
model = Custom(inputs, layers.Dense(1)(layers.Dense(8, activation="tanh")(inputs)))
model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"], weighted_metrics=["mse"])
history = model.fit(x, y, sample_weight=weights, batch_size=16, epochs=2, verbose=0)
