"""Windows that `timeseries_dataset_from_array` cuts from one series, through an LSTM.

Like: timeseries/timeseries_weather_forecasting
"""

series = np.cumsum(np.random.default_rng(59).normal(size=(120, 3)), 0) / 10


def windows(begin, end):
    return keras.utils.timeseries_dataset_from_array(
        series[begin : end - 8], series[begin + 8 : end, 1], sequence_length=6, sampling_rate=2, batch_size=20
    )


inputs = keras.Input((6, 3))
model = keras.Model(inputs, layers.Dense(1)(layers.LSTM(6)(inputs)))
model.compile(keras.optimizers.Adam(1e-3), "mse")
stop = keras.callbacks.EarlyStopping(monitor="val_loss", min_delta=0, patience=5)
history = model.fit(windows(0, 90), epochs=2, validation_data=windows(60, 120), callbacks=[stop], verbose=0)
