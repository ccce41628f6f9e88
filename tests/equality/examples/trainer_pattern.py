"""A model that trains the model which it wraps.

Like: keras_recipes/trainer_pattern
"""

random = np.random.default_rng(85)
x, y = random.normal(size=(82, 6)), random.integers(0, 3, 82)


class Trainer(keras.Model):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.accuracy, self.average = (
            keras.metrics.SparseCategoricalAccuracy(name="accuracy"),
            keras.metrics.Mean("loss"),
        )

    @property
    def metrics(self):
        return [self.average, self.accuracy]

    def call(self, x):
        return self.model(x)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            predicted = self.model(x, training=True)
            loss = self.compute_loss(y=y, y_pred=predicted)
        weights = self.model.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        self.average.update_state(loss)
        self.accuracy.update_state(y, predicted)
        return {"loss": self.average.result(), "accuracy": self.accuracy.result()}

    def test_step(self, data):
        x, y = data
        self.accuracy.update_state(y, self.model(x, training=False))
        return {"accuracy": self.accuracy.result()}


inner = keras.Sequential([keras.Input((6,)), layers.Dense(8, activation="relu"), layers.Dense(3)])
model = Trainer(inner)
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
history = model.fit(x, y, batch_size=16, epochs=2, validation_data=(x[:30], y[:30]), verbose=0)
