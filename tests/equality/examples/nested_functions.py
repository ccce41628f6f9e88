"""A train_step whose parts are functions of tf.function, one with a condition, in a graph and eagerly; evaluated first.

Like: any that speeds parts of a train_step up
Needs: Keras 3
"""

random = np.random.default_rng(1)
x, y = random.normal(size=(50, 5)), random.normal(size=(50, 2))


class Trained(keras.Model):
    def __init__(self):
        super().__init__()
        self.inner = keras.Sequential([keras.Input((5,)), layers.Dense(4, activation="tanh"), layers.Dense(2)])

    @tf.function
    def call(self, inputs):
        return self.inner(inputs)

    @tf.function
    def loss_of(self, targets, outputs):
        return tf.reduce_mean((targets - outputs) ** 2)

    @tf.function
    def update(self, inputs, targets):
        with tf.GradientTape() as tape:
            outputs = self(inputs)
            loss = self.loss_of(targets, outputs)
            if self.optimizer.iterations > 2:
                loss = loss * 2.0
        weights = self.inner.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))  # noqa: B905  (AutoGraph)
        return loss

    def train_step(self, data):
        return {"loss": self.update(*data)}

    def test_step(self, data):
        return {"loss": self.loss_of(data[1], self(data[0]))}


model, history = [], {}
for eagerly in (False, True):
    trained = Trained()
    trained.compile(keras.optimizers.Adam(0.01), run_eagerly=eagerly)
    trained.optimizer.build(trained.inner.trainable_variables)
    before = trained.evaluate(x, y, batch_size=16, verbose=0, return_dict=True)
    fitted = trained.fit(x, y, batch_size=13, epochs=3, verbose=0, validation_data=(x[:17], y[:17]))
    history.update({f"{name}{eagerly}": values for name, values in fitted.history.items()})
    history[f"before{eagerly}"] = [before["loss"]]
    model.append(trained.inner)
