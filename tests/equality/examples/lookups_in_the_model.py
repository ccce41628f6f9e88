"""Strings go through the model: lookups, hashing and embeddings are its first layers.

Like: structured_data/wide_deep_cross_networks
"""

random = np.random.default_rng(52)
names = ["oak", "pine", "birch"]
table = {"tree": random.choice(names, 70), "soil": random.choice(["a", "b"], 70), "height": random.normal(size=70)}
labels = random.integers(0, 3, 70)
data = tf.data.Dataset.from_tensor_slices((table, labels)).batch(16)

inputs = {"tree": keras.Input((), name="tree", dtype="string"), "soil": keras.Input((), name="soil", dtype="string")}
inputs["height"] = keras.Input((), name="height")
tree = layers.Embedding(4, 3)(layers.StringLookup(vocabulary=names)(inputs["tree"]))
soil = layers.StringLookup(vocabulary=["a", "b"], output_mode="one_hot")(layers.Reshape((1,))(inputs["soil"]))
joined = layers.concatenate([tree, soil, layers.Reshape((1,))(inputs["height"])])
cross = joined
for _ in range(2):
    cross = layers.Add()([layers.Multiply()([joined, layers.Dense(7)(cross)]), cross])
deep = layers.Dense(6, activation="relu")(joined)
model = keras.Model(inputs, layers.Dense(3, activation="softmax")(layers.concatenate([cross, deep])))
model.compile("adam", "sparse_categorical_crossentropy", metrics=["sparse_categorical_accuracy"])
history = model.fit(data, epochs=2, verbose=0)
