"""A loss of all pairs of a batch trains an encoder; then a classifier on the frozen encoder.

Like: vision/supervised-contrastive-learning
"""

random = np.random.default_rng(9)
x = random.normal(size=(74, 8))
labels = random.integers(0, 3, 74)


class SupervisedContrast(keras.losses.Loss):
    def call(self, y_true, y_pred):
        unit = tf.math.l2_normalize(y_pred, 1)
        logits = tf.matmul(unit, unit, transpose_b=True) / 0.5
        given = tf.reshape(y_true, [-1, 1])
        same = tf.cast(tf.equal(given, tf.transpose(given)), logits.dtype)
        log = logits - tf.reduce_logsumexp(logits, 1, keepdims=True)
        return -tf.reduce_mean(tf.reduce_sum(same * log, 1) / tf.reduce_sum(same, 1))


encoder = keras.Sequential([keras.Input((8,)), layers.Dense(12, activation="relu"), layers.Dense(6)])
given = keras.Input((8,))
projected = keras.Model(given, layers.Dense(4)(encoder(given)))
projected.compile(keras.optimizers.Adam(1e-3), SupervisedContrast())
first = projected.fit(x, labels, batch_size=16, epochs=2, verbose=0)

encoder.trainable = False
given = keras.Input((8,))
classifier = keras.Model(given, layers.Dense(3, activation="softmax")(encoder(given)))
classifier.compile(keras.optimizers.Adam(1e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
second = classifier.fit(x, labels, batch_size=16, epochs=2, verbose=0)
model = [projected, classifier]
history = {"loss": first.history["loss"] + second.history["loss"], "accuracy": second.history["accuracy"]}
