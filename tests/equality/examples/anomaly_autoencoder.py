"""A series is reconstructed; errors above the largest one in training are anomalies.

Like: timeseries/timeseries_anomaly_detection
"""

random = np.random.default_rng(61)
series = np.sin(np.arange(80) / 3) + 0.1 * random.normal(size=80)
x = np.stack([series[at : at + 16] for at in range(64)])[..., None]

model = keras.Sequential(
    [
        keras.Input((16, 1)),
        layers.Conv1D(5, 5, padding="same", strides=2, activation="relu"),
        layers.Dropout(0.0),
        layers.Conv1D(3, 5, padding="same", strides=2, activation="relu"),
        layers.Conv1DTranspose(3, 5, padding="same", strides=2, activation="relu"),
        layers.Conv1DTranspose(5, 5, padding="same", strides=2, activation="relu"),
        layers.Conv1DTranspose(1, 5, padding="same"),
    ]
)
model.compile(keras.optimizers.Adam(1e-3), "mse")
stop = keras.callbacks.EarlyStopping(monitor="val_loss", patience=5, mode="min")
fitted = model.fit(x, x, epochs=3, batch_size=16, validation_split=0.1, callbacks=[stop], verbose=0)
largest = np.abs(model.predict(x, verbose=0) - x).mean(1).max()
history = {**fitted.history, "threshold": [largest]}
