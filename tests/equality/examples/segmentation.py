"""A class for each pixel: down by strides, up by transposed convolutions, with residuals (U-Net).

Like: vision/oxford_pets_image_segmentation
Options: --sync-batchnorm
"""

random = np.random.default_rng(5)
images = random.uniform(size=(30, 8, 8, 3))
masks = random.integers(0, 3, (30, 8, 8, 1))

inputs = keras.Input((8, 8, 3))
x = layers.Conv2D(4, 3, strides=2, padding="same")(inputs)
x = previous = layers.Activation("relu")(layers.BatchNormalization()(x))
x = layers.SeparableConv2D(6, 3, padding="same")(x)
x = layers.BatchNormalization()(x)
x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
x = previous = layers.add([x, layers.Conv2D(6, 1, strides=2, padding="same")(previous)])
for filters in (6, 4):
    x = layers.Conv2DTranspose(filters, 3, padding="same")(layers.Activation("relu")(x))
    x = layers.UpSampling2D(2)(layers.BatchNormalization()(x))
    residual = layers.Conv2D(filters, 1, padding="same")(layers.UpSampling2D(2)(previous))
    x = previous = layers.add([x, residual])
model = keras.Model(inputs, layers.Conv2D(3, 3, activation="softmax", padding="same")(x))
model.compile(keras.optimizers.Adam(1e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
best = keras.callbacks.ModelCheckpoint("best.weights.h5", save_best_only=True, save_weights_only=True)
history = model.fit(images, masks, batch_size=8, epochs=2, validation_split=0.2, callbacks=[best], verbose=0)
