"""The targets are an input, and the last layer adds loss and metric by itself.

Like: keras_recipes/endpoint_layer_pattern
"""

random = np.random.default_rng(86)
x, y = random.normal(size=(82, 6)), random.integers(0, 2, (82, 3)).astype("float64")


class Endpoint(layers.Layer):
    def __init__(self):
        super().__init__()
        self.loss_of = keras.losses.BinaryCrossentropy(from_logits=True)

    def call(self, logits, targets=None, sample_weight=None):
        if targets is not None:
            self.add_loss(self.loss_of(targets, logits, sample_weight))
        return keras.activations.softmax(logits)


inputs, targets = keras.Input((6,), name="inputs"), keras.Input((3,), name="targets")
outputs = Endpoint()(layers.Dense(3)(inputs), targets)
model = keras.Model({"inputs": inputs, "targets": targets}, outputs)
model.compile("adam")
history = model.fit({"inputs": x, "targets": y}, batch_size=16, epochs=3, verbose=0)
