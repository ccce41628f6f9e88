"""Several labels for each text, multi-hot by a lookup; ragged strings in the pipeline.

Like: nlp/multi_label_classification
"""

random = np.random.default_rng(44)
names = np.array(["cs.AI", "cs.CV", "stat.ML", "math"])
texts = [" ".join(random.choice(["net", "proof", "image", "bound", "loss"], 6)) for _ in range(58)]
labels = tf.ragged.constant([list(random.choice(names, random.integers(1, 4), replace=False)) for _ in range(58)])

lookup = layers.StringLookup(output_mode="multi_hot", vocabulary=names)
vectorize = layers.TextVectorization(ngrams=2, output_mode="tf_idf", max_tokens=12)
vectorize.adapt(tf.constant(texts))
data = tf.data.Dataset.from_tensor_slices((texts, labels)).batch(16)
data = data.map(lambda text, label: (vectorize(text), lookup(label.to_tensor(default_value="none"))[:, 1:]))
data = data.map(lambda text, label: (tf.ensure_shape(text, (None, 12)), tf.ensure_shape(label, (None, 4))))

model = keras.Sequential([layers.Dense(8, activation="relu"), layers.Dense(4, activation="sigmoid")])
model.compile("adam", "binary_crossentropy", metrics=["binary_accuracy"])
history = model.fit(data, epochs=2, validation_data=data.take(1), verbose=0)
