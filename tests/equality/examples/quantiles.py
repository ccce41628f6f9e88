"""Several quantiles of a forecast at once, by a pinball loss for each.

Like: timeseries/timeseries_traffic_forecasting, with quantiles as targets
"""

QUANTILES = (0.1, 0.5, 0.9)
random = np.random.default_rng(60)
x = random.normal(size=(74, 6, 2))
y = x[:, -1, :1] + 0.3 * random.normal(size=(74, 1))


def pinball(quantile):
    def loss(y_true, y_pred):
        error = y_true - y_pred
        return tf.reduce_mean(tf.maximum(quantile * error, (quantile - 1) * error), -1)

    return loss


inputs = keras.Input((6, 2))
hidden = layers.GRU(6)(inputs)
outputs = {f"q{int(100 * q)}": layers.Dense(1, name=f"q{int(100 * q)}")(hidden) for q in QUANTILES}
model = keras.Model(inputs, outputs)
losses = {f"q{int(100 * q)}": pinball(q) for q in QUANTILES}
model.compile("adam", losses, loss_weights={name: 1.0 + number for number, name in enumerate(losses)})
history = model.fit(x, dict.fromkeys(losses, y), batch_size=16, epochs=2, validation_split=0.2, verbose=0)
