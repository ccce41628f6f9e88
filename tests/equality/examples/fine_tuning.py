"""A frozen base with BatchNormalization, then all of it at a low rate.

Like: guides/transfer_learning, vision/image_classification_efficientnet_fine_tuning
Options: --sync-batchnorm
"""

random = np.random.default_rng(91)
x, y = random.uniform(size=(58, 8, 8, 3)), random.integers(0, 2, (58, 1))

base = keras.Sequential(
    [
        keras.Input((8, 8, 3)),
        layers.Conv2D(4, 3, activation="relu"),
        layers.BatchNormalization(),
        layers.Conv2D(4, 3, activation="relu"),
    ]
)
base.trainable = False
inputs = keras.Input((8, 8, 3))
h = layers.GlobalAveragePooling2D()(base(layers.Rescaling(2.0, offset=-1)(inputs), training=False))
model = keras.Model(inputs, layers.Dense(1)(layers.Dropout(0.0)(h)))
history = {"loss": [], "binary_accuracy": []}
for trainable, rate in ((False, 1e-2), (True, 1e-4)):
    base.trainable = trainable
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(rate), loss, metrics=[keras.metrics.BinaryAccuracy()])
    fitted = model.fit(x, y, batch_size=16, epochs=2, verbose=0).history
    for name, values in history.items():
        values += fitted[name]
