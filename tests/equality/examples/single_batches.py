"""A generator's batches through `train_on_batch` and `test_on_batch`.

Like: guides/training_with_built_in_methods
"""

random = np.random.default_rng(84)
x, y = random.normal(size=(74, 6)), random.integers(0, 3, 74)

model = keras.Sequential([keras.Input((6,)), layers.Dense(8, activation="relu"), layers.Dense(3, activation="softmax")])
model.compile("rmsprop", "sparse_categorical_crossentropy", metrics=["accuracy"])
history = {"loss": [], "tested": []}
for at in range(0, 74, 16):
    logs = model.train_on_batch(x[at : at + 16], y[at : at + 16], return_dict=True)
    history["loss"].append(logs["loss"])
    history["tested"] += model.test_on_batch(x[:30], y[:30])
