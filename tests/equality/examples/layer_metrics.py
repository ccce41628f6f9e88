"""A layer keeps metrics of its own: an average of activations, one of batches, and a sum.

Like: guides/making_new_layers_and_models_via_subclassing
"""

random = np.random.default_rng(20)
x, y = random.normal(size=(50, 5)), random.normal(size=(50, 2))


class Watched(layers.Layer):
    def __init__(self):
        super().__init__()
        self.activation = keras.metrics.Mean(name="activation")
        self.size = keras.metrics.Mean(name="size")
        self.total = keras.metrics.Sum(name="total")

    def call(self, inputs):
        self.activation.update_state(inputs)
        self.size.update_state(tf.reduce_mean(tf.abs(inputs)))
        self.total.update_state(tf.reduce_sum(tf.abs(inputs)))
        return inputs


model = keras.Sequential([keras.Input((5,)), layers.Dense(4, activation="tanh"), Watched(), layers.Dense(2)])
model.compile("sgd", "mse", metrics=["mae"])
history = model.fit(x, y, batch_size=13, epochs=3, verbose=0, validation_split=0.2)
