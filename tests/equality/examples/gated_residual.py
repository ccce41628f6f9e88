"""Gated linear units choose among features, each of which has a residual network of its own.

Like: structured_data/classification_with_grn_and_vsn
"""

random = np.random.default_rng(55)
columns = {f"column{i}": random.normal(size=(70, 1)) for i in range(3)}
labels = random.integers(0, 2, (70, 1))
weights = random.uniform(0.2, 2.0, 70)


class Gated(layers.Layer):
    def __init__(self, units):
        super().__init__()
        self.elu, self.linear = layers.Dense(units, activation="elu"), layers.Dense(units)
        self.gate, self.value = layers.Dense(units, activation="sigmoid"), layers.Dense(units)
        self.project, self.normal = layers.Dense(units), layers.LayerNormalization()

    def call(self, x):
        hidden = self.linear(self.elu(x))
        return self.normal(self.project(x) + self.value(hidden) * self.gate(hidden))


class Selection(layers.Layer):
    def __init__(self, features, units):
        super().__init__()
        self.each = [Gated(units) for _ in range(features)]
        self.together, self.share = Gated(units), layers.Dense(features, activation="softmax")

    def call(self, features):
        shares = tf.expand_dims(self.share(self.together(tf.concat(features, 1))), -1)
        each = tf.stack([gated(x) for gated, x in zip(self.each, features, strict=True)], 1)
        return tf.reduce_sum(shares * each, 1)


inputs = {name: keras.Input((1,), name=name) for name in columns}
encoded = [layers.Dense(4)(one) for one in inputs.values()]
model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(Selection(3, 4)(encoded)))
model.compile("adam", "binary_crossentropy", metrics=[keras.metrics.BinaryAccuracy(name="accuracy")])
history = model.fit(columns, labels, batch_size=16, epochs=2, sample_weight=weights, verbose=0)
