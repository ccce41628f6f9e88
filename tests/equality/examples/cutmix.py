"""A box of another image in each image of a batch, drawn by seeds from a counter.

Like: vision/cutmix
"""

random = np.random.default_rng(15)
images = random.normal(size=(60, 8, 8, 1))
labels = np.eye(3)[random.integers(0, 3, 60)]


def cut(number, batch):
    image, label = batch
    corner = tf.random.stateless_uniform([2], [1, number], 0, 5, tf.int64)
    inside = [
        (tf.range(8, dtype=tf.int64) >= at) & (tf.range(8, dtype=tf.int64) < at + 4) for at in (corner[0], corner[1])
    ]
    box = tf.cast(inside[0][:, None] & inside[1][None], tf.float64)[None, :, :, None]
    share = tf.reduce_mean(box)
    return image * (1 - box) + image[::-1] * box, label * (1 - share) + label[::-1] * share


data = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(60, seed=4).batch(16)
model = keras.Sequential([keras.Input((8, 8, 1)), layers.Conv2D(4, 3, activation="relu"), layers.Flatten()])
model.add(layers.Dense(3, activation="softmax"))
model.compile("adam", "categorical_crossentropy", metrics=["accuracy"])
history = model.fit(data.enumerate().map(cut).prefetch(1), epochs=2, verbose=0)
