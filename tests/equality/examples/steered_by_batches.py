"""Callbacks lower the rate by the loss of a batch, average the weights of epochs, and predict and evaluate meanwhile.

Like: guides/writing_your_own_callbacks
"""

random = np.random.default_rng(1)
x, y = random.normal(size=(57, 5)), random.integers(0, 3, 57)


class Steered(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.losses, self.mean, self.kept = [], None, []

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(logs["loss"])
        if logs["loss"] > 1.05:
            rate = float(self.model.optimizer.learning_rate)
            self.model.optimizer.learning_rate = rate * 0.9

    def on_epoch_end(self, epoch, logs=None):
        weights = self.model.get_weights()
        before = self.mean or weights
        self.mean = [(old * epoch + new) / (epoch + 1) for old, new in zip(before, weights, strict=True)]
        self.kept.append(float(np.mean(self.model.predict(x[:10], verbose=0)[:, 0])))
        self.kept += self.model.evaluate(x[:21], y[:21], batch_size=5, verbose=0)

    def on_train_end(self, logs=None):
        self.model.set_weights(self.mean)


steered = Steered()
model = keras.Sequential([keras.Input((5,)), layers.Dense(6, activation="relu"), layers.Dense(3, activation="softmax")])
model.compile(keras.optimizers.Adam(0.02), "sparse_categorical_crossentropy", metrics=["accuracy"])
fit = {"batch_size": 10, "epochs": 4, "verbose": 0, "callbacks": [steered]}
history = model.fit(x, y, validation_data=(x[:20], y[:20]), **fit).history
history |= {"batches": steered.losses, "kept": steered.kept}
