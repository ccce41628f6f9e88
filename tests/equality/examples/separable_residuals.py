"""Separable convolutions with BatchNormalization and residual connections.

Like: vision/image_classification_from_scratch
Options: --sync-batchnorm
"""

random = np.random.default_rng(2)
images = random.uniform(0, 255, size=(66, 12, 12, 3))
labels = random.integers(0, 2, 66)

inputs = keras.Input((12, 12, 3))
x = layers.Rescaling(1 / 255)(inputs)
x = layers.Conv2D(4, 3, strides=2, padding="same")(x)
x = layers.BatchNormalization()(x)
x = previous = layers.Activation("relu")(x)
for filters in (6, 8):
    x = layers.Activation("relu")(x)
    x = layers.SeparableConv2D(filters, 3, padding="same")(x)
    x = layers.BatchNormalization()(x)
    x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
    x = previous = layers.add([x, layers.Conv2D(filters, 1, strides=2, padding="same")(previous)])
x = layers.GlobalAveragePooling2D()(x)
model = keras.Model(inputs, layers.Dense(1)(x))
model.compile(
    keras.optimizers.Adam(3e-3),
    keras.losses.BinaryCrossentropy(from_logits=True),
    metrics=[keras.metrics.BinaryAccuracy(name="accuracy", threshold=0.0)],
)
history = model.fit(images, labels, batch_size=20, epochs=2, validation_data=(images[:30], labels[:30]), verbose=0)
