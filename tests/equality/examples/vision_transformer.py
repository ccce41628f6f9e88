"""Patches of images with embedded positions, through attention.

Like: vision/image_classification_with_vision_transformer
"""

SIZE, PATCH, WIDTH = 12, 4, 8
random = np.random.default_rng(3)
images = random.uniform(size=(50, SIZE, SIZE, 3))
labels = random.integers(0, 5, 50)


class Patches(layers.Layer):
    def call(self, images):
        window = [1, PATCH, PATCH, 1]
        patches = tf.image.extract_patches(images, window, window, [1, 1, 1, 1], "VALID")
        return tf.reshape(patches, [tf.shape(images)[0], (SIZE // PATCH) ** 2, PATCH * PATCH * 3])


class Positions(layers.Layer):
    def __init__(self):
        super().__init__()
        self.project, self.place = layers.Dense(WIDTH), layers.Embedding((SIZE // PATCH) ** 2, WIDTH)

    def call(self, patches):
        return self.project(patches) + self.place(tf.range((SIZE // PATCH) ** 2))


inputs = keras.Input((SIZE, SIZE, 3))
x = Positions()(Patches()(inputs))
for _ in range(2):
    normal = layers.LayerNormalization(epsilon=1e-6)(x)
    x = layers.Add()([x, layers.MultiHeadAttention(2, WIDTH)(normal, normal)])
    hidden = layers.Dense(16, activation="gelu")(layers.LayerNormalization(epsilon=1e-6)(x))
    x = layers.Add()([x, layers.Dense(WIDTH)(hidden)])
x = layers.Flatten()(layers.LayerNormalization(epsilon=1e-6)(x))
model = keras.Model(inputs, layers.Dense(5)(x))
model.compile(
    keras.optimizers.AdamW(1e-3, weight_decay=1e-4),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
history = model.fit(images, labels, batch_size=16, epochs=2, validation_split=0.1, verbose=0)
