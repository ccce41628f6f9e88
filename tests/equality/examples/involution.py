"""Kernels that a layer makes anew for each pixel, with lambdas and sub-layers built by their input.

Like: vision/involution
Options: --sync-batchnorm
"""

random = np.random.default_rng(22)
images = random.uniform(size=(42, 6, 6, 4))
labels = random.integers(0, 3, 42)


class Involution(layers.Layer):
    def build(self, shape):
        self.kernel_of = keras.Sequential(
            [layers.Conv2D(2, 1), layers.BatchNormalization(), layers.ReLU(), layers.Conv2D(9, 1)]
        )
        self.kernel_of.build(shape)
        super().build(shape)

    def call(self, x, training=None):
        kernel = self.kernel_of(x, training=training)[..., None]
        patches = tf.image.extract_patches(x, [1, 3, 3, 1], [1, 1, 1, 1], [1, 1, 1, 1], "SAME")
        patches = tf.reshape(patches, [-1, 6, 6, 9, 4])
        return tf.reduce_sum(kernel * patches, 3)


inputs = keras.Input((6, 6, 4))
x = layers.ReLU()(Involution()(inputs))
x = layers.Flatten()(layers.ReLU()(Involution()(x)))
model = keras.Model(inputs, layers.Dense(3)(x))
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
history = model.fit(images, labels, batch_size=8, epochs=2, validation_split=0.1, verbose=0)
