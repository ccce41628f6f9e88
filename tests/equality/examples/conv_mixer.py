"""Depthwise and pointwise convolutions in turns.

Like: vision/convmixer
Options: --sync-batchnorm
"""

random = np.random.default_rng(18)
images = random.uniform(0, 255, (50, 8, 8, 3))
labels = random.integers(0, 4, 50)


def activated(x):
    return layers.BatchNormalization()(layers.Activation("gelu")(x))


inputs = keras.Input((8, 8, 3))
x = layers.Rescaling(1 / 255)(inputs)
x = activated(layers.Conv2D(6, 2, strides=2)(x))
for _ in range(2):
    x = layers.Add()([activated(layers.DepthwiseConv2D(3, padding="same")(x)), x])
    x = activated(layers.Conv2D(6, 1)(x))
model = keras.Model(inputs, layers.Dense(4, activation="softmax")(layers.GlobalAvgPool2D()(x)))
model.compile(keras.optimizers.AdamW(1e-3, weight_decay=1e-4), "sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(images, labels, batch_size=16, epochs=2, validation_split=0.1, verbose=0)
