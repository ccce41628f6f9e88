"""The likelihood of a mixture of normals as the loss of a function that is no function.

Like: keras_recipes/approximating_non_function_mappings
"""

random = np.random.default_rng(88)
y = random.uniform(size=(74, 1))
x = y + 0.3 * np.sin(2 * np.pi * y) + 0.05 * random.normal(size=y.shape)


def likelihood(y_true, y_pred):
    mean, deviation, logits = tf.split(y_pred, 3, 1)
    deviation = tf.nn.elu(deviation) + 1.0 + 1e-6
    each = -0.5 * tf.square((y_true - mean) / deviation) - tf.math.log(deviation)
    return -tf.reduce_mean(tf.reduce_logsumexp(each + tf.nn.log_softmax(logits), 1))


model = keras.Sequential([keras.Input((1,)), layers.Dense(12, activation="relu"), layers.Dense(12, activation="relu")])
model.add(layers.Dense(12))
model.compile(keras.optimizers.Adam(1e-3), likelihood)
history = model.fit(x, y, batch_size=16, epochs=3, validation_split=0.15, verbose=0)
