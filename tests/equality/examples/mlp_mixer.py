"""Dense layers that mix patches and channels in turns.

Like: vision/mlp_image_classification
"""

PATCHES, CHANNELS = 9, 8
random = np.random.default_rng(4)
patches = random.normal(size=(70, PATCHES, CHANNELS))
labels = random.integers(0, 3, 70)


class Mixer(layers.Layer):
    def __init__(self):
        super().__init__()
        self.across = keras.Sequential([layers.Dense(PATCHES, activation="gelu"), layers.Dense(PATCHES)])
        self.within = keras.Sequential([layers.Dense(CHANNELS, activation="gelu"), layers.Dense(CHANNELS)])
        self.turned, self.normalize = layers.Permute((2, 1)), layers.LayerNormalization(epsilon=1e-6)

    def call(self, inputs):
        x = self.turned(self.across(self.turned(self.normalize(inputs)))) + inputs
        return x + self.within(self.normalize(x))


inputs = keras.Input((PATCHES, CHANNELS))
x = layers.GlobalAveragePooling1D()(Mixer()(Mixer()(inputs)))
model = keras.Model(inputs, layers.Dense(3)(x))
model.compile(
    keras.optimizers.AdamW(5e-3, weight_decay=1e-4),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["sparse_categorical_accuracy"],
)
stops = [keras.callbacks.ReduceLROnPlateau(patience=1), keras.callbacks.EarlyStopping(patience=3)]
history = model.fit(patches, labels, batch_size=17, epochs=4, validation_split=0.2, callbacks=stops, verbose=0)
