"""Convolutions over time, with checkpoints, a falling rate and an early stop.

Like: timeseries/timeseries_classification_from_scratch
Options: --sync-batchnorm
"""

random = np.random.default_rng(58)
x, y = random.normal(size=(82, 20, 1)), random.integers(0, 2, 82)

inputs = h = keras.Input((20, 1))
for _ in range(2):
    h = layers.ReLU()(layers.BatchNormalization()(layers.Conv1D(5, 3, padding="same")(h)))
model = keras.Model(inputs, layers.Dense(2, activation="softmax")(layers.GlobalAveragePooling1D()(h)))
callbacks = [
    keras.callbacks.ModelCheckpoint("best.weights.h5", save_best_only=True, save_weights_only=True, monitor="val_loss"),
    keras.callbacks.ReduceLROnPlateau(monitor="val_loss", factor=0.5, patience=1, min_lr=1e-4),
    keras.callbacks.EarlyStopping(monitor="val_loss", patience=3),
]
model.compile("adam", "sparse_categorical_crossentropy", metrics=["sparse_categorical_accuracy"])
history = model.fit(x, y, batch_size=16, epochs=4, callbacks=callbacks, validation_split=0.2, verbose=0).history
model.load_weights("best.weights.h5")
