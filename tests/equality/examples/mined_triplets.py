"""The hardest triplets of each batch, as a compiled loss of labels and embeddings.

Like: the losses of TensorFlow Addons
"""

random = np.random.default_rng(10)
x, y = random.normal(size=(50, 5)), random.integers(0, 3, 50)


def hardest_triplets(labels, embeddings):
    labels = tf.reshape(labels, [-1])
    distances = tf.reduce_sum((embeddings[:, None] - embeddings[None]) ** 2, -1)
    same = tf.equal(labels[:, None], labels[None])
    positive = tf.reduce_max(tf.where(same, distances, tf.zeros_like(distances)), 1)
    negative = tf.reduce_min(tf.where(same, distances + 1e6, distances), 1)
    return tf.reduce_mean(tf.nn.relu(positive - negative + 0.5))


model = keras.Sequential([keras.Input((5,)), layers.Dense(8, activation="tanh"), layers.Dense(3)])
model.add(layers.UnitNormalization())
model.compile(keras.optimizers.Adam(0.01), hardest_triplets)
history = model.fit(x, y, batch_size=12, epochs=3, verbose=0, validation_split=0.2)
