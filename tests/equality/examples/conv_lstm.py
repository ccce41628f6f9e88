"""The next frame of a film, by recurrent convolutions.

Like: vision/conv_lstm
Options: --sync-batchnorm
"""

films = np.random.default_rng(17).uniform(size=(22, 5, 6, 6, 1))
x, y = films[:, :-1], films[:, 1:]

inputs = keras.Input((None, 6, 6, 1))
h = layers.ConvLSTM2D(3, 3, padding="same", return_sequences=True, activation="relu")(inputs)
h = layers.BatchNormalization()(h)
h = layers.ConvLSTM2D(3, 1, padding="same", return_sequences=True, activation="relu")(h)
model = keras.Model(inputs, layers.Conv3D(1, 3, activation="sigmoid", padding="same")(h))
model.compile(keras.optimizers.Adam(), keras.losses.BinaryCrossentropy())
calls = [keras.callbacks.EarlyStopping(monitor="val_loss", patience=10), keras.callbacks.ReduceLROnPlateau(patience=5)]
history = model.fit(x, y, batch_size=5, epochs=2, validation_data=(x[:6], y[:6]), callbacks=calls, verbose=0)
