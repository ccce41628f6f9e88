"""TFRecord files that the cell writes and reads.

Like: keras_recipes/creating_tfrecords
"""

random = np.random.default_rng(90)
x, y = random.normal(size=(66, 6)).astype("float32"), random.integers(0, 3, 66)

for part in range(2):
    with tf.io.TFRecordWriter(f"rows-{part}.tfrecord") as writer:
        for row, label in zip(x[part::2], y[part::2], strict=True):
            feature = {
                "row": tf.train.Feature(float_list=tf.train.FloatList(value=row)),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())


def parsed(record):
    features = {"row": tf.io.FixedLenFeature([6], tf.float32), "label": tf.io.FixedLenFeature([], tf.int64)}
    found = tf.io.parse_single_example(record, features)
    return found["row"], found["label"]


files = [f"rows-{part}.tfrecord" for part in range(2)]
data = tf.data.TFRecordDataset(files).map(parsed, num_parallel_calls=tf.data.AUTOTUNE).shuffle(66, seed=3).batch(16)
model = keras.Sequential([keras.Input((6,)), layers.Dense(8, activation="tanh"), layers.Dense(3, activation="softmax")])
model.compile(keras.optimizers.SGD(0.1, 0.9), "sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(data.prefetch(2), epochs=2, verbose=0)
