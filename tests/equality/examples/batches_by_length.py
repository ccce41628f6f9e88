"""Texts of like lengths in a batch, so that batches have other sizes and lengths; masked, with class weights.

Like: the guide to tf.data, bucket_by_sequence_length
"""

random = np.random.default_rng(5)
texts = [(random.integers(1, 9, random.integers(2, 12)), int(random.integers(0, 2))) for _ in range(61)]
signature = (tf.TensorSpec([None], tf.int64), tf.TensorSpec([], tf.int64))
data = tf.data.Dataset.from_generator(lambda: iter(texts), output_signature=signature)
padded = data.shuffle(61, seed=3).padded_batch(8).apply(tf.data.experimental.assert_cardinality(8))
by_length = data.bucket_by_sequence_length(lambda text, label: tf.shape(text)[0], [4, 8], [6, 5, 3])

model = keras.Sequential([keras.Input((None,)), layers.Embedding(9, 4, mask_zero=True), layers.LSTM(4)])
model.add(layers.Dense(1, activation="sigmoid"))
model.compile("sgd", "binary_crossentropy", metrics=["accuracy"])
model.fit(padded, epochs=2, verbose=0, validation_data=by_length)
history = model.fit(by_length, epochs=2, verbose=0, class_weight={0: 1.0, 1: 3.0})
