"""Rows mixed with rows of a second shuffle, by shares drawn within the data pipeline.

Like: vision/mixup
"""

random = np.random.default_rng(14)
x = random.normal(size=(74, 6, 6, 1))
labels = np.eye(4)[random.integers(0, 4, 74)]


def mix(first, second):
    (one, one_label), (two, two_label) = first, second
    share = tf.random.uniform([tf.shape(one)[0]], dtype=tf.float64)
    image, label = tf.reshape(share, [-1, 1, 1, 1]), tf.reshape(share, [-1, 1])
    return image * one + (1 - image) * two, label * one_label + (1 - label) * two_label


halves = [tf.data.Dataset.from_tensor_slices((x, labels)).shuffle(74, seed=seed).batch(16) for seed in (1, 2)]
model = keras.Sequential(
    [keras.Input((6, 6, 1)), layers.Conv2D(4, 3, activation="relu"), layers.Flatten(), layers.Dense(4)]
)
model.compile("adam", keras.losses.CategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
history = model.fit(tf.data.Dataset.zip(tuple(halves)).map(mix), epochs=3, verbose=0)
