"""An optimizer of one's own subtracts the mean of each gradient.

Like: vision/gradient_centralization
"""

random = np.random.default_rng(21)
x = random.normal(size=(74, 6, 6, 1))
labels = random.integers(0, 2, 74)


class Centred(keras.optimizers.RMSprop):
    def apply_gradients(self, grads_and_vars, **kwargs):
        pairs = []
        for gradient, weight in grads_and_vars:
            if len(gradient.shape) > 1:
                gradient -= tf.reduce_mean(gradient, list(range(len(gradient.shape) - 1)), keepdims=True)
            pairs.append((gradient, weight))
        return super().apply_gradients(pairs, **kwargs)


model = keras.Sequential([keras.Input((6, 6, 1)), layers.Conv2D(4, 3, activation="relu"), layers.Flatten()])
model.add(layers.Dense(1, activation="sigmoid"))
model.compile(Centred(1e-3), "binary_crossentropy", metrics=["accuracy"])
history = model.fit(x, labels, batch_size=16, epochs=2, verbose=0)
