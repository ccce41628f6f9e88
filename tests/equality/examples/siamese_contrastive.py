"""Pairs of images through one embedding; a contrastive loss of their distance, with a margin.

Like: vision/siamese_contrastive
"""

random = np.random.default_rng(6)
left, right = random.uniform(size=(2, 70, 6, 6, 1))
same = random.integers(0, 2, (70, 1)).astype("float64")


class Distance(layers.Layer):
    def call(self, pair):
        total = tf.reduce_sum(tf.square(pair[0] - pair[1]), 1, keepdims=True)
        return tf.sqrt(tf.maximum(total, keras.backend.epsilon()))


def contrastive(y_true, y_pred):
    margin = tf.square(tf.maximum(1.0 - y_pred, 0.0))
    return tf.reduce_mean((1 - y_true) * tf.square(y_pred) + y_true * margin)


given = keras.Input((6, 6, 1))
x = layers.Conv2D(4, 3, activation="tanh")(given)
x = layers.Flatten()(layers.AveragePooling2D(2)(x))
embedding = keras.Model(given, layers.Dense(5, activation="tanh")(x))
first, second = keras.Input((6, 6, 1)), keras.Input((6, 6, 1))
apart = Distance()([embedding(first), embedding(second)])
model = keras.Model([first, second], layers.Dense(1, activation="sigmoid")(apart))
model.compile(keras.optimizers.RMSprop(1e-3), contrastive, metrics=["accuracy"])
history = model.fit([left, right], same, batch_size=16, epochs=2, validation_split=0.1, verbose=0)
