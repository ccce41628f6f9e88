"""Weights are moved along the normalized gradient of the batch, and back, within a step (SAM).

Like: the code for sharpness-aware minimization
Refused: allreduce: is neither a mean nor a sum over the rows of a batch
"""

random = np.random.default_rng(7)
x, y = random.normal(size=(48, 5)), random.normal(size=(48, 1))


class SharpnessAware(keras.Model):
    def train_step(self, data):
        inputs, targets = data
        weights = self.trainable_variables
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=targets, y_pred=self(inputs, training=True))
        gradients = tape.gradient(loss, weights)
        norm = tf.linalg.global_norm(gradients)
        moves = [0.05 * gradient / (norm + 1e-12) for gradient in gradients]
        for weight, move in zip(weights, moves, strict=True):
            weight.assign_add(move)
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=targets, y_pred=self(inputs, training=True))
        gradients = tape.gradient(loss, weights)
        for weight, move in zip(weights, moves, strict=True):
            weight.assign_sub(move)
        self.optimizer.apply_gradients(zip(gradients, weights, strict=True))
        return {"loss": loss}


given = keras.Input((5,))
model = SharpnessAware(given, layers.Dense(1)(layers.Dense(7, activation="tanh")(given)))
model.compile(keras.optimizers.SGD(0.1), "mse")
history = model.fit(x, y, batch_size=12, epochs=2, verbose=0)
