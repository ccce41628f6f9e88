"""An optimizer for each half of a model, in one train_step.

Like: discriminative learning rates, in a train_step
"""

random = np.random.default_rng(100)
x, y = random.normal(size=(82, 6)), random.integers(0, 3, 82)


class Halves(keras.Model):
    def __init__(self):
        super().__init__()
        self.below, self.above = layers.Dense(8, activation="tanh"), layers.Dense(3)

    def call(self, x):
        return self.above(self.below(x))

    def compile(self, slow, fast, **compiled):
        super().compile(optimizer=fast, **compiled)
        self.slow = slow

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            logits = self(x, training=True)
            loss = self.compute_loss(x, y, logits)
        halves = [self.below.trainable_variables, self.above.trainable_variables]
        for optimizer, weights, gradients in zip(
            (self.slow, self.optimizer), halves, tape.gradient(loss, halves), strict=True
        ):
            optimizer.apply_gradients(zip(gradients, weights, strict=True))
        return {"entropy": loss}


model = Halves()
model.compile(
    keras.optimizers.SGD(0.01),
    keras.optimizers.Adam(0.01),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)
history = model.fit(x, y, batch_size=16, epochs=2, verbose=0)
