"""A train_step and a test_step that return each metric's result, of which that of the compiled metrics is a dict.

Like: guides/custom_train_step_in_tensorflow
Needs: Keras 3
"""

random = np.random.default_rng(86)
x, y = random.normal(size=(74, 6)), random.integers(0, 3, 74)


class Custom(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=predicted)
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return {**self.results(y, predicted, loss), "norm": tf.reduce_mean(tf.norm(predicted, axis=1))}

    def test_step(self, data):
        x, y = data
        predicted = self(x, training=False)
        return self.results(y, predicted, self.compute_loss(y=y, y_pred=predicted))

    def results(self, y, predicted, loss):
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, predicted)
        return {metric.name: metric.result() for metric in self.metrics}


seen = []


class Seen(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        seen.append(logs["accuracy"])


inputs = keras.Input((6,))
model = Custom(inputs, layers.Dense(3, activation="softmax")(layers.Dense(8, activation="tanh")(inputs)))
model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
validation = (x[:21], y[:21])
fitted = model.fit(x, y, batch_size=16, epochs=2, validation_data=validation, callbacks=[Seen()], verbose=0)
history = {**fitted.history, "seen": seen}
