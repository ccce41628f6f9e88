"""Each row is moved by the sign of its gradient, and trained on beside itself (FGSM).

Like: the tutorials about adversarial training
"""

random = np.random.default_rng(8)
x, y = random.normal(size=(50, 5)), random.integers(0, 3, 50)


class Adversarial(keras.Model):
    def train_step(self, data):
        inputs, targets = data
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            loss = self.compute_loss(y=targets, y_pred=self(inputs, training=True))
        moved = inputs + 0.1 * tf.sign(tape.gradient(loss, inputs))
        with tf.GradientTape() as tape:
            loss = 0.5 * self.compute_loss(y=targets, y_pred=self(inputs, training=True))
            loss += 0.5 * self.compute_loss(y=targets, y_pred=self(moved, training=True))
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"loss": loss}


given = keras.Input((5,))
hidden = layers.Dense(7, activation="relu")(given)
model = Adversarial(given, layers.Dense(3, activation="softmax")(hidden))
model.compile("adam", "sparse_categorical_crossentropy")
history = model.fit(x, y, batch_size=12, epochs=2, verbose=0)
