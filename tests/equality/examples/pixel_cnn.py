"""Convolutions that see the pixels before each one only, in residual blocks.

Like: generative/pixelcnn
"""

images = (np.random.default_rng(79).uniform(size=(50, 7, 7, 1)) > 0.6).astype("float64")


class Masked(layers.Layer):
    def __init__(self, kind, filters, size, **conv):
        super().__init__()
        self.kind, self.conv = kind, layers.Conv2D(filters, size, padding="same", **conv)

    def build(self, shape):
        self.conv.build(shape)
        self.mask = np.zeros(tuple(self.conv.kernel.shape))
        middle = self.mask.shape[0] // 2
        self.mask[:middle] = 1.0
        self.mask[middle, :middle] = 1.0
        if self.kind == "B":
            self.mask[middle, middle] = 1.0
        self.built = True

    def call(self, x):
        self.conv.kernel.assign(self.conv.kernel * self.mask)
        return self.conv(x)


inputs = keras.Input((7, 7, 1))
x = Masked("A", 4, 5, activation="relu")(inputs)
for _ in range(2):
    h = layers.Conv2D(3, 1, activation="relu")(x)
    h = layers.Conv2D(4, 1, activation="relu")(Masked("B", 3, 3, activation="relu")(h))
    x = layers.add([x, h])
model = keras.Model(inputs, layers.Conv2D(1, 1, activation="sigmoid")(x))
model.compile(keras.optimizers.Adam(5e-4), "binary_crossentropy")
history = model.fit(images, images, batch_size=16, epochs=2, validation_split=0.1, verbose=0)
