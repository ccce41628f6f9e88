"""Columns of strings, integers and numbers as a dict, with lookups and normalization in the pipeline.

Like: structured_data/structured_data_classification_from_scratch
"""

random = np.random.default_rng(51)
table = {
    "thal": random.choice(["fixed", "normal", "reversible"], 70),
    "vessels": random.integers(0, 4, 70),
    "age": random.integers(30, 80, 70).astype("float64"),
}
labels = random.integers(0, 2, 70)
data = tf.data.Dataset.from_tensor_slices((table, labels)).shuffle(70, seed=6).batch(16)

thal = layers.StringLookup(output_mode="one_hot", vocabulary=["fixed", "normal", "reversible"])
vessels = layers.IntegerLookup(output_mode="one_hot", vocabulary=[0, 1, 2, 3])
age = layers.Normalization(axis=None)
age.adapt(table["age"])
data = data.map(lambda row, label: ({name: tf.expand_dims(column, -1) for name, column in row.items()}, label))
encoded = data.map(
    lambda row, label: ({"thal": thal(row["thal"]), "vessels": vessels(row["vessels"]), "age": age(row["age"])}, label)
)

given = {
    "thal": keras.Input((4,), name="thal"),
    "vessels": keras.Input((5,), name="vessels"),
    "age": keras.Input((1,), name="age"),
}
x = layers.concatenate(list(given.values()))
x = layers.Dropout(0.0)(layers.Dense(8, activation="relu")(x))
model = keras.Model(given, layers.Dense(1, activation="sigmoid")(x))
model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
history = model.fit(encoded, epochs=2, validation_data=encoded.take(2), verbose=0)
