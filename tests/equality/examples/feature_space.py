"""Keras' FeatureSpace indexes, normalizes and crosses columns in the pipeline.

Like: structured_data/structured_data_classification_with_feature_space
"""

random = np.random.default_rng(62)
table = {"sex": random.integers(0, 2, 70), "thal": random.choice(["a", "b", "c"], 70), "age": random.normal(size=70)}
labels = random.integers(0, 2, 70)
rows = tf.data.Dataset.from_tensor_slices((table, labels)).batch(16)

space = keras.utils.FeatureSpace(
    features={
        "sex": keras.utils.FeatureSpace.integer_categorical(num_oov_indices=0),
        "thal": keras.utils.FeatureSpace.string_categorical(num_oov_indices=0),
        "age": keras.utils.FeatureSpace.float_normalized(),
    },
    crosses=[keras.utils.FeatureSpace.cross(feature_names=("sex", "thal"), crossing_dim=6)],
    output_mode="concat",
)
space.adapt(rows.map(lambda row, _: row))
data = rows.map(lambda row, label: (space(row), label)).prefetch(2)
encoded = space.get_encoded_features()
hidden = layers.Dense(8, activation="relu")(encoded)
model = keras.Model(encoded, layers.Dense(1, activation="sigmoid")(hidden))
model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
history = model.fit(data, epochs=2, validation_data=data.take(1), verbose=0)
