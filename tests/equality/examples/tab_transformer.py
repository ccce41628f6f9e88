"""Attention over the embedded columns of a table, in batches with sample weights from the pipeline.

Like: structured_data/tabtransformer
"""

random = np.random.default_rng(56)
kinds, numbers = random.integers(0, 5, (70, 3)), random.normal(size=(70, 2))
labels, weights = random.integers(0, 2, (70, 1)), random.uniform(0.2, 2.0, (70, 1))
given = {"kinds": kinds, "numbers": numbers}
data = tf.data.Dataset.from_tensor_slices((given, labels, weights)).batch(16)

inputs = {"kinds": keras.Input((3,), name="kinds", dtype="int64"), "numbers": keras.Input((2,), name="numbers")}
x = layers.Embedding(5, 6)(inputs["kinds"])
for _ in range(2):
    x = layers.LayerNormalization(epsilon=1e-6)(layers.Add()([layers.MultiHeadAttention(2, 6)(x, x), x]))
    x = layers.LayerNormalization(epsilon=1e-6)(layers.Add()([layers.Dense(6, activation="gelu")(x), x]))
x = layers.concatenate([layers.Flatten()(x), layers.LayerNormalization(epsilon=1e-6)(inputs["numbers"])])
x = layers.Dense(8, activation="selu")(x)
model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x))
metrics = [keras.metrics.BinaryAccuracy(name="accuracy")]
model.compile(keras.optimizers.AdamW(1e-3, weight_decay=1e-4), keras.losses.BinaryCrossentropy(), metrics=metrics)
history = model.fit(data, epochs=2, validation_data=data.take(2), verbose=0)
