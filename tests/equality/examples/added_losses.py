"""Losses that layers add: a mean of activations, a sum over rows, and weights' penalties.

Like: guides/making_new_layers_and_models_via_subclassing
"""

random = np.random.default_rng(101)
x, y = random.normal(size=(82, 6)), random.integers(0, 3, 82)


class Penalty(layers.Layer):
    def __init__(self, loss):
        super().__init__()
        self.loss = loss

    def call(self, x):
        self.add_loss(self.loss(x))
        return x


inputs = keras.Input((6,))
h = Penalty(lambda x: 0.1 * tf.reduce_mean(x**2))(layers.Dense(8, activation="tanh", kernel_regularizer="l2")(inputs))
h = Penalty(lambda x: 0.01 * tf.reduce_sum(tf.abs(x)))(h)
model = keras.Model(inputs, layers.Dense(3, activation="softmax")(h))
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(x, y, batch_size=16, epochs=2, validation_split=0.2, verbose=0)
